"""The system calls, and the faults that strike them."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

import attrs

from dshd.log.disk import DIR_MODE, Stat
from dshd.log.memory.nodes import Directory, File, Node, walk

_DEVICE = 1
_READING = frozenset({"open", "pread", "lstat", "listdir"})


@attrs.define(slots=True)
class Fault:
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
    node: Node
    path: str
    append: bool
    position: int = 0


class Calls:
    """The system calls, over the tree. Paths are absolute; there are no links to follow."""

    def __init__(self) -> None:
        self.root = Directory(1)
        self.inodes = 1
        self.open_files: dict[int, _Open] = {}
        self.next_fd = 3
        self.faults: list[Fault] = []
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
        return self._strike(call, path) if self.faults else None

    def _strike(self, call: str, path: str) -> int | None:
        struck = [fault for fault in self.faults if fault.strikes(call, path)]
        self.faults = [fault for fault in self.faults if fault.times]
        if struck:
            self.struck[call if struck[0].take is None else "short write"] += 1
        if struck and struck[0].take is None:
            self._struck(call, path, struck[0].error)
        return struck[0].take if struck else None

    def _struck(self, call: str, path: str, error: int) -> None:
        if call in ("fdatasync", "fsync"):
            node = self.find(path)
            if isinstance(node, File):
                node.dirty = []
        raise _error(error, path)

    def used(self) -> int:
        return sum(len(file.cache) for file in self._files())

    def _files(self) -> list[File]:
        found = {id(node): node for node in walk(self.root) if isinstance(node, File)}
        found.update({id(o.node): o.node for o in self.open_files.values() if isinstance(o.node, File)})
        return list(found.values())

    def _room(self, path: str, wanted: int) -> int:
        free = wanted if self.capacity is None else min(wanted, self.capacity - self.used())
        if free <= 0 < wanted:
            self.struck["no room"] += 1
            raise _error(errno.ENOSPC, path)
        return free

    # -- the tree

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.names.get(name)
        return node

    def _get(self, path: str) -> Node:
        node = self.find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        *above, name = _parts(path)
        parent = self._get("/" + "/".join(above))
        if not isinstance(parent, Directory):
            raise _error(errno.ENOTDIR, path)
        return parent, name

    def _new_inode(self, path: str) -> int:
        if self.max_files is not None and len(list(walk(self.root))) > self.max_files:
            raise _error(errno.ENOSPC, path)
        self.inodes += 1
        return self.inodes

    # -- the calls

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        creates = flags & os.O_CREAT and self.find(path) is None
        self._enter("create" if creates else "open", path)
        node = self.find(path)
        if node is None:
            node = self._create(path, flags)
        elif flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        if isinstance(node, Directory) and flags & (os.O_WRONLY | os.O_RDWR):
            raise _error(errno.EISDIR, path)
        if isinstance(node, File) and flags & os.O_TRUNC:
            node.truncate(0)
        self.next_fd += 1
        self.open_files[self.next_fd] = _Open(node, path, bool(flags & os.O_APPEND))
        return self.next_fd

    def _create(self, path: str, flags: int) -> File:
        if not flags & os.O_CREAT:
            raise _error(errno.ENOENT, path)
        parent, name = self._parent(path)
        parent.names[name] = file = File(self._new_inode(path))
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
        if isinstance(replaced, Directory) and replaced.names:
            raise _error(errno.ENOTEMPTY, target)
        if replaced is node:
            return
        if isinstance(replaced, File):
            replaced.links -= 1
        del old_parent.names[old_name]
        new_parent.names[new_name] = node

    def link(self, source: str, target: str) -> None:
        self._enter("link", source)
        node = self._get(source)
        parent, name = self._parent(target)
        if name in parent.names:
            raise _error(errno.EEXIST, target)
        if not isinstance(node, File):
            raise _error(errno.EPERM, source)
        parent.names[name] = node
        node.links += 1

    def unlink(self, path: str) -> None:
        self._enter("unlink", path)
        node = self._get(path)
        if not isinstance(node, File):
            raise _error(errno.EISDIR, path)
        parent, name = self._parent(path)
        del parent.names[name]
        node.links -= 1

    def mkdir(self, path: str, mode: int = DIR_MODE) -> None:
        self._enter("mkdir", path)
        if self.find(path) is not None:
            raise _error(errno.EEXIST, path)
        parent, name = self._parent(path)
        parent.names[name] = Directory(self._new_inode(path))

    def rmdir(self, path: str) -> None:
        self._enter("rmdir", path)
        node = self._get(path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        if node.names:
            raise _error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        del parent.names[name]

    def listdir(self, path: str) -> list[str]:
        self._enter("listdir", path)
        node = self._get(path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return list(node.names)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


@lru_cache(1024)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _file(opened: _Open) -> File:
    if isinstance(opened.node, Directory):
        raise _error(errno.EISDIR, opened.path)
    return opened.node


def _stat(node: Node) -> Stat:
    if isinstance(node, Directory):
        return Stat((_DEVICE, node.inode), 0, 2, True)
    return Stat((_DEVICE, node.inode), len(node.cache), node.links, False)
