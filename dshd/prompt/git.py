"""What a work tree looks like, from its files alone. Blocking, but bounded.

The git program is not run: a repository's own settings can make it start a file system monitor, a filter
or a hook, and the daemon works outside of every sandbox. So the branch is read from ``HEAD``, and whether
tracked files have changed is found by comparing the index with the disk, as ``git status`` does at first:
size and time, and the content only where the time alone differs.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from dshd.prompt.context import GitInfo
from dshd.small import read_line, read_small

MOST_INDEX = 4 << 20  # bytes
MOST_ENTRIES = 5000
MOST_HASHED = 1 << 20  # bytes of one file
SECONDS = 0.5

DOING = (
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_LOG", "bisect"),
)


def git_root(directory: Path) -> Path | None:
    """The nearest directory at or above that holds a ``.git`` (a directory, or a file that names one)."""
    return next((above for above in (directory, *directory.parents) if os.path.lexists(above / ".git")), None)


def git_info(directory: Path) -> GitInfo | None:
    """Branch, operation under way and changes of the work tree around ``directory``; None outside of one."""
    root = git_root(directory)
    data = _git_dir(root / ".git") if root else None
    head = read_line(data / "HEAD") if data else None
    if root is None or data is None or not head:
        return None
    branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else None
    return GitInfo(
        root=root,
        branch=branch,
        commit=None if head.startswith("ref:") else head[:10],
        changes=_changes(root, data),
        doing=next((what for mark, what in DOING if os.path.exists(data / mark)), None),
    )


def _git_dir(path: Path) -> Path | None:
    if os.path.isdir(path):
        return path
    line = read_line(path)
    if line is None or not line.startswith("gitdir:"):
        return None
    return path.parent / line.removeprefix("gitdir:").strip()


# -- the index ------------------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Entry:
    """A tracked file as the index has it: ``size``, ``mtime`` (s, ns) modulo 2^32, ``sha1`` of the blob."""

    name: bytes
    mode: int
    size: int
    mtime: tuple[int, int]
    sha1: bytes
    stage: int
    ignored: bool  # assume-unchanged, skip-worktree or intent-to-add


class _Unknown(Exception):
    """The index is too large, or of a kind that is not read here."""


def _changes(root: Path, data: Path) -> bool | None:
    """Whether tracked files differ from the index; None when that can't be said cheaply."""
    index = read_small(data / "index", MOST_INDEX + 1)
    if index is None:
        return False
    until = time.monotonic() + SECONDS
    try:
        return any(_changed(os.fsencode(root), entry, until) for entry in entries(index))
    except (_Unknown, struct.error, IndexError, ValueError):
        return None


def entries(index: bytes) -> Iterator[Entry]:
    """The entries of an index of version 2, 3 or 4."""
    magic, version, count = struct.unpack_from(">4sII", index)
    if magic != b"DIRC" or version not in (2, 3, 4) or count > MOST_ENTRIES or len(index) > MOST_INDEX:
        raise _Unknown
    at, name = 12, b""
    for _ in range(count):
        entry, at = _entry(index, at, version, name)
        name = entry.name
        yield entry


FIXED = struct.Struct(">10I20sH")  # ctime, mtime, dev, ino, mode, uid, gid, size, id, flags


def _entry(index: bytes, start: int, version: int, last: bytes) -> tuple[Entry, int]:
    _, _, seconds, nanoseconds, _, _, mode, _, _, size, sha1, flags = FIXED.unpack_from(index, start)
    at = start + FIXED.size
    more = 0
    if flags & 0x4000:
        (more,) = struct.unpack_from(">H", index, at)
        at += 2
    if version == 4:
        strip, at = _varint(index, at)
        last = last[: len(last) - strip]
    else:
        last = b""
    end = index.index(b"\0", at)
    name = last + index[at:end]
    after = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
    ignored = bool(flags & 0x8000 or more & 0x6000)
    return Entry(name, mode, size, (seconds, nanoseconds), sha1, flags >> 12 & 3, ignored), after


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """git's offset encoding: each further byte adds one before shifting."""
    byte = data[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1


def _changed(root: bytes, entry: Entry, until: float) -> bool:
    if time.monotonic() > until:
        raise _Unknown
    kind = stat.S_IFMT(entry.mode)
    if entry.stage:
        return True
    if entry.ignored or kind not in (stat.S_IFREG, stat.S_IFLNK):
        return False
    path = os.path.join(root, entry.name)
    try:
        found = os.lstat(path)
    except OSError:
        return True
    if stat.S_IFMT(found.st_mode) != kind:
        return True
    if kind == stat.S_IFREG and (found.st_mode ^ entry.mode) & 0o100:
        return True
    mtime = (found.st_mtime_ns // 10**9 & 0xFFFFFFFF, found.st_mtime_ns % 10**9)
    if found.st_size & 0xFFFFFFFF == entry.size and mtime == entry.mtime:
        return False
    return _content_differs(path, found, entry)


def _content_differs(path: bytes, found: os.stat_result, entry: Entry) -> bool:
    # an entry of size 0 may be one that git marked as "look at the content"
    if entry.size not in (0, found.st_size & 0xFFFFFFFF):
        return True
    if found.st_size > MOST_HASHED:
        raise _Unknown
    data = os.readlink(path) if stat.S_ISLNK(found.st_mode) else read_small(os.fsdecode(path), MOST_HASHED)
    blob = b"blob %d\0" % len(data or b"") + (data or b"")
    return hashlib.sha1(blob, usedforsecurity=False).digest() != entry.sha1
