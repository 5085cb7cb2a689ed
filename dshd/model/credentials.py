"""API keys: where they come from, and nothing that could print one.

A key is read when a call is made, never kept: a changed file or a rotated key counts at once. Order: the
route's ``api_key_command``, ``api_key_file``, ``api_key_env``; else the key stored with `store_key`
(``CONFIG_DIR/keys/ROUTE``, 0600). A route that names none of them and has none stored is keyless.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from dshd.model.errors import ModelError
from dshd.small import read_small

if TYPE_CHECKING:
    import trio

LEGAL_KEY = re.compile(r"[\x21-\x7e]+")
COMMAND_TIMEOUT = 30.0
MOST = 64 * 1024  # bytes of a file with a key


@attrs.frozen
class Credentials:
    """How to get one route's key. ``env`` is the daemon's environment, looked up by name only.

    ``required``: a call without a key fails as ``MISSING_CREDENTIAL`` instead of going out keyless.
    """

    route: str = ""
    env_name: str | None = None
    file: str | None = None
    command: str | tuple[str, ...] | None = None
    stored: Path | None = None
    required: bool = False
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False, eq=False)

    def present(self) -> bool:
        """Whether a call could have a key (a command counts without being run)."""
        return self.command is not None or bool(self._read_quietly())

    def check(self) -> None:
        """Raises ``MISSING_CREDENTIAL`` if a key is needed and there is none."""
        if self.required and not self.present():
            raise self.missing()

    async def key(self) -> str | None:
        """The key, None if keyless. Raises ``MISSING_CREDENTIAL``; never says what the key is."""
        raw = await _run(self.command, self.route) if self.command is not None else self._read_quietly()
        if not raw:
            if self.required:
                raise self.missing()
            return None
        if not LEGAL_KEY.fullmatch(raw):
            raise self._bad("holds characters that no key has")
        return raw

    def missing(self) -> ModelError:
        """The sentence for a person, with the way out."""
        needs = self.env_name or self.file or "a key"
        return ModelError(
            "MISSING_CREDENTIAL",
            f'route "{self.route}" needs {needs}, and the daemon doesn\'t have it',
            hint=f"dshctl key {self.route}",
        )

    def where(self) -> str | None:
        """Where the key of a call would come from, for people; None if there is none. Blocking."""
        if self.command is not None:
            return "a command"
        sources = ((self.file, self._from_file), (self.env_name, self._from_env), ("keys/", self._from_store))
        return next((str(name) for name, read in sources if read().strip()), None)

    def _read_quietly(self) -> str:
        for text in (self._from_file(), self._from_env(), self._from_store()):
            if text.strip():
                return text.strip()
        return ""

    @property
    def path(self) -> Path | None:
        """The file that the route names, absolute."""
        return Path(self.file).expanduser().absolute() if self.file else None

    def open_to_others(self) -> str | None:
        """The file that the route names, if others may read it. Blocking."""
        try:
            loose = self.path is not None and self.path.stat().st_mode & 0o077
        except OSError:
            return None
        return self.file if loose else None

    def _from_file(self) -> str:
        return _slurp(self.path) if self.path else ""

    def _from_env(self) -> str:
        return self.env.get(self.env_name, "") if self.env_name else ""

    def _from_store(self) -> str:
        return _slurp(self.stored) if self.stored else ""

    def _bad(self, why: str) -> ModelError:
        return ModelError(
            "MISSING_CREDENTIAL", f'the key of route "{self.route}" {why}', hint=f"dshctl key {self.route}"
        )


def loose_files(routes: Mapping[str, Any]) -> list[str]:
    """A sentence for each ``api_key_file`` of the config's ``routes`` that others may read. Blocking."""
    keys = {name: Credentials(name, file=route.api_key_file) for name, route in routes.items()}
    found = {name: key.open_to_others() for name, key in keys.items()}
    return [
        f"routes.{name}.api_key_file is {file}, which others can read: chmod 600 {shlex.quote(file)}"
        for name, file in found.items()
        if file is not None
    ]


def key_path(config_dir: Path, route: str) -> Path:
    """Where the key of ``route`` is stored. ValueError for a name that is not one path component."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", route) or route in {".", ".."}:
        raise ValueError(f"no key can be stored for a route named {route!r}")
    return config_dir / "keys" / route


def store_key(config_dir: Path, route: str, key: str) -> Path:
    """Keep ``key`` for ``route``, 0600 in a 0700 directory; replaces an older one whole. Blocking.

    ValueError (without the key in it) if it is empty or has characters that no key has. *Durability*:
    the file and its directory are synced before this returns.
    """
    path = key_path(config_dir, route)
    if not LEGAL_KEY.fullmatch(key.strip()):
        raise ValueError("a key is printable ASCII without spaces")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mkstemp makes it 0600
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.write(key.strip() + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_directory(path.parent)
    return path


def read_key(config_dir: Path, route: str) -> str | None:
    """The stored key of ``route``, None if there is none. Blocking."""
    return _slurp(key_path(config_dir, route)).strip() or None


def remove_key(config_dir: Path, route: str) -> bool:
    """Forget the stored key; False if there was none. Blocking."""
    try:
        key_path(config_dir, route).unlink()
    except FileNotFoundError:
        return False
    return True


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _slurp(path: Path) -> str:
    try:
        return (read_small(path, MOST) or b"").decode()
    except UnicodeDecodeError:
        return ""


async def _run(command: str | tuple[str, ...], route: str) -> str:
    """First line of the command's output. Its stderr is shown in the error, its stdout never is."""
    import subprocess

    import trio

    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    try:
        with trio.fail_after(COMMAND_TIMEOUT):
            done = await trio.run_process(
                argv, stdin=subprocess.DEVNULL, capture_stdout=True, capture_stderr=True, check=False,
                start_new_session=True, deliver_cancel=_end_all,
            )  # fmt: skip
    except trio.TooSlowError:
        raise _command_failed(route, f"took longer than {COMMAND_TIMEOUT:.0f} s") from None
    except OSError as error:
        raise _command_failed(route, error.strerror or str(error)) from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _command_failed(route, said[-1][:200] if said else f"exit {done.returncode}")
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else ""


async def _end_all(process: trio.Process) -> None:
    """Whoever is cancelled, or has waited long enough, ends what the shell had started, too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _command_failed(route: str, why: str) -> ModelError:
    return ModelError("MISSING_CREDENTIAL", f'the api_key_command of route "{route}" failed: {why}')
