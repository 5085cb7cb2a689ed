"""The disk: the one module that knows about write, sync, truncate, rename and directories.

What may be believed, and what follows from it:

- ``write`` puts bytes into the page cache and may take fewer than it was given. `write_all` goes on
  until all are taken; a short write is no error, the one after it may be.
- Nothing is durable before ``fdatasync`` (data and size) has returned without error. POSIX says
  little about the state after an error; Linux reports a failed writeback *once*, marks the pages
  clean, lets the next sync succeed and goes on showing the lost bytes from its cache. So the first
  failure is final for that inode (`dshd.log.writer` sees to it), and no retry lives here.
- A name is durable when its *directory* was synced after the change. ``rename`` replaces
  atomically, but which of the two files a crash leaves is open until then, and a file that was not
  synced before its rename may come out empty. Hence the one order: write, sync, rename, sync the
  directory (`Disk.write_atomic`).
- A directory is deleted by renaming it first, so that half of it never looks like all of it.

`Disk` holds that discipline and asks `Calls` for the system calls: `RealDisk` has the kernel's,
`dshd.log.memory.MemoryDisk` its own, with faults and crashes. Everything here blocks; the async
side runs it in threads. Errors are the kernel's own (`OSError`); rooms above make sentences of
them with `explained`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from dshd import plural
from dshd.errors import DshError, NoSpace, NotFound

FILE_MODE = 0o600
DIR_MODE = 0o700
PIECE = 1024 * 1024  # bytes read at once
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# What file systems without hard links answer.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})

_CREATE = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REPLACE = os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Stat(NamedTuple):
    """What is asked about a file. ``inode`` is (device, inode); ``size`` in bytes. What is neither a file
    nor a directory nor a link is ``is_strange``: a pipe, a socket, a device."""

    inode: tuple[int, int]
    size: int
    links: int
    is_dir: bool
    is_link: bool = False
    is_strange: bool = False


class Changed(Exception):
    """Somebody else touched an open log; the text says how."""


class Calls(Protocol):
    """The system calls that `Disk` is built from. Each raises `OSError` as the kernel would."""

    def open(self, path: str, flags: int, mode: int = ...) -> int: ...
    def close(self, fd: int) -> None: ...
    def write(self, fd: int, data: memoryview) -> int: ...
    def pread(self, fd: int, count: int, offset: int) -> bytes: ...
    def pwrite(self, fd: int, data: bytes, offset: int) -> int: ...
    def fdatasync(self, fd: int) -> None: ...
    def fsync(self, fd: int) -> None: ...
    def ftruncate(self, fd: int, size: int) -> None: ...
    def allocate(self, fd: int, size: int) -> None: ...
    def fstat(self, fd: int) -> Stat: ...
    def lstat(self, path: str) -> Stat: ...
    def rename(self, source: str, target: str) -> None: ...
    def link(self, source: str, target: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def mkdir(self, path: str, mode: int) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def listdir(self, path: str) -> list[str]: ...


class OsCalls:
    """The kernel's."""

    def open(self, path: str, flags: int, mode: int = FILE_MODE) -> int:
        return os.open(path, flags, mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        return os.pread(fd, count, offset)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def allocate(self, fd: int, size: int) -> None:
        os.posix_fallocate(fd, 0, size)

    def fstat(self, fd: int) -> Stat:
        return _stat(os.fstat(fd))

    def lstat(self, path: str) -> Stat:
        return _stat(os.lstat(path))

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(path, mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)


def _stat(result: os.stat_result) -> Stat:
    is_dir, is_link = stat.S_ISDIR(result.st_mode), stat.S_ISLNK(result.st_mode)
    strange = not (is_dir or is_link or stat.S_ISREG(result.st_mode))
    inode = (result.st_dev, result.st_ino)
    return Stat(inode, result.st_size, result.st_nlink, is_dir, is_link, strange)


def write_all(calls: Calls, fd: int, data: bytes | memoryview) -> Iterator[int]:
    """Write everything, however many calls it takes; yields what each took, so the caller can count."""
    rest = memoryview(data)
    while rest:
        taken = calls.write(fd, rest)
        if taken == 0:  # not POSIX for a regular file; going on would be a busy loop
            raise OSError(errno.EIO, "write took nothing")
        yield taken
        rest = rest[taken:]


class LogFile:
    """An open log: appended to at its end, synced, cut; and watched for changes by others.

    ``size`` is what we wrote plus what was there when it was opened; `check` compares. Not safe for
    two threads at once: `dshd.log.writer` sees to that.
    """

    def __init__(self, disk: Disk, path: Path, fd: int) -> None:
        self._calls = disk.calls
        self._fd = fd
        self._opened = self._calls.fstat(fd)
        self.disk = disk
        self.path = path
        self.size = self._opened.size

    @property
    def inode(self) -> tuple[int, int]:
        return self._opened.inode

    def check(self) -> None:
        """Raises `Changed` unless path, inode, link count and size are as we left them."""
        now = self._calls.fstat(self._fd)
        try:
            named = self._calls.lstat(str(self.path))
        except FileNotFoundError:
            raise Changed(f"{self.path.name} was removed") from None
        if named.inode != self.inode:
            raise Changed(f"{self.path.name} was replaced by another file")
        if now.links != self._opened.links:
            raise Changed(f"{self.path.name} has {now.links} links, not {self._opened.links}")
        if now.size != self.size:
            raise Changed(f"{self.path.name} has {plural.count(now.size, 'byte')}, not {self.size}")

    def append(self, data: bytes) -> None:
        """Write all of ``data`` at the end. After an error ``size`` includes what was taken."""
        for taken in write_all(self._calls, self._fd, data):
            self.size += taken

    def sync(self) -> None:
        """Durability: when it returns, all that was appended or cut is on disk."""
        self._calls.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        """Cut the file back to ``size`` bytes; never makes it longer. Not durable before `sync`."""
        if self._calls.fstat(self._fd).size > size:
            self._calls.ftruncate(self._fd, size)
        self.size = min(self.size, size)

    def write_again(self, start: int, end: int) -> None:
        """Write what the page cache shows from ``start`` to ``end`` where it stands, so that the next `sync`
        is about it, whatever became of an earlier one."""
        if start >= end:
            return
        # Linux appends whatever is written to a descriptor that appends, also at an offset.
        fd = self._calls.open(str(self.path), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if self._calls.fstat(fd).inode != self.inode:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self.path))
            for piece in self.pieces(start, end):
                while piece:
                    taken = self._calls.pwrite(fd, piece, start)
                    start, piece = start + taken, piece[taken:]
        finally:
            self._calls.close(fd)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """What this very file holds from ``start`` to ``end``, whatever has its name now."""
        return ReadFile(self._calls, self._fd).pieces(start, end)

    def close(self) -> None:
        """Close it; may be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._calls.close(fd)


class ReadFile:
    """A file open for reading. Use it in a ``with``."""

    def __init__(self, calls: Calls, fd: int) -> None:
        self._calls = calls
        self._fd = fd

    def __enter__(self) -> ReadFile:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._calls.close(self._fd)

    @property
    def size(self) -> int:
        return self._calls.fstat(self._fd).size

    @property
    def inode(self) -> tuple[int, int]:
        return self._calls.fstat(self._fd).inode

    def read(self, offset: int, count: int) -> bytes:
        """Up to ``count`` bytes from ``offset``; fewer only at the end of the file."""
        pieces = []
        while count > 0 and (piece := self._calls.pread(self._fd, count, offset)):
            pieces.append(piece)
            offset += len(piece)
            count -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from ``start`` to ``end``, at most `PIECE` at a time."""
        while start < end and (piece := self.read(start, min(PIECE, end - start))):
            yield piece
            start += len(piece)


