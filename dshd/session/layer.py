"""Layers: a scratch copy of a big container that costs only what is written to it.

A batch is decided on a scratch state: the durable one plus what the batch already holds. Copying
every receipt of a long session for each batch would make the thousandth message dearer than the
first, so the scratch's containers are layers over the durable ones. `merge` folds a layer down
in time proportional to what changed; dropping the scratch is dropping the layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Table(Generic[K, V]):
    """A mapping that grows and changes but never forgets a key."""

    __slots__ = ("_base", "_own")

    def __init__(self, base: Table[K, V] | None = None) -> None:
        self._base = base
        self._own: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        found = self._own.get(key)
        return found if found is not None or self._base is None else self._base.get(key)

    def __getitem__(self, key: K) -> V:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: K, value: V) -> None:
        self._own[key] = value

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def items(self) -> Iterator[tuple[K, V]]:
        if self._base is not None:
            yield from ((k, v) for k, v in self._base.items() if k not in self._own)
        yield from self._own.items()

    def layer(self) -> Table[K, V]:
        return Table(self)

    def merge(self) -> Table[K, V]:
        """Fold into the base, which is returned; this layer must not be used afterwards."""
        if self._base is None:
            return self
        self._base._own.update(self._own)
        return self._base


class Rows(Generic[V]):
    """A list that is appended to, and now and then replaced as a whole."""

    __slots__ = ("_base", "_base_len", "_own")

    def __init__(self, base: Rows[V] | None = None) -> None:
        self._base = base
        self._base_len = len(base) if base is not None else 0
        self._own: list[V] = []

    def __len__(self) -> int:
        return self._base_len + len(self._own)

    def __iter__(self) -> Iterator[V]:
        if self._base is not None:
            yield from self._base
        yield from self._own

    def __getitem__(self, index: int) -> V:
        index = index + len(self) if index < 0 else index
        if self._base is not None and index < self._base_len:
            return self._base[index]
        return self._own[index - self._base_len]

    def append(self, value: V) -> None:
        self._own.append(value)

    def replace_all(self, values: list[V]) -> None:
        self._base, self._base_len, self._own = None, 0, values

    def layer(self) -> Rows[V]:
        return Rows(self)

    def merge_into(self, base: Rows[V]) -> Rows[V]:
        """Fold into ``base``, the rows this layer was made from; returns what to keep."""
        if self._base is not base:
            return self
        base._own.extend(self._own)
        return base
