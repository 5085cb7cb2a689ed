"""Files and directories in memory: as programs see them, and as they are durable."""

from __future__ import annotations

from collections.abc import Iterator

import attrs


@attrs.define(slots=True, eq=False)
class File:
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
        resize(self.durable, len(self.cache))
        for start, end in self.dirty:
            self.durable[start:end] = self.cache[start:end]
        self.dirty = []


@attrs.define(slots=True, eq=False)
class Directory:
    inode: int
    names: dict[str, File | Directory] = attrs.field(factory=dict)
    durable: dict[str, File | Directory] = attrs.field(factory=dict)

    def sync(self) -> None:
        self.durable = dict(self.names)


Node = File | Directory


def resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def walk(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, Directory):
        for child in node.names.values():
            yield from walk(child)


def _copied_file(file: File) -> File:
    return File(file.inode, file.cache[:], file.durable[:], file.dirty[:], file.links)


def copied_tree(tree: Directory) -> Directory:
    made: dict[int, Node] = {}  # {inode: its copy}: a file may have several names

    def copied(node: Node) -> Node:
        if node.inode not in made:
            made[node.inode] = directory(node) if isinstance(node, Directory) else _copied_file(node)
        return made[node.inode]

    def directory(node: Directory) -> Directory:
        named = (node.names, node.durable)
        return Directory(node.inode, *({name: copied(n) for name, n in names.items()} for names in named))

    return directory(tree)
