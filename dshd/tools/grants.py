"""What a person has allowed, as asked: this very thing, in this very place, and nothing like it. Sans-IO.

A rule is written in globs by somebody who means a kind of thing. An answer is given to one call, so what is
kept of it is that call's own words: the whole command line and the directory it runs in, the file that a path
resolved to, the host, or (for a tool that has none of these) all arguments. A grant answers a rule's *ask*
and nothing else: what a rule denies, a mode, or a place, stays denied.

A call that is allowed once is held to the same: if the path it names leads elsewhere by the time it runs, it
is not what was asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen(slots=True, kw_only=True)
class Subject:
    """What a call is about. ``path`` is resolved, ``named`` the same as the model wrote it (absolute),
    ``dir`` the session's directory, resolved if ``path`` is given; ``home`` is what ``~`` in a rule stands
    for; ``arguments``: of a call that is about none of these, as canonical JSON."""

    tool: str
    dir: Path
    home: Path | None = None
    path: Path | None = None
    named: Path | None = None
    command: str | None = None
    host: str | None = None
    arguments: str | None = None


@attrs.frozen(slots=True, kw_only=True)
class Grant:
    """One thing that is allowed; all that is given must be the same. ``dir`` goes with a command."""

    tool: str
    dir: str | None = None
    command: str | None = None
    path: str | None = None
    host: str | None = None
    arguments: str | None = None

    def covers(self, subject: Subject) -> bool:
        return self == grant_of(subject)

    def to_json(self) -> dict[str, str]:
        """What is given of it."""
        return attrs.asdict(self, filter=lambda _, value: value is not None)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Grant:
        """Raises `TypeError`, `ValueError` for anything else than `to_json` gives."""
        if not all(isinstance(value, str) for value in data.values()):
            raise ValueError("a grant holds texts")
        return cls(**data)


def grant_of(subject: Subject) -> Grant:
    """The grant for exactly this."""
    return Grant(
        tool=subject.tool,
        dir=str(subject.dir) if subject.command is not None else None,
        command=subject.command,
        path=None if subject.path is None else str(subject.path),
        host=subject.host.casefold() if subject.host else None,
        arguments=subject.arguments,
    )


def covered(subject: Subject, grants: Iterable[Grant]) -> bool:
    return any(grant.covers(subject) for grant in grants)


def canonical(args: Mapping[str, Any]) -> str:
    """Arguments as one text, whatever order they came in."""
    return json.dumps(args, sort_keys=True, ensure_ascii=False)
