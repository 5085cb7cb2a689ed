"""From a path the model wrote to an open descriptor that is what it claims to be. Blocking: for threads.

A path is resolved through every link first and judged as what it resolves to (`policy.decide`); then it is
opened without following a link at its end, and the *descriptor* is asked where it really is. A link that
was put in between, or a directory that was swapped, shows there. Writing goes through a verified
descriptor of the parent directory, so the rename lands in that directory and no other.

What this can't see: a hard link to a hidden file that somebody made outside of the sandbox.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import attrs

from dshd.tools.places import git_protected
from dshd.tools.policy import Subject, Verdict, decide, is_hidden
from dshd.tools.tool import ToolContext, ToolFailure, clean

LONGEST, LONGEST_NAME = 4095, 255  # bytes of a path, and of a part of it, that Linux takes
MOST_NAMES = 5000  # of a directory, looked at for a near word

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Refused(ToolFailure):
    code = "DENIED"


@attrs.frozen(slots=True)
class Target:
    """A path as the model wrote it, made absolute (``named``) and resolved (``path``)."""

    named: Path
    path: Path
    dir: Path


def resolve(raw: str, ctx: ToolContext) -> Target:
    """Where a path leads. Never fails for what does not exist; `ToolFailure` for what can't be a path."""
    if not raw or "\0" in raw:
        raise ToolFailure(
            "the path is empty" if not raw else "a path can't hold a NUL byte", code="INVALID_ARGS"
        )
    if raw.startswith("~/") and ctx.home is not None:
        raw = f"{ctx.home}{raw[1:]}"
    named = os.path.join(ctx.dir, raw)
    if _too_long(named):
        raise ToolFailure(TROUBLE[errno.ENAMETOOLONG], code="ENAMETOOLONG")
    return Target(
        Path(os.path.normpath(named)), Path(os.path.realpath(named)), Path(os.path.realpath(ctx.dir))
    )


def _too_long(path: str) -> bool:
    """Whether no file can have it: said before directories have been made for it."""
    data = path.encode("utf-8", "surrogatepass")
    return len(data) > LONGEST or any(len(name) > LONGEST_NAME for name in data.split(b"/"))


def subject(tool: str, target: Target, ctx: ToolContext) -> Subject:
    """What the policy decides on for a tool that works on this path."""
    return Subject(tool=tool, dir=target.dir, home=ctx.home, path=target.path, named=target.named)


def check(tool: str, target: Target, ctx: ToolContext) -> None:
    """Raise `Refused` unless the policy allows ``tool`` to work on the target."""
    verdict = decide(subject(tool, target, ctx), ctx)
    if verdict.action != "allow":
        raise Refused(verdict.sentence)
    if _same_as_hidden(target.path, ctx):
        raise Refused(Verdict("deny", f"{target.path} is hidden from tools").sentence)


