"""A disk in memory that fails and loses power when told to: for tests, ours and other people's.

It keeps two states of everything: what programs see (the page cache) and what is *durable*, and
moves the first to the second only where a real disk would have to:

- bytes by ``fdatasync`` or ``fsync`` of their file, names by ``fsync`` of their directory;
- a sync that fails forgets which bytes were dirty, as Linux does: the next one succeeds, and the
  bytes are seen until the power goes, and were never written.

`MemoryDisk.crash` is the power cut: a new disk that holds what was durable, and of the rest what a
`Survivor` lets through, down to zeros in the middle (unsynced 4 KiB blocks that were allocated and
never written) and names that were renamed but not synced. The old disk stays as it is, so one
instant can be crashed in many ways. Without a random survivor all of it is deterministic.

Faults are scripted: `fail` (the nth call of a kind, on some path, with an errno), `short_write`,
`capacity` (bytes; beyond it writes fall short, then fail with ENOSPC) and `max_files` (inodes).
``counts`` counts calls by name, ``struck`` those that were made to fail; ``trace`` lists them if it is
set to a list. ``before`` is called before each call that changes something and may raise, to crash at
that very point.

Single-threaded, and never blocks: `dshd.log.writer.hop` runs its calls in place and awaits `pause`
before, one checkpoint unless a test replaces it (by an event's ``wait``: a disk that stalls).
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Protocol

import attrs
import trio.lowlevel

from dshd.log.disk import DIR_MODE, Disk, Stat

BLOCK = 4096
_DEVICE = 1


@attrs.define(slots=True, eq=False)
class _File:
    inode: int
    cache: bytearray = attrs.field(factory=bytearray)
    durable: bytearray = attrs.field(factory=bytearray)
    dirty: list[tuple[int, int]] = attrs.field(factory=list)  # ranges of cache, not in durable yet
    links: int = 1

    def write(self, offset: int, data: bytes) -> None:
        if offset > len(self.cache):
            self.cache.extend(bytes(offset - len(self.cache)))
        self.cache[offset : offset + len(data)] = data
        self.dirty.append((offset, offset + len(data)))

    def truncate(self, size: int) -> None:
        del self.cache[size:]
        self.dirty = [(start, min(end, size)) for start, end in self.dirty if start < size]

    def sync(self) -> None:
        _resize(self.durable, len(self.cache))
        for start, end in self.dirty:
            self.durable[start:end] = self.cache[start:end]
        self.dirty = []


@attrs.define(slots=True, eq=False)
class _Directory:
    inode: int
    names: dict[str, _File | _Directory] = attrs.field(factory=dict)
    durable: dict[str, _File | _Directory] = attrs.field(factory=dict)

    def sync(self) -> None:
        self.durable = dict(self.names)


_Node = _File | _Directory


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


# -- what a crash leaves ----------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Unsynced:
    """A file with bytes that were not synced. ``dirty``: the ranges of ``cache`` that were not."""

    path: str
    durable: bytes
    cache: bytes
    dirty: tuple[tuple[int, int], ...]

    def with_ranges(self, ranges: Iterable[tuple[int, int]]) -> bytes:
        """What is on disk if just these ranges of the cache, and its size, had been written."""
        content = bytearray(self.durable)
        _resize(content, len(self.cache))
        for start, end in ranges:
            content[start:end] = self.cache[start:end]
        return bytes(content)


class Survivor(Protocol):
    """Decides what is on disk after the power cut, of what need not be."""

    def content(self, file: Unsynced) -> bytes: ...

    def name(self, path: str) -> bool:
        """Whether an unsynced change of this name (made, replaced or removed) is there."""
        ...


class Nothing:
    """Only what was synced survives."""

    def content(self, file: Unsynced) -> bytes:
        return file.durable

    def name(self, path: str) -> bool:
        return False


class Everything:
    """The kernel had just written all of it back, but for what a failed sync had lost before.

    (After a mere ``kill -9`` go on with the same disk: even that is still seen.)
    """

    def content(self, file: Unsynced) -> bytes:
        return file.with_ranges(file.dirty)

    def name(self, path: str) -> bool:
        return True


@attrs.frozen(slots=True)
class Prefix(Everything):
    """Of the unsynced bytes at the end of each file the first ``count`` survive."""

    count: int

    def content(self, file: Unsynced) -> bytes:
        return super().content(file)[: len(file.durable) + self.count]


@attrs.frozen(slots=True)
class Seeded:
    """Anything that a power cut may leave, chosen by ``random``."""

    random: Random

    def content(self, file: Unsynced) -> bytes:
        choose = self.random.choice((self._old, self._cut, self._holes))
        return choose(file)

    def name(self, path: str) -> bool:
        return self.random.random() < 0.5

    def _old(self, file: Unsynced) -> bytes:
        return file.durable

    def _cut(self, file: Unsynced) -> bytes:
        size = min(len(file.durable), len(file.cache))  # bytes that are written again never cost the old ones
        shortest = max(size, min((start for start, _end in file.dirty), default=size))
        return file.with_ranges(file.dirty)[: self.random.randint(shortest, len(file.cache))]

    def _holes(self, file: Unsynced) -> bytes:
        """Some of the blocks were not written: zeros, or what stood there before."""
        return file.with_ranges(block for block in _blocks(file.dirty) if self.random.random() < 0.5)


def _blocks(ranges: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    for start, end in ranges:
        while start < end:
            stop = min(end, (start // BLOCK + 1) * BLOCK)
            yield start, stop
            start = stop


# -- faults -----------------------------------------------------------------------------------------


@attrs.define(slots=True)
class _Fault:
    """The next ``times`` calls, after ``skip`` others, on paths that end in ``path``."""

    call: str
    path: str
    skip: int
    times: int
    error: int = 0
    take: int | None = None  # instead of failing, write only so many bytes

    def strikes(self, call: str, path: str) -> bool:
        if self.call != call or not path.endswith(self.path) or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


@attrs.define(slots=True)
class _Open:
    node: _Node
    path: str
    append: bool
    position: int = 0


class _MemoryCalls:
    """The system calls, over the tree. Paths are absolute; there are no links to follow."""

    def __init__(self) -> None:
        self.root = _Directory(1)
        self.inodes = 1
        self.open_files: dict[int, _Open] = {}
        self.next_fd = 3
        self.faults: list[_Fault] = []
        self.capacity: int | None = None
        self.max_files: int | None = None
        self.counts: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        self.trace: list[tuple[str, str]] | None = None
        self.before: Callable[[str, str], None] | None = None

    # -- what every call goes through

    def _enter(self, call: str, path: str) -> int | None:
        """Count the call and let a fault strike; returns how much a short write takes, or None."""
        self.counts[call] += 1
        if self.trace is not None:
            self.trace.append((call, path))
        if self.before is not None and call not in _READING:
            self.before(call, path)
        struck = [fault for fault in self.faults if fault.strikes(call, path)]
        self.faults = [fault for fault in self.faults if fault.times]
        if struck:
            self.struck[call if struck[0].take is None else "short write"] += 1
        if struck and struck[0].take is None:
            self._struck(call, path, struck[0].error)
        return struck[0].take if struck else None

    def _struck(self, call: str, path: str, error: int) -> None:
        if call in ("fdatasync", "fsync"):
            node = self._find(path)
            if isinstance(node, _File):
                node.dirty = []
        raise _error(error, path)

    def used(self) -> int:
        return sum(len(file.cache) for file in self._files())

    def _files(self) -> list[_File]:
        found = {id(node): node for node in _walk(self.root) if isinstance(node, _File)}
        found.update({id(o.node): o.node for o in self.open_files.values() if isinstance(o.node, _File)})
        return list(found.values())

    def _room(self, path: str, wanted: int) -> int:
        free = wanted if self.capacity is None else min(wanted, self.capacity - self.used())
        if free <= 0 < wanted:
            self.struck["no room"] += 1
            raise _error(errno.ENOSPC, path)
        return free

    # -- the tree

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self.root
        for name in _parts(path):
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(name)
        return node

    def _get(self, path: str) -> _Node:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *above, name = _parts(path)
        parent = self._get("/" + "/".join(above))
        if not isinstance(parent, _Directory):
            raise _error(errno.ENOTDIR, path)
        return parent, name

    def _new_inode(self, path: str) -> int:
        if self.max_files is not None and len(list(_walk(self.root))) > self.max_files:
            raise _error(errno.ENOSPC, path)
        self.inodes += 1
        return self.inodes

    # -- the calls

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._enter("create" if flags & os.O_CREAT and self._find(path) is None else "open", path)
        node = self._find(path)
        if node is None:
            node = self._create(path, flags)
        elif flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        if isinstance(node, _Directory) and flags & (os.O_WRONLY | os.O_RDWR):
            raise _error(errno.EISDIR, path)
        if isinstance(node, _File) and flags & os.O_TRUNC:
            node.truncate(0)
        self.next_fd += 1
        self.open_files[self.next_fd] = _Open(node, path, bool(flags & os.O_APPEND))
        return self.next_fd

    def _create(self, path: str, flags: int) -> _File:
        if not flags & os.O_CREAT:
            raise _error(errno.ENOENT, path)
        parent, name = self._parent(path)
        parent.names[name] = file = _File(self._new_inode(path))
        return file

    def close(self, fd: int) -> None:
        del self.open_files[fd]

    def write(self, fd: int, data: memoryview) -> int:
        opened = self.open_files[fd]
        take = self._enter("write", opened.path)
        file = _file(opened)
        count = self._room(opened.path, len(data) if take is None else min(take, len(data)))
        offset = len(file.cache) if opened.append else opened.position
        file.write(offset, bytes(data[:count]))
        opened.position = offset + count
        return count

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        opened = self.open_files[fd]
        self._enter("pread", opened.path)
        return bytes(_file(opened).cache[offset : offset + count])

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        opened = self.open_files[fd]
        take = self._enter("pwrite", opened.path)
        file = _file(opened)
        count = len(data) if take is None else min(take, len(data))
        count = min(count, len(file.cache) - offset) or self._room(opened.path, count)
        file.write(offset, data[:count])
        return count

    def fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def _sync(self, call: str, fd: int) -> None:
        opened = self.open_files[fd]
        self._enter(call, opened.path)
        opened.node.sync()

    def ftruncate(self, fd: int, size: int) -> None:
        opened = self.open_files[fd]
        self._enter("ftruncate", opened.path)
        _file(opened).truncate(size)

    def allocate(self, fd: int, size: int) -> None:
        opened = self.open_files[fd]
        self._enter("allocate", opened.path)
        file = _file(opened)
        missing = max(0, size - len(file.cache))
        if self._room(opened.path, missing) < missing:
            raise _error(errno.ENOSPC, opened.path)
        file.write(len(file.cache), bytes(missing))

    def fstat(self, fd: int) -> Stat:
        return _stat(self.open_files[fd].node)

    def lstat(self, path: str) -> Stat:
        self._enter("lstat", path)
        return _stat(self._get(path))

    def rename(self, source: str, target: str) -> None:
        self._enter("rename", source)
        old_parent, old_name = self._parent(source)
        new_parent, new_name = self._parent(target)
        node = self._get(source)
        replaced = new_parent.names.get(new_name)
        if isinstance(replaced, _Directory) and replaced.names:
            raise _error(errno.ENOTEMPTY, target)
        if replaced is node:
            return
        if isinstance(replaced, _File):
            replaced.links -= 1
        del old_parent.names[old_name]
        new_parent.names[new_name] = node

    def link(self, source: str, target: str) -> None:
        self._enter("link", source)
        node = self._get(source)
        parent, name = self._parent(target)
        if name in parent.names:
            raise _error(errno.EEXIST, target)
        if not isinstance(node, _File):
            raise _error(errno.EPERM, source)
        parent.names[name] = node
        node.links += 1

    def unlink(self, path: str) -> None:
        self._enter("unlink", path)
        node = self._get(path)
        if not isinstance(node, _File):
            raise _error(errno.EISDIR, path)
        parent, name = self._parent(path)
        del parent.names[name]
        node.links -= 1

    def mkdir(self, path: str, mode: int = DIR_MODE) -> None:
        self._enter("mkdir", path)
        if self._find(path) is not None:
            raise _error(errno.EEXIST, path)
        parent, name = self._parent(path)
        parent.names[name] = _Directory(self._new_inode(path))

    def rmdir(self, path: str) -> None:
        self._enter("rmdir", path)
        node = self._get(path)
        if not isinstance(node, _Directory):
            raise _error(errno.ENOTDIR, path)
        if node.names:
            raise _error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        del parent.names[name]

    def listdir(self, path: str) -> list[str]:
        self._enter("listdir", path)
        node = self._get(path)
        if not isinstance(node, _Directory):
            raise _error(errno.ENOTDIR, path)
        return list(node.names)


_READING = frozenset({"open", "pread", "lstat", "listdir"})


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _file(opened: _Open) -> _File:
    if isinstance(opened.node, _Directory):
        raise _error(errno.EISDIR, opened.path)
    return opened.node


def _stat(node: _Node) -> Stat:
    if isinstance(node, _Directory):
        return Stat((_DEVICE, node.inode), 0, 2, True)
    return Stat((_DEVICE, node.inode), len(node.cache), node.links, False)


def _walk(node: _Node) -> Iterator[_Node]:
    yield node
    if isinstance(node, _Directory):
        for child in node.names.values():
            yield from _walk(child)


def _copied_file(file: _File) -> _File:
    return _File(file.inode, file.cache[:], file.durable[:], file.dirty[:], file.links)


def _copied_tree(tree: _Directory) -> _Directory:
    made: dict[int, _Node] = {}  # {inode: its copy}: a file may have several names

    def copied(node: _Node) -> _Node:
        if node.inode not in made:
            made[node.inode] = directory(node) if isinstance(node, _Directory) else _copied_file(node)
        return made[node.inode]

    def directory(node: _Directory) -> _Directory:
        named = (node.names, node.durable)
        return _Directory(node.inode, *({name: copied(n) for name, n in names.items()} for names in named))

    return directory(tree)


# -- the disk ---------------------------------------------------------------------------------------


class MemoryDisk(Disk):
    """See the module's docstring. A new one holds nothing but ``/``."""

    inline = True
    calls: _MemoryCalls

    def __init__(self) -> None:
        super().__init__(_MemoryCalls())
        self.pause: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    # -- watching

    @property
    def counts(self) -> Counter[str]:
        """How often each call was made, by its name (``write``, ``fdatasync``, ``create``, ...)."""
        return self.calls.counts

    @property
    def used(self) -> int:
        """Bytes in all files."""
        return self.calls.used()

    def trace(self) -> list[tuple[str, str]]:
        """Start to list the calls, as (name, path), in the list that is returned."""
        self.calls.trace = []
        return self.calls.trace

    def before(self, hook: Callable[[str, str], None] | None) -> None:
        """Call ``hook(call, path)`` before each call that changes something; it may raise."""
        self.calls.before = hook

    # -- faults

    def fail(self, call: str, error: int, *, path: str = "", skip: int = 0, times: int = 1) -> None:
        """Let ``times`` calls (-1: all) fail with this errno, after ``skip``, where paths end in ``path``."""
        self.calls.faults.append(_Fault(call, path, skip, times, error))

    def short_write(self, take: int, *, path: str = "", skip: int = 0, times: int = 1) -> None:
        """Let writes take only ``take`` bytes, without an error."""
        self.calls.faults.append(_Fault("write", path, skip, times, take=take))

    def heal(self) -> None:
        """No scripted faults, no limits, no hook any more."""
        self.calls.faults = []
        self.calls.before = None
        self.limit()

    def limit(self, *, free: int | None = None, files: int | None = None) -> None:
        """Leave room for ``free`` more bytes, and for ``files`` more files; None: no limit."""
        self.calls.capacity = None if free is None else self.calls.used() + free
        present = len(list(_walk(self.calls.root))) - 1
        self.calls.max_files = None if files is None else present + files

    # -- the power cut

    def crash(self, survivor: Survivor | None = None) -> MemoryDisk:
        """The disk after the power went now (by default only what was synced is left)."""
        after = MemoryDisk()
        after.calls.inodes = self.calls.inodes
        cut = _Cut(survivor or Nothing())
        after.calls.root = cut.directory(self.calls.root, "")
        return after

    def copy(self) -> MemoryDisk:
        """The same disk again, nothing open, no faults: to try several things from one state."""
        other = MemoryDisk()
        other.calls.root = _copied_tree(self.calls.root)
        other.calls.inodes = self.calls.inodes
        return other

    # -- a hand in the files, past all discipline (tests damage logs with it)

    def peek(self, path: Path | str) -> bytes:
        return bytes(self._reach(path).cache)

    def poke(self, path: Path | str, data: bytes) -> None:
        """Put other bytes in a file, durably, as a bad disk or a foreign program would."""
        file = self._reach(path)
        file.cache, file.durable, file.dirty = bytearray(data), bytearray(data), []

    def _reach(self, path: Path | str) -> _File:
        node = self.calls._find(str(path))
        assert isinstance(node, _File), f"no file {path}"
        return node