class Disk:
    """Files and directories with the sync discipline of this module's docstring.

    ``inline``: the calls return at once and need no thread (the memory disk); whoever would go
    through a thread awaits `linger` instead, which no cancel reaches and which takes as long as ``pause``.
    """

    inline = False
    linger: Callable[[], Awaitable[None]]
    pause: Callable[[], Awaitable[None]] | None

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    # -- reading

    def exists(self, path: Path) -> bool:
        """Whether something has this name. An unreadable parent is an error, not a no."""
        try:
            self.calls.lstat(str(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def stat(self, path: Path) -> Stat:
        return self.calls.lstat(str(path))

    def listdir(self, path: Path) -> list[str]:
        """Names in the directory, sorted."""
        return sorted(self.calls.listdir(str(path)))

    def open_read(self, path: Path) -> ReadFile:
        """Raises `OSError` (ENXIO) for what is no file; a pipe that nobody writes to keeps nobody waiting."""
        fd = self.calls.open(str(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if self.calls.fstat(fd).is_strange:
            self.calls.close(fd)
            raise OSError(errno.ENXIO, "it is no file", str(path))
        return ReadFile(self.calls, fd)

    def pieces(self, path: Path, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The same as `read_bytes`, 1 MiB at a time."""
        with self.open_read(path) as file:
            yield from file.pieces(start, file.size if end is None else end)

    def read_bytes(self, path: Path, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from ``start`` to ``end`` (exclusive; to the end of the file without one)."""
        with self.open_read(path) as file:
            return file.read(start, (file.size if end is None else end) - start)

    # -- logs

    def open_log(self, path: Path, *, create: bool = False) -> LogFile:
        """Open a log to append to it. Durability: a created one is not, nor is its name."""
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | (_CREATE if create else 0)
        return LogFile(self, path, self.calls.open(str(path), flags, FILE_MODE))

    # -- whole files

    def write_synced(self, path: Path, data: bytes | Iterable[bytes], *, mode: int = FILE_MODE) -> int:
        """Write a file anew, in place; returns its size.

        Durability: on return its bytes are on disk; its name need not be.
        """
        pieces = [data] if isinstance(data, bytes) else data
        fd = self.calls.open(str(path), os.O_WRONLY | _REPLACE, mode)
        try:
            written = sum(sum(write_all(self.calls, fd, piece)) for piece in pieces)
            if written != self.calls.fstat(fd).size:
                raise OSError(errno.EIO, "the file has another size than was written", str(path))
            self.calls.fsync(fd)
        finally:
            self.calls.close(fd)
        return written

    def write_atomic(self, path: Path, data: bytes | Iterable[bytes], *, mode: int = FILE_MODE) -> None:
        """Replace a file: afterwards, and after a crash at any point, it is the old or the new one.

        Durability: on return the new one is on disk. On an error the old one is, untouched. One
        writer per path: the temporary name is fixed, so that a crash leaves one at most.
        """
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            self.write_synced(temporary, data, mode=mode)
            self.rename_synced(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                self.calls.unlink(str(temporary))
            raise

    def touch_synced(self, path: Path) -> None:
        """Make an empty file, if there is none. Durability: on return its name, all there is of it, is on
        disk; on an error it is not there, so that who tries again makes it again."""
        fd = self.calls.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        self.calls.close(fd)
        with self._or_gone(path, self.unlink):
            self.sync_dir(path.parent)

    # -- names

    def sync_dir(self, path: Path) -> None:
        """Durability: all names made, changed or removed in this directory are on disk."""
        fd = self.calls.open(str(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.calls.fsync(fd)
        finally:
            self.calls.close(fd)

    def create_dir_synced(self, path: Path) -> None:
        """Make a directory (0700) and those above it that are missing; an existing one is fine."""
        if self.exists(path):
            return
        self.create_dir_synced(path.parent)
        with contextlib.suppress(FileExistsError):
            self.calls.mkdir(str(path), DIR_MODE)
        with self._or_gone(path, lambda made: self.calls.rmdir(str(made))):
            self.sync_dir(path.parent)

    @contextlib.contextmanager
    def _or_gone(self, path: Path, remove: Callable[[Path], None]) -> Iterator[None]:
        """A name whose sync has failed is taken back. A sync that failed once may "succeed" the next time
        without having done anything (the kernel has forgotten what was not written), so a name that was found
        there would be believed, and be gone after a power cut."""
        try:
            yield
        except OSError:
            with contextlib.suppress(OSError):
                remove(path)
            raise

    def create_dir(self, path: Path) -> None:
        """Make a directory (0700) that is not there. Durability: none, before the one above it is synced."""
        self.calls.mkdir(str(path), DIR_MODE)

    def rename_synced(self, source: Path, target: Path) -> None:
        """Durability: on return both directories are on disk. Sync the file's bytes first."""
        self.calls.rename(str(source), str(target))
        self.sync_dir(target.parent)
        if source.parent != target.parent:
            self.sync_dir(source.parent)

    def spare_name(self, path: Path) -> Path:
        """``path``, or the first of ``path.2``, ``path.3``, ... that is free: nothing is overwritten."""
        number, free = 1, path
        while self.exists(free):
            number += 1
            free = path.with_name(f"{path.name}.{number}")
        return free

    def keep_synced(self, path: Path, name: str) -> str:
        """Give a file a second name in its directory, so that its bytes outlive a rename over it.

        Returns the name, which is ``name`` or one like it. Durability: on return it is on disk.
        """
        kept = self.spare_name(path.with_name(name))
        try:
            self.calls.link(str(path), str(kept))
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.write_synced(kept, self.pieces(path))
        self.sync_dir(path.parent)
        return kept.name

    def unlink(self, path: Path) -> None:
        """Remove a file, if it is there. Not durable."""
        with contextlib.suppress(FileNotFoundError):
            self.calls.unlink(str(path))

    def unlink_synced(self, path: Path) -> None:
        """Remove a file, if it is there. Durability: on return it is gone for good."""
        self.unlink(path)
        self.sync_dir(path.parent)

    def remove_tree(self, path: Path) -> None:
        """Remove what is at ``path``, with all in it if it is a directory. Not durable.

        Links are removed, never followed, ``path`` itself included: what it leads to is somebody else's.
        """
        if not self.stat(path).is_dir:
            return self.unlink(path)
        for name in self.calls.listdir(str(path)):
            self.remove_tree(path / name)
        self.calls.rmdir(str(path))


class RealDisk(Disk):
    """The disk."""

    def __init__(self) -> None:
        super().__init__(OsCalls())


def new_name(log: Path) -> Path:
    """What a log is called while it is written anew, before it replaces the old one."""
    return log.with_name(f".{log.name}.new")


# -- telling people -------------------------------------------------------------------------------


def explain(error: OSError, what: str, path: Path | str) -> DshError:
    """The sentence for a failed call: ``what`` was tried (``"read"``), on which path, and why not."""
    why = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in FULL:
        return NoSpace(
            f"no space on {_room(Path(path), error.errno)}. Nothing was lost.", outcome="not-written"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return DshError(f"permission denied on {path}.", hint=f"ls -ld {path}")
    if error.errno == errno.ENOENT:
        return NotFound(f"{path} does not exist.")
    return DshError(f"can't {what} {path}: {why}.")


def _room(path: Path, error: int | None) -> str:
    """``/home (0 bytes free)``: the mount and what is short there; the path, where that isn't known."""
    try:
        place = path if path.exists() else path.parent
        left = os.statvfs(place)
        mount = next(above for above in (place, *place.parents) if above.is_mount())
    except (OSError, StopIteration):
        return str(path)
    if error == errno.EDQUOT:
        return f"{mount} (over quota)"
    return (
        f"{mount} (0 files free)" if left.f_favail == 0 < left.f_files else f"{mount} ({_bytes(left)} free)"
    )


def _bytes(left: os.statvfs_result) -> str:
    free = left.f_bavail * left.f_frsize
    return plural.count(free, "byte") if free < 1 << 20 else f"{free >> 20} MiB"


@contextlib.contextmanager
def explained(what: str, path: Path | str) -> Iterator[None]:
    """Turns an `OSError` of the block into the `DshError` that `explain` makes."""
    try:
        yield
    except OSError as error:
        raise explain(error, what, error.filename or path) from error
