"""What stands where a session's log should: said when something went wrong there, not asked before.

| in the log's place             | is                                                  | the way out         |
|--------------------------------|-----------------------------------------------------|---------------------|
| nothing, and the session's     | a damaged session                                   | ``rm``              |
| directory is there             |                                                     |                     |
| nothing, and in the place of   | no session of ours: somebody put it there           | look at it          |
| the directory a file, a dead   |                                                     |                     |
| link, ...                      |                                                     |                     |
| a directory, a pipe, a dead    | the same: there is nothing that could be saved      | ``rm``              |
| link, ...                      |                                                     |                     |
| a link to a file               | damaged: it is read, and never written through      | ``fsck --repair``   |
| a file                         | whatever went wrong with it                         | as the error says   |
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dshd.errors import Damaged
from dshd.log.disk import Disk, explained


@contextlib.contextmanager
def told(what: str, path: Path, disk: Disk) -> Iterator[None]:
    """As `explained`; but where there is no log, or no file of its name, the session is damaged."""
    with explained(what, path):
        try:
            yield
        except OSError:
            why = problem(disk, path)
            if why is None:
                raise
            raise why from None


def problem(disk: Disk, path: Path) -> Damaged | None:
    """What stands in the log's place, if that can't be one, and the one command that is left."""
    session = path.parent.name
    if not disk.exists(path):
        return _without_a_log(disk, path)
    found = disk.stat(path)
    if found.is_link and _leads_to_a_file(path):
        return Damaged(f"session {session} is damaged: {path} is a symbolic link.",
                       hint=f"dshctl fsck --repair {session}")  # fmt: skip
    for is_so, word in ((found.is_dir, "a directory"), (found.is_link, "a link to nothing that can be read"),
                        (found.is_strange, "no file")):  # fmt: skip
        if is_so:
            return Damaged(f"session {session} is damaged: {path} is {word}.", hint=f"dshctl rm {session}")
    return None


def _without_a_log(disk: Disk, path: Path) -> Damaged | None:
    place, session = path.parent, path.parent.name
    if not disk.exists(place):
        return None
    found = disk.stat(place)
    if not found.is_dir and not place.is_dir():
        word = "a link to nothing" if found.is_link else "no directory" if found.is_strange else "a file"
        return Damaged(f"{place} is {word}, and no session.", hint=f"ls -l {place}")
    return Damaged(f"session {session} is damaged: {path} is missing.", hint=f"dshctl rm {session}")


def _leads_to_a_file(path: Path) -> bool:
    return path.is_file() and os.access(path, os.R_OK)