class _Cut:
    """Builds the tree after the power cut; a file with two names is decided once, and so is a rename: what
    moved in a directory has its old name or its new one, never both or neither."""

    def __init__(self, survivor: Survivor) -> None:
        self._survivor = survivor
        self._files: dict[int, _File] = {}  # {inode: file after the cut}

    def directory(self, node: _Directory, path: str) -> _Directory:
        names: dict[str, _Node] = {}
        for name, is_new in self._decided(node, path).items():
            child = (node.names if is_new else node.durable).get(name)
            if child is not None:
                names[name] = self._node(child, f"{path}/{name}")
        return _Directory(node.inode, names, dict(names))

    def _decided(self, node: _Directory, path: str) -> dict[str, bool]:
        """Of each name, whether it is as programs saw it (else as it was at the last sync)."""
        changed = [name for name in sorted(node.names.keys() | node.durable.keys())
                   if node.names.get(name) is not node.durable.get(name)]  # fmt: skip
        came = {node.names[name].inode: name for name in changed if name in node.names}
        left = {name: came.get(node.durable[name].inode) for name in changed if name in node.durable}
        decided = {name: True for name in sorted(node.names.keys() | node.durable.keys())}
        for name in changed:
            if left.get(name) is None:
                decided[name] = self._survivor.name(f"{path}/{name}")
        for name, now in left.items():
            if now is not None:
                decided[name] = decided[now]
        return decided

    def _node(self, node: _Node, path: str) -> _Node:
        if isinstance(node, _Directory):
            return self.directory(node, path)
        file = self._files.get(node.inode)
        if file is None:
            content = bytearray(self._content(node, path))
            file = self._files[node.inode] = _File(node.inode, content, bytearray(content), links=0)
        file.links += 1
        return file

    def _content(self, file: _File, path: str) -> bytes:
        durable, cache = bytes(file.durable), bytes(file.cache)
        if durable == cache:
            return durable
        return self._survivor.content(Unsynced(path, durable, cache, tuple(file.dirty)))
