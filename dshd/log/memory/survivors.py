"""What a power cut leaves of what was not synced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Protocol

import attrs

from dshd.log.memory.nodes import Directory, File, Node, resize

BLOCK = 4096


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
        resize(content, len(self.cache))
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


class Cut:
    """Builds the tree after the power cut; a file with two names is decided once, and so is a rename: what
    moved in a directory has its old name or its new one, never both or neither."""

    def __init__(self, survivor: Survivor) -> None:
        self._survivor = survivor
        self._files: dict[int, File] = {}  # {inode: file after the cut}

    def directory(self, node: Directory, path: str) -> Directory:
        names: dict[str, Node] = {}
        for name, is_new in self._decided(node, path).items():
            child = (node.names if is_new else node.durable).get(name)
            if child is not None:
                names[name] = self._node(child, f"{path}/{name}")
        return Directory(node.inode, names, dict(names))

    def _decided(self, node: Directory, path: str) -> dict[str, bool]:
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

    def _node(self, node: Node, path: str) -> Node:
        if isinstance(node, Directory):
            return self.directory(node, path)
        file = self._files.get(node.inode)
        if file is None:
            content = bytearray(self._content(node, path))
            file = self._files[node.inode] = File(node.inode, content, bytearray(content), links=0)
        file.links += 1
        return file

    def _content(self, file: File, path: str) -> bytes:
        durable, cache = bytes(file.durable), bytes(file.cache)
        if durable == cache:
            return durable
        return self._survivor.content(Unsynced(path, durable, cache, tuple(file.dirty)))
