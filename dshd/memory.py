"""Memory: what a person wants every later turn to know, said once with ``dshctl remember``.

One file for each project, one for all (``STATE/memory/``, 0600 in 0700): a note a line, ``- `` before it, and
what is more than a line indented behind it. A person may edit or delete them at any time; no tool can reach
them, for the state is hidden from all of them. A *project* is the git work tree around a directory, else
the directory itself; its file is named after it and a hash of its path, which is the file's first line.

The model gets them at the end of its system prompt (`prompt.assembly`), read anew for each turn: those for
all projects first, then the project's. Files that grow too large lose their oldest notes there, not on disk.

Light on purpose: standard library only. Blocking.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Sequence
from typing import Final

from dshd.errors import Full, NoSpace, Unavailable

EVERYWHERE: Final = "all.md"
MOST: Final = 64 * 1024  # bytes of a file
MOST_NOTE: Final = 4 * 1024  # bytes of one note


def project_of(directory: str) -> str:
    """The top of the work tree that holds this directory, else itself."""
    place = directory
    while not os.path.lexists(os.path.join(place, ".git")):
        above = os.path.dirname(place)
        if above == place:
            return directory
        place = above
    return place


def file_of(state: str, project: str | None) -> str:
    """Where the notes are; ``project`` None: those for all."""
    if project is None:
        return os.path.join(state, "memory", EVERYWHERE)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", os.path.basename(project))[:40] or "root"
    hashed = hashlib.sha256(os.fsencode(project)).hexdigest()[:12]
    return os.path.join(state, "memory", f"{name}-{hashed}.md")


def remember(state: str, project: str | None, text: str) -> str:
    """Add a note; the file it is in. Raises `Full` (a note or a file that is too large), `NoSpace` and
    `Unavailable` (it can't be written); then nothing was added.

    Durability: the note is on disk on return.
    """
    path = file_of(state, project)
    note = _note(text)
    if len(note) > MOST_NOTE:
        raise Full(f"not remembered: a note has at most {MOST_NOTE // 1024} KiB.", outcome="not-written")
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        _append(path, b"" if project is None else b"# " + os.fsencode(project) + b"\n", note)
        _sync_directory(os.path.dirname(path))
    except OSError as error:
        kind = NoSpace if error.errno in _NO_ROOM else Unavailable
        raise kind(f"not remembered: {path}: {error.strerror}.", outcome="not-written") from None
    return path


_NO_ROOM: Final = (28, 122)  # ENOSPC, EDQUOT


def _note(text: str) -> bytes:
    lines = [line.rstrip() for line in text.strip().split("\n")]
    return ("- " + "\n  ".join(lines) + "\n").encode("utf-8", "replace")


def _append(path: str, heading: bytes, note: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        if size + len(note) > MOST:
            raise Full(f"not remembered: {path} holds {size} bytes, and {MOST} are the most.",
                       hint=f"$EDITOR {path}", outcome="not-written")  # fmt: skip
        _write(descriptor, size, (heading if size == 0 else _line_end(descriptor, size)) + note)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line_end(descriptor: int, size: int) -> bytes:
    """What an editor left out at the end."""
    return b"" if os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"


def _write(descriptor: int, size: int, data: bytes) -> None:
    try:
        if os.write(descriptor, data) != len(data):
            raise OSError(28, "No space left on device")
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _sync_directory(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def notes(state: str, project: str | None) -> list[str]:
    """Each note, oldest first."""
    found: list[str] = []
    for line in _lines(file_of(state, project)):
        if line.startswith("#") and not found:
            continue
        if line.startswith("  ") and found:
            found[-1] += "\n" + line[2:]
        elif line.strip():
            found.append(line.removeprefix("- "))
    return found


def _lines(path: str) -> Sequence[str]:
    try:
        with open(path, "rb") as file:
            return file.read(MOST).decode("utf-8", "replace").split("\n")
    except OSError:
        return ()


def told(state: str, directory: str) -> str:
    """The text of the prompt's section, "" if nothing is remembered."""
    project = project_of(directory)
    parts = [
        ("Remembered for all projects:", notes(state, None)),
        (f"Remembered for {project}:", notes(state, project)),
    ]
    return "\n\n".join("\n".join([title, *map(_bullet, found)]) for title, found in parts if found)


def _bullet(note: str) -> str:
    return "- " + note.replace("\n", "\n  ")
