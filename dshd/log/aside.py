"""Small files of the state directory, read at a start: a faulty one is set aside, not written over.

It keeps its bytes under ``NAME.damaged-20261201T002500Z``, the time being that of the start (UTC), and that
is told: somebody may know what to do with it, or want to know what did that. What it held is gone for us.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dshd.log.disk import Disk
from dshd.log.sealed import unseal

log = logging.getLogger(__name__)
T = TypeVar("T")

FAULTS = (OSError, ValueError, TypeError, KeyError, AttributeError)


def read(disk: Disk, path: Path, parse: Callable[[bytes], T], lost: str) -> T | None:
    """What ``parse`` makes of a sealed file's body; None if there is none, or no more. ``lost``: what
    follows, ``"so it is made again from the logs"``. Blocks."""
    try:
        return parse(unseal(disk.read_bytes(path)))
    except FileNotFoundError:
        return None
    except FAULTS as error:
        log.warning("%s can't be read, %s: %s; %s", path.name, lost, error, set_aside(disk, path))
        return None


def set_aside(disk: Disk, path: Path) -> str:
    """Give it another name. Says which, or why not.

    Durability: on return the name is on disk, if the disk takes it.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    try:
        name = disk.spare_name(path.with_name(f"{path.name}.damaged-{stamp}"))
        disk.rename_synced(path, name)
    except OSError as error:
        return f"it could not be set aside: {error.strerror}"
    return f"it is kept as {name}"