def _same_as_hidden(path: Path, ctx: ToolContext) -> bool:
    """The same place under another name: a bind mount, or a file system that ignores case."""
    hidden = {identity for place in ctx.hidden if (identity := _identity(place))}
    if not hidden:
        return False
    open_to_tools = {_identity(place) for place in (ctx.spill_dir, *ctx.readable)}
    for place in (path, *path.parents):
        found = _identity(place)
        if found in open_to_tools and found is not None:
            return False
        if found in hidden:
            return True
    return False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def open_file(target: Target, ctx: ToolContext) -> Iterator[int]:
    """A descriptor of a regular file that may be read; closed at the end."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    fd = _open(target, flags, ctx)
    try:
        actual = _whereabouts(fd) or target.path
        if is_hidden(actual, ctx) or _same_as_hidden(actual, ctx) or _is_process(fd, actual):
            raise Refused(f"denied: {target.named} is hidden from tools")
        _only_regular(fd, target, ctx)
        yield fd
    finally:
        os.close(fd)


def _is_process(fd: int, path: Path) -> bool:
    """Whether it is in a /proc that is mounted elsewhere."""
    proc = _identity(Path("/proc"))
    return proc is not None and os.fstat(fd).st_dev == proc[0] and path.parts[1] != "proc"


def _only_regular(fd: int, target: Target, ctx: ToolContext) -> None:
    kind = stat.S_IFMT(os.fstat(fd).st_mode)
    if kind == stat.S_IFDIR:
        raise ToolFailure(f"{target.named} is a directory. {_listing(target.path, ctx)}", code="NOT_A_FILE")
    if kind != stat.S_IFREG:
        raise ToolFailure(f"{target.named} is {KINDS.get(kind, 'not a file')}, not a file", code="NOT_A_FILE")


def _open(target: Target, flags: int, ctx: ToolContext) -> int:
    try:
        return os.open(target.path, flags)
    except FileNotFoundError:
        raise missing(target, ctx) from None
    except OSError as error:
        raise trouble(error, target) from None


TROUBLE = {
    errno.EACCES: "permission denied on {path}",
    errno.EPERM: "permission denied on {path}",
    errno.ELOOP: "{path} is a link that leads nowhere, or was just changed",
    errno.ENOTDIR: "{path}: a part of the path is a file, not a directory",
    errno.ENAMETOOLONG: "the path is too long",
    errno.ENXIO: "{path} is a socket or an unconnected pipe, not a file",
    errno.EISDIR: "{path} is a directory",
    errno.ENOSPC: "no space on the disk; {path} is as it was",
    errno.EDQUOT: "the disk quota is used up; {path} is as it was",
    errno.EROFS: "{path} is on a read-only file system",
}


def trouble(error: OSError, target: Target) -> ToolFailure:
    """What the system said, as a sentence with the path in it."""
    sentence = TROUBLE.get(error.errno or 0, "{path}: " + (error.strerror or "failed"))
    return ToolFailure(
        sentence.format(path=target.named), code=errno.errorcode.get(error.errno or 0, "FAILED")
    )


def _whereabouts(fd: int) -> Path | None:
    """Where an open descriptor really is; None when the system doesn't tell."""
    try:
        return Path(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        return None


# -- writing --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_parent(tool: str, target: Target, ctx: ToolContext, *, make: bool = True) -> Iterator[int]:
    """A descriptor of the target's directory that is where it was judged to be; ``make`` it if missing."""
    check(tool, target, ctx)
    _check_git(target, ctx)
    parent = target.path.parent
    if not os.path.isdir(target.dir):
        raise ToolFailure(f"the session's directory is gone: {target.dir}", code="NOT_FOUND")
    if make:
        _make_directories(parent, target)
    fd = _open(
        attrs.evolve(target, path=parent), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, ctx
    )
    try:
        actual = _whereabouts(fd)
        if actual is not None and actual != parent:
            check(tool, Target(target.named, actual / target.path.name, target.dir), ctx)
        yield fd
    finally:
        os.close(fd)


def _make_directories(path: Path, target: Target) -> None:
    """``mkdir -p``, with the permission of the nearest existing directory instead of the daemon's umask."""
    missing = []
    while not os.path.isdir(path) and path != path.parent:
        missing.append(path)
        path = path.parent
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode) & 0o777 | 0o700
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory)
                os.chmod(directory, mode)
    except OSError as error:
        raise trouble(error, target) from None


def _check_git(target: Target, ctx: ToolContext) -> None:
    """A git directory can have any name (bare, or apart from its work tree): look for one above."""
    if ctx.mode == "full":
        return
    for above in target.path.parents:
        rest = target.path.relative_to(above).parts
        if git_protected(rest) and _is_git_dir(above):
            raise Refused(
                f"denied: {target.named} is never writable in mode {ctx.mode}: git runs what stands there"
            )


def _is_git_dir(path: Path) -> bool:
    return all(os.path.exists(path / part) for part in ("HEAD", "objects", "refs"))


# -- near names -----------------------------------------------------------------------------------------


def missing(target: Target, ctx: ToolContext) -> ToolFailure:
    """No such file: say how far the path exists, and what has a name like it there."""
    path = target.path
    while not os.path.isdir(path.parent) and path != path.parent:
        path = path.parent
    what = f"no such file: {target.named}"
    if path != target.path:
        what += f" ({path.parent} has no {path.name})"
    near = (
        []
        if is_hidden(path.parent, ctx)
        else difflib.get_close_matches(path.name, _names(path.parent), 3, 0.5)
    )
    return ToolFailure(clean(what + (f". Near: {', '.join(near)}" if near else "")), code="NOT_FOUND")


def _listing(path: Path, ctx: ToolContext) -> str:
    names = [] if is_hidden(path, ctx) else sorted(_names(path))
    more = f" and {len(names) - 40} more" if names[40:] else ""
    return clean(f"It holds: {', '.join(names[:40]) or 'nothing'}{more}")


def _names(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry, _ in zip(entries, range(MOST_NAMES), strict=False)]
    except OSError:
        return []
