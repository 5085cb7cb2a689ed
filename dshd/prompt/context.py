"""The runtime context: what is true outside of the conversation, as one message. Sans-IO.

It is sent only when it differs from the last one that was sent, so everything here is coarse on purpose:
the date and the part of the day instead of the time, whether the tree has changes instead of how many. A
clock with minutes would add a message to every step; a model that needs the time can ask a tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import attrs

PREAMBLE = "Runtime context, as of now (it replaces any earlier one; it is a note, not a request):"

PARTS_OF_DAY = ((5, "night"), (12, "morning"), (18, "afternoon"), (23, "evening"), (24, "night"))

MODES = {
    "read-only": "read-only, nothing can be written",
    "workspace": "workspace, files are written in the directory only",
    "full": "full, no sandbox",
}


@attrs.frozen(slots=True)
class GitInfo:
    """The work tree of a directory. ``changes``: tracked files differ from the index; None = not known."""

    root: Path
    branch: str | None  # None: detached
    commit: str | None  # short; None: no commit yet
    changes: bool | None = None
    doing: str | None = None  # "rebase", "merge", ...


def snapshot(
    dir: Path,
    now: datetime,
    git: GitInfo | None = None,
    jobs: Sequence[str] = (),
    *,
    mode: str | None = None,
    net: bool = False,
) -> str:
    """The context's text. ``now`` is local and aware of its zone; ``jobs`` one line each; ``mode`` and
    ``net`` are the session's permissions, as it has them now."""
    lines = [f"- date: {_date(now)}", f"- directory: {dir}"]
    if git is not None:
        lines.append(f"- git: {_git(git, dir)}")
    if mode is not None:
        lines.append(
            f"- permission: {MODES.get(mode, mode)}; network {'on' if net or mode == 'full' else 'off'}"
        )
    lines += [f"- running job: {job}" for job in jobs]
    return "\n".join([PREAMBLE, *lines])


def _date(now: datetime) -> str:
    zone = now.strftime("%z")
    part = next(name for end, name in PARTS_OF_DAY if now.hour < end)
    return f"{WEEKDAYS[now.weekday()]} {now.date().isoformat()}, {part}" + (f" (UTC{zone})" if zone else "")


# strftime("%A") would follow the daemon's locale
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _git(git: GitInfo, dir: Path) -> str:
    where = f"branch {git.branch}" if git.branch else f"detached at {git.commit or 'nothing'}"
    state = {True: ", unstaged changes", False: ", no unstaged changes", None: ""}[git.changes]
    root = "" if git.root == dir else f", work tree {git.root}"
    doing = f", in the middle of a {git.doing}" if git.doing else ""
    return f"{where}{state}{doing}{root}"
