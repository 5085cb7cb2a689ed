"""What `glob` and `grep` run in a process of their own: a walk, and a regular expression on each line.

In a process, because an expression like `(a+)+$` can take for ever and holds the interpreter while it
does: the daemon must be able to end it, and go on meanwhile. Standard library only, started with `-I -S`.

It reads one JSON object on stdin (`Job`'s fields) and writes one JSON array a line: `["f", path]` for a
file, `["m", path, line, text]` for a match, and in the end `["end", notes...]`. It stops by itself after
``seconds``, after ``most`` findings or ``bytes`` of output, and says so in the notes.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import stat
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, BinaryIO, TextIO

from dshd.tools.globs import Glob, States, compile_globs, path_matches

VCS = frozenset({".git", ".hg", ".svn"})
NOISE = frozenset((
    "node_modules", "__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".hypothesis", ".direnv", ".gradle", ".terraform", ".next", ".nuxt", ".cargo",
    ".rustup",
))  # fmt: skip
SYSTEM = frozenset({"/proc", "/sys", "/dev"})
SAMPLE = 8192
LINE = 64 * 1024  # bytes of a line that are searched
SHOWN = 400  # characters of a line that are shown
MEMORY = 1 << 30  # bytes of address space


class Stop(Exception):
    """The search ends here; ``str()`` is the note."""


class Job:
    """One search. ``root`` is resolved; ``hidden`` and ``open`` are resolved places."""

    def __init__(self, given: dict[str, Any], out: TextIO) -> None:
        self.root: str = given["root"]
        self.globs: list[Glob] = compile_globs(given["glob"]) if given["glob"] else []
        self.regex = re.compile(given["regex"]) if given["regex"] is not None else None
        self.hidden = set(given["hidden"])
        self.hidden_ids = {found for place in self.hidden if (found := identity(place))}
        self.open = set(given["open"])
        self.rules: list[tuple[bool, str | None]] = given["rules"]
        self.dir: str = given["dir"]
        self.left: int = given["most"]
        self.bytes: int = given["bytes"]
        self.out = out
        self.notes: list[str] = []
        self.skipped: set[str] = set()
        self.binary = self.invalid = self.unreadable = self.denied = 0
        self.proc = device("/proc")

    def put(self, *row: Any) -> None:
        """Write one finding; stops the search when there have been enough."""
        line = json.dumps(row)
        if self.left <= 0 or self.bytes < len(line):
            raise Stop("there are more: narrow the search")
        self.left -= 1
        self.bytes -= len(line)
        self.out.write(line + "\n")
        self.out.flush()


def run(job: Job) -> list[str]:
    """Do it; the notes on what was not looked at."""
    try:
        for path in files(job):
            if not permitted(job, path):
                job.denied += 1
            elif job.regex is None:
                job.put("f", path)
            else:
                search_file(job, path)
    except Stop as stop:
        job.notes.append(str(stop))
    return [*job.notes, *told(job)]


def permitted(job: Job, path: str) -> bool:
    """Whether the rules leave the file to this tool: the last that matches says."""
    verdict = True
    for allows, pattern in job.rules:
        if pattern is None or path_matches(pattern, path, job.dir):
            verdict = allows
    return verdict


def told(job: Job) -> Iterator[str]:
    if job.skipped:
        yield f"not looked into: {', '.join(sorted(job.skipped))} (name it in path to do so)"
    if job.binary:
        yield f"passed over: binary files ({job.binary})"
    if job.denied:
        yield f"passed over: files that a rule keeps from this tool ({job.denied})"
    if job.unreadable:
        yield f"permission denied: {job.unreadable} places"
    if job.invalid:
        yield "some lines are not UTF-8: \ufffd stands for bytes that are not text"


# -- the walk: sorted, no links followed, nothing hidden, no directory that can't hold a match -----------


def files(job: Job) -> Iterator[str]:
    """Paths of the files that match, sorted, a directory's own files before those below it."""
    if not stat.S_ISDIR(os.stat(job.root).st_mode):
        yield job.root
        return
    todo: list[tuple[str, list[States]]] = [(job.root, [glob.start for glob in job.globs])]
    while todo:
        directory, states = todo.pop()
        below = []
        for entry in entries(job, directory):
            after = [glob.advance(was, entry.name) for glob, was in zip(job.globs, states, strict=True)]
            if entry.is_dir(follow_symlinks=False):
                if may_descend(job, entry, after):
                    below.append((entry.path, after))
            elif accepted(job, entry, after):
                yield entry.path
        todo += reversed(below)


def entries(job: Job, directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:  # removed meanwhile
        return []
    except OSError:
        job.unreadable += 1
        return []


def may_descend(job: Job, entry: os.DirEntry[str], states: list[States]) -> bool:
    if job.globs and not any(states):
        return False
    if entry.name in VCS or entry.path in SYSTEM or is_hidden(job, entry):
        return False
    if entry.name in NOISE and not any(glob.names(entry.name) for glob in job.globs):
        job.skipped.add(entry.name)
        return False
    return True


def accepted(job: Job, entry: os.DirEntry[str], states: list[States]) -> bool:
    if job.globs and not any(glob.accepts(was) for glob, was in zip(job.globs, states, strict=True)):
        return False
    return not is_hidden(job, entry) and (job.regex is None or entry.is_file(follow_symlinks=False))


def is_hidden(job: Job, entry: os.DirEntry[str]) -> bool:
    if entry.path in job.open:
        return False
    if entry.path in job.hidden:
        return True
    if not any(inode == entry.inode() for _, inode in job.hidden_ids):
        return False
    return identity(entry.path) in job.hidden_ids


def identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def device(path: str) -> int | None:
    found = identity(path)
    return found[0] if found else None


# -- one file ---------------------------------------------------------------------------------------------


def search_file(job: Job, path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return
    except OSError:
        job.unreadable += 1
        return
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_dev == job.proc:
            return
        if b"\0" in file.peek(SAMPLE)[:SAMPLE]:
            job.binary += 1
            return
        search_lines(job, path, file)


def search_lines(job: Job, path: str, file: BinaryIO) -> None:
    assert job.regex is not None
    for number, line in lines(file):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        found = job.regex.search(text)
        if found:
            job.invalid += "\ufffd" in text and len(line) < LINE and not valid(line)
            job.put("m", path, number, shown(text, found.start()))


def lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Numbered lines. What is longer than LINE is searched in pieces, all with the same number."""
    number = 1
    while piece := file.readline(LINE):
        yield number, piece
        number += piece.endswith(b"\n")


def valid(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def shown(text: str, at: int) -> str:
    """At most SHOWN characters of a line, around the match."""
    if len(text) <= SHOWN:
        return text
    start = max(0, min(at - SHOWN // 4, len(text) - SHOWN))
    end = start + SHOWN
    return f"{'[...]' if start else ''}{text[start:end]}{'[...]' if end < len(text) else ''}"


def main() -> None:
    """The process: stdin, the search, stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    given = json.load(sys.stdin)
    out = sys.stdout
    job = Job(given, out)

    def alarm(_signal: int, _frame: FrameType | None) -> None:
        raise Stop(f"stopped after {given['seconds']} s, not everything was looked at: narrow the search")

    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, given["seconds"])
    notes = run(job)
    signal.setitimer(signal.ITIMER_REAL, 0)
    out.write(json.dumps(["end", *notes]) + "\n")
    out.flush()
