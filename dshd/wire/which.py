"""How a session reference as typed becomes a session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dshd.errors import Damaged, Invalid, NotFound
from dshd.wire.ids import PREFIX_MIN
from dshd.wire.params import Params
from dshd.wire.spelling import near


class SessionRow(Params):
    """What resolving needs of a session. ``implicit``: made for its directory, not by ``--name`` or run.

    A session whose header can't be read has no name; its id is its directory's name. ``unread``: why its log
    can't be read, if nothing else tells what it was made for either.
    """

    id: str
    name: str | None = None
    dir: str = ""
    state: str = "idle"
    implicit: bool = False
    active_at: int = 0
    unread: str = ""


def resolve(
    ref: str | None, rows: Sequence[SessionRow], cwd: str | None, *, exact: bool = False, home: str = ""
) -> SessionRow:
    """The session that ``ref`` means, as typed after ``-s``; None and ``.`` mean this directory's.

    An exact name, else an exact id, else a unique prefix of at least 3 characters (not with
    ``exact``). A name that several have (closed sessions keep theirs) means the open one, else the
    one last active. Raises `NotFound` with what is close, `Invalid` for an empty reference. ``home``
    only shortens the directories in messages.
    """
    if ref is None or ref == ".":
        return _of_directory(rows, cwd, home)
    if not ref:
        raise Invalid("-s needs the name or id of a session")
    named = [row for row in rows if row.name == ref]
    if named:
        return max(named, key=_preference)
    found = [row for row in rows if row.id == ref]
    if not found and not exact and len(ref) >= PREFIX_MIN:
        found = _by_prefix(ref, rows)
    if not found:
        if not exact:
            refuse_if_unread(rows, f'may be "{ref}"', "dshctl ls")
        raise _unknown(ref, rows, home)
    if len(found) > 1:
        raise NotFound(f'"{ref}" could be {_listed(found, home)}.', data={"candidates": _labels(found)})
    return found[0]


def _preference(row: SessionRow) -> tuple[bool, int]:
    return row.state != "closed", row.active_at


def _by_prefix(ref: str, rows: Sequence[SessionRow]) -> list[SessionRow]:
    found = [row for row in rows if row.id.startswith(ref) or (row.name or "").startswith(ref)]
    return [row for row in found if row.state != "closed"] or found


def session_of_directory(rows: Iterable[SessionRow], cwd: str) -> SessionRow | None:
    """The one made for the nearest directory at or above ``cwd``; there, an open one before a closed."""
    by_dir: dict[str, SessionRow] = {}
    for row in rows:
        if row.implicit and (row.dir not in by_dir or _preference(row) > _preference(by_dir[row.dir])):
            by_dir[row.dir] = row
    return next((by_dir[place] for place in _upwards(cwd) if place in by_dir), None)


def _upwards(directory: str) -> Iterator[str]:
    place = os.path.normpath(directory)
    while True:
        yield place
        above = os.path.dirname(place)
        if above == place:
            return
        place = above


_OTHERS: Final = (
    "dshctl followup -s NAME 'TEXT'     (another session)\ndshctl new                         (a new one)"
)


def _of_directory(rows: Sequence[SessionRow], cwd: str | None, home: str) -> SessionRow:
    if cwd is None:
        gone = "the current directory is gone or its name is no UTF-8"
        raise NotFound(f"{gone}, so it has no session", hint="dshctl ls")
    row = session_of_directory(rows, cwd)
    if row is None or row.dir != os.path.normpath(cwd):
        refuse_if_unread(rows, f"may be the one of {tilde(cwd, home)}", _OTHERS)
    if row is not None:
        return row
    there = len([row for row in rows if row.state != "closed"])
    number = {0: "", 1: " There is 1"}.get(there, f" There are {there}")
    elsewhere = number and f"{number} elsewhere: dshctl ls"
    raise NotFound(
        f"no session for {tilde(cwd, home)} yet.{elsewhere}",
        hint="dshctl followup 'TEXT'     (makes one)",
        data={"directory": cwd},
    )


def refuse_if_unread(rows: Iterable[SessionRow], may: str, hint: str) -> None:
    """Raises `Damaged` if there is a session of which nothing is known, so that it ``may`` be what is asked
    for: another one in its place is made by who says so, and by nobody else."""
    row = next((row for row in rows if row.unread), None)
    if row is not None:
        raise Damaged(f"session {row.id} {may}, and can't be read:\n{row.unread}", hint=hint,
                      outcome="not-written", data={"id": row.id})  # fmt: skip


def _unknown(ref: str, rows: Sequence[SessionRow], home: str) -> NotFound:
    by_name = {row.name or row.id: row for row in sorted(rows, key=_preference)}
    close = [by_name[name] for name in near(ref, by_name)]
    told = {"told": f"Close: {_listed(close, home)}."} if close else {}
    return NotFound(f'no session "{ref}"', hint="dshctl ls", data={"close": _labels(close), **told})


def _labels(rows: Iterable[SessionRow]) -> list[str]:
    return [row.name or row.id for row in rows]


def _listed(rows: Sequence[SessionRow], home: str, most: int = 4) -> str:
    shown = ", ".join(f"{row.name or row.id} ({tilde(row.dir, home)})" for row in rows[:most])
    return shown + (f" and {len(rows) - most} more" if len(rows) > most else "")


def tilde(path: str, home: str) -> str:
    """The path as a person writes it: ``~`` for their home."""
    if home and home != "/" and (path == home or path.startswith(home.rstrip("/") + "/")):
        return "~" + path[len(home.rstrip("/")) :]
    return path
