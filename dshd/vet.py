"""The config as a daemon that started now would take it: what ``--check`` and ``config check`` look at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dshd import config
from dshd.config import Config
from dshd.hooks import programs
from dshd.model.credentials import loose_files
from dshd.model.models import Models
from dshd.paths import Places
from dshd.plugins.loader import load_plugins


def warnings(found: Config, places: Places, environ: Mapping[str, str]) -> list[str]:
    """What is right and still not what its writer will see, a sentence each. Raises like `vet`."""
    path = config.environment(found, places, environ).get("PATH", "")
    return [*found.warnings(), *programs.missing(found, path), *loose_files(found.routes)]


def vet(places: Places, environ: Mapping[str, str]) -> tuple[Config, Models]:
    """The config, and the models that it gives. ``environ``: what the daemon would be started with.

    Raises `NotConfigured` for whatever would keep it from starting: the files, the env file, plugins.
    """
    found = config.load(places)
    kept = config.environment(found, places, environ)
    load_plugins(found.plugins)
    default = found.model.default
    return found, Models(found.routes, default=default, env=kept, config_dir=Path(places.config_dir))
