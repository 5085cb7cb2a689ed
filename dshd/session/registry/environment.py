"""What a session's tools run with: its environment, and the secrets that ``--env`` named.

Secrets are kept beside the log (``env.json``), never in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from dshd import paths, wire
from dshd.log.disk import Disk
from dshd.log.store import Store
from dshd.session.fold.state import State

log = logging.getLogger(__name__)

SECRETS: Final = "env.json"


def parted(env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """What the log may say, and the secrets."""
    secrets = {k: v for k, v in env.items() if paths.looks_secret(k)}
    return {k: v for k, v in env.items() if k not in secrets}, secrets


def file(secrets: Mapping[str, str]) -> dict[str, bytes]:
    """``{name: content}`` of what goes beside the log; nothing for no secrets."""
    return {SECRETS: json.dumps(dict(secrets)).encode()} if secrets else {}


def _secrets(data: bytes) -> dict[str, str]:
    """Raises ValueError, and says nothing of what stands in it."""
    found: Any = orjson.loads(data)
    if not isinstance(found, dict) or not all(map(_passes, found, found.values())):
        raise ValueError("it holds something else than variables")
    return found


def _passes(name: str, value: object) -> bool:
    """Whether a process can have it."""
    return isinstance(value, str) and wire.is_variable(name, value)


def read(disk: Disk, path: Path) -> dict[str, str]:
    """Secrets as they are on disk; none, with a warning, if they can't be used. Blocking."""
    try:
        return _secrets(disk.read_bytes(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning(
            "session %s goes without its secrets: %s can't be used: %s", path.parent.name, path, error
        )
        return {}


class Environments:
    """Those of the loaded sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._secrets: dict[str, dict[str, str]] = {}

    def of(self, state: State) -> dict[str, str]:
        env = dict(state.settings.get("env") or {})
        env.update({k[4:]: v for k, v in state.settings.items() if k.startswith("env.") and v is not None})
        return {**env, **self._secrets.get(state.id, {})}

    def read(self, id: str) -> dict[str, str]:
        """A session's secrets as they are on disk. Blocking."""
        return read(self._store.disk, self._store.session_dir(id) / SECRETS)

    def know(self, id: str, secrets: dict[str, str]) -> None:
        self._secrets[id] = secrets

    def forget(self, id: str) -> None:
        self._secrets.pop(id, None)
