"""The files: the config's two, and the environment's."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from dshd.config.reading import Source, parse
from dshd.config.whole import Config
from dshd.errors import NotConfigured
from dshd.paths import Places, daemon_environment, parse_env_file
from dshd.small import read_file

MOST = 1024 * 1024  # bytes of a file


def load(places: Places) -> Config:
    """Read and check the config files. A missing file is an empty one, unless the user named it. Raises
    `NotConfigured`."""
    user = _read(places.config, places.config)
    if user is None and places.config_named:
        raise NotConfigured(f"no config file {places.config}.", hint="dshctl paths")
    return parse(user, _read(places.system_config, places.system_config))


def _read(path: str, name: str) -> Source | None:
    try:
        data = read_file(path, MOST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NotConfigured(f"can't read {path}: {error.strerror}.", hint=f"ls -l {path}") from error
    if len(data) > MOST:
        raise NotConfigured(f"can't read {path}: it is larger than {MOST >> 20} MiB.", hint=f"ls -l {path}")
    try:
        return Source(name, data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotConfigured(f"{name}:{line}: not UTF-8", hint="dshctl config check") from None


def environment(config: Config, places: Places, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that the daemon is to have. Raises `NotConfigured` for an env file that others may
    read, or with a line that isn't ``NAME=VALUE``."""
    return daemon_environment(
        environ,
        keys=config.key_variables(),
        path=config.daemon.path,
        lines=_env_lines(places.env_file),
    )


def _env_lines(path: str) -> dict[str, str]:
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if stat.S_IMODE(mode) & 0o077:
        raise NotConfigured(f"{path} can be read by others.", hint=f"chmod 600 {path}")
    source = _read(path, path)
    return parse_env_file(source.text, source.name) if source else {}
