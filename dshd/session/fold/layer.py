"""Layers: a scratch copy of a big container that costs only what is written to it.

A batch is decided on a scratch state: the durable one plus what the batch already holds. Copying
every receipt of a long session for each batch would make the thousandth message dearer than the
first, so the scratch's containers are layers over the durable ones. `merge` folds a layer down
in time proportional to what changed; dropping the scratch is dropping the layer.

Below the lowest layer there may be a *cold* one, on disk: what has not been needed for long is moved
there (`chill`), and read again where somebody asks for it. To those who ask nothing changes but the
time it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
KC = TypeVar("KC", contravariant=True)
VC = TypeVar("VC", covariant=True)


class Cold(Protocol[KC, VC]):
    """A table on disk. Reading may block, and raises a `DshError` when the disk has lost it."""

    def get(self, key: KC) -> VC | None: ...

    def items(self) -> Iterator[tuple[object, VC]]: ...


class ColdRows(Protocol[VC]):
    """Rows on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> VC: ...


SHORT: Final = 256  # items: so many are copied in no time, and a tuple of them is smaller


def grown(items: Sequence[V], more: Iterable[V]) -> Sequence[V]:
    """``items`` and ``more`` behind them; without copying the first, however many they are."""
    if isinstance(items, Line):
        return items.plus(more)
    return (*items, *more) if len(items) < SHORT else Line(list(items)).plus(more)


class Line(Sequence[V]):
    """Items that never change, as a tuple's, and cheap to go on from.

    A longer one shares the list of the one it came from, which looks no further than its own length. If
    that has been gone on from already (by a scratch that was dropped), it is copied after all.
    """

    __slots__ = ("_items", "_len")

    def __init__(self, items: list[V]) -> None:
        self._items = items
        self._len = len(items)

    def plus(self, more: Iterable[V]) -> Line[V]:
        whole = len(self._items) == self._len
        items = self._items if whole else self._items[: self._len]
        items.extend(more)
        return Line(items)

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[V]:
        return islice(self._items, self._len)

    @overload
    def __getitem__(self, index: int) -> V: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[V]: ...

    def __getitem__(self, index: Any) -> Any:
        at = range(self._len)[index]
        return self._items[at] if isinstance(at, int) else tuple(self._items[i] for i in at)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Line | tuple) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))


class Table(Generic[K, V]):
    """A mapping that grows and changes but never forgets a key."""

    __slots__ = ("_base", "_own", "cold")

    def __init__(self, base: Table[K, V] | None = None) -> None:
        self._base = base
        self._own: dict[K, V] = {}
        self.cold: Cold[K, V] | None = None

    @classmethod
    def of(cls, own: dict[K, V]) -> Table[K, V]:
        table: Table[K, V] = cls()
        table._own = own
        return table

    def get(self, key: K) -> V | None:
        found = self._own.get(key)
        if found is not None:
            return found
        if self._base is not None:
            return self._base.get(key)
        return self.cold.get(key) if self.cold is not None else None

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
        if self.cold is not None:
            yield from ((k, v) for k, v in self.cold.items() if k not in self._own)  # type: ignore[misc]
        yield from self._own.items()

    def hot(self) -> Mapping[K, V]:
        """What a table without a base holds in memory."""
        return self._own

    def copy(self) -> Table[K, V]:
        """What it holds in memory, for somebody who reads it while this one goes on."""
        return Table.of(dict(self._own))

    def chill(self, gone: Mapping[K, V], cold: Cold[K, V] | None) -> None:
        """``cold`` has all of ``gone`` now: keep in memory only what has changed since."""
        self.cold = cold
        for key, value in gone.items():
            if self._own.get(key) is value:
                del self._own[key]

    def refill(self, all: Mapping[K, V]) -> None:
        """The cold layer is lost; ``all`` has what was in it, and nothing newer than what we hold."""
        self.cold = None
        self._own = {**all, **self._own}

    def layer(self) -> Table[K, V]:
        return Table(self)

    def merge(self) -> Table[K, V]:
        """Fold into the base, which is returned; this layer must not be used afterwards."""
        if self._base is None:
            return self
        self._base._own.update(self._own)
        return self._base


class Rows(Generic[V]):
    """A list that is appended to, and now and then replaced as a whole; ``replacements`` says how often
    that was, so that who remembers how it began knows whether it still does."""

    __slots__ = ("_base", "_base_len", "_own", "cold", "replacements")

    def __init__(self, base: Rows[V] | None = None, *, cold: ColdRows[V] | None = None) -> None:
        self._base = base
        self._base_len = len(base) if base is not None else len(cold) if cold is not None else 0
        self.replacements: int = base.replacements if base is not None else 0
        self._own: list[V] = []
        self.cold = cold

    def __len__(self) -> int:
        return self._base_len + len(self._own)

    def __iter__(self) -> Iterator[V]:
        if self._base is not None:
            yield from self._base
        elif self.cold is not None:
            yield from (self.cold[i] for i in range(self._base_len))
        yield from self._own

    @classmethod
    def of(cls, own: list[V]) -> Rows[V]:
        rows: Rows[V] = cls()
        rows._own = own
        return rows

    def hot(self) -> list[V]:
        """The rows behind the cold ones, of rows without a base."""
        return self._own

    def chill(self, cold: ColdRows[V]) -> None:
        """``cold`` has the first rows now, at least those that were cold before."""
        del self._own[: len(cold) - self._base_len]
        self.cold, self._base_len = cold, len(cold)

    def warm(self, rows: list[V]) -> None:
        """Hold the cold rows in memory again: these."""
        self.cold, self._base_len, self._own = None, 0, rows + self._own

    def __getitem__(self, index: int) -> V:
        index = index + len(self) if index < 0 else index
        if self.cold is not None and index < self._base_len:
            return self.cold[index]
        if self._base is not None and index < self._base_len:
            return self._base[index]
        return self._own[index - self._base_len]

    def append(self, value: V) -> None:
        self._own.append(value)

    def replace_all(self, values: list[V]) -> None:
        self._base, self._base_len, self._own, self.cold = None, 0, values, None
        self.replacements += 1

    def layer(self) -> Rows[V]:
        return Rows(self)

    def merge_into(self, base: Rows[V]) -> Rows[V]:
        """Fold into ``base``, the rows this layer was made from; returns what to keep."""
        if self._base is not base:
            return self
        base._own.extend(self._own)
        return base
