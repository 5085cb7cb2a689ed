"""What histories have reached, and what they have not: ``python -m tests.sim --coverage``.

Counts are made while histories are played (`Past.count`), each under a group and a name: ``done: send``. Here
stands what there must be of each group; what is missing says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from dshd.session.fold.events import KNOWN_TYPES
from tests.sim.plan import KINDS, SURVIVORS, WEATHER

# Nothing in the core makes these yet, or what makes them is not played.
NOT_PLAYED = frozenset(
    type for type in KNOWN_TYPES
    if type.startswith(
        ("approval/forgotten", "job/", "subagent/", "schedule/", "log/")
    )
)  # fmt: skip

EXPECTED: Mapping[str, frozenset[str]] = {
    "done": frozenset(KINDS) - {"rest"},
    "weather": frozenset(WEATHER) | {"spool at the start", "full at the start", "fault at the start"},
    "death": frozenset({"kill", "stop", *(f"power cut, {name}" for name in SURVIVORS)}),
    "died before": frozenset(
        f"{call} {file}"
        for calls, file in (
            ("write fdatasync ftruncate", "the log"),
            ("create write fsync rename", "a session being made"),
            ("create fsync", "a torn tail"),
            ("create fsync unlink", "an active mark"),
            ("create write fsync rename", "a checkpoint"),
            ("create fsync rename", "an attachment"),
            ("create write fsync rename unlink", "the spool"),
            ("create fsync rename", "the note of a fault"),
            ("create fsync rename", "the log's copy"),
            ("create allocate unlink", "the reserve"),
            ("create fsync rename", "the index"),
            ("unlink rmdir", "a session being removed"),
        )
        for call in calls.split()
    ),
    "failed": frozenset({"fdatasync", "fsync", "write", "create", "rename", "no room", "short write"}),
    "compact": frozenset({"done", "nothing", "failed", "aborted"}),
    "compaction": frozenset(
        f"{cause}, {end}"
        for cause in ("asked", "threshold", "overflow")
        for end in ("summed up", "cut short", "failed", "aborted", "interrupted", "interrupted, recovery")
    ),
    "in a log": KNOWN_TYPES - NOT_PLAYED,
}


def file_kind(path: str) -> str:
    """What a path of the disk is, in words."""
    for mark, kind in _FILES:
        if mark in path:
            return kind
    return "a directory"


_FILES = (
    ("/.new-", "a session being made"),
    ("/.trash-", "a session being removed"),
    ("/attachments", "an attachment"),
    ("/spool", "the spool"),
    ("log.torn", "a torn tail"),
    ("log.faulted", "the note of a fault"),
    (".log.jsonl.new", "the log's copy"),
    ("log.jsonl", "the log"),
    ("/checkpoint", "a checkpoint"),
    ("/.checkpoint", "a checkpoint"),
    ("/ended", "a checkpoint"),
    ("/.ended", "a checkpoint"),
    ("/view.json", "the view"),
    ("/.view.json", "the view"),
    ("/active", "an active mark"),
    ("/reserve", "the reserve"),
    ("/views.jsonl", "the index"),
    ("/.views.jsonl", "the index"),
)


def told(counts: Mapping[str, int]) -> str:
    """The table, group by group; what was never reached stands first in each."""
    lines = []
    for group, wanted in EXPECTED.items():
        found = {name.partition(": ")[2]: n for name, n in counts.items() if name.startswith(f"{group}: ")}
        missing = sorted(wanted - found.keys())
        lines.append(f"{group}: {len(found)}" + (f", and never {'; '.join(missing)}" if missing else ""))
        lines += [f"{n:10}  {name}" for name, n in sorted(found.items())]
    return "\n".join(lines)


def missing(counts: Mapping[str, int]) -> list[str]:
    """What was never reached."""
    wanted = [f"{group}: {name}" for group, names in EXPECTED.items() for name in sorted(names)]
    return [name for name in wanted if not counts.get(name)]
