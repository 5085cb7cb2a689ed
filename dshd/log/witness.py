"""What files beside a log tell of it: up to which seq it was durable once.

A log that somebody has cut at the end of a line looks whole. But ``view.json`` and ``checkpoint.json`` are
written after a sync and say which (`testimony`), so a log that ends before has lost what was acknowledged:
it is damaged, and `dshd.log.repair` gives no seq again that was given.

- They stay derived: deleted, cut or wrong ones (`sealed`) tell nothing, and one that is older than the log
  tells what its lines say anyway.
- They speak of the directory in which they were written (its inode: no other number stays when a disk is
  mounted anew). A copy, whose files may have been read in any order while the daemon wrote them, is another
  directory: it opens with what there is of its log, like one with a torn tail.
- What was written after the last of them and then cut, nobody can tell; `SPARE` is left for it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from dshd.log.disk import Disk
from dshd.log.sealed import unseal

FILES: Final = ("view.json", "checkpoint.json")
SPARE: Final = 1000  # seqs behind the last that is told of; a repair passes over them
_FIRST: Final = re.compile(rb'\{"durable":\{"place":(\d+),"seq":(\d+)\},')


def testimony(disk: Disk, log: Path, seq: int) -> dict[str, Any]:
    """What the body of such a file, an object, begins with: all up to ``seq`` is durable now."""
    return {"durable": {"place": _place(disk, log), "seq": seq}}


def told(disk: Disk, log: Path) -> int:
    """The highest seq that is told to have been durable in this directory; -1 for none."""
    return max((_told(disk, log, name) for name in FILES), default=-1)


def _told(disk: Disk, log: Path, name: str) -> int:
    try:
        found = _FIRST.match(unseal(disk.read_bytes(log.with_name(name))))
        return int(found[2]) if found and int(found[1]) == _place(disk, log) else -1
    except (OSError, ValueError):
        return -1


def _place(disk: Disk, log: Path) -> int:
    return disk.stat(log.parent).inode[1]
