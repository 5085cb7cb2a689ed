"""What a session sends grows by a few messages a step: sequences, texts and hashes that grow with it.

Each step's request holds the whole history. Whatever looks at all of it, if only to see that nothing else has
changed, makes the thousandth step dearer than the tenth; so a sequence here knows what it has grown from.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar, overload

T = TypeVar("T")

HASHED_AGAIN: Final = 1 << 14  # bytes at the end of a text that may be others the next time


class Grown(Sequence[T]):
    """An immutable sequence; `plus` is a longer one, a slice a shorter one, and neither copies a thing.

    All that have grown from one another lie in one list, each with its own limits. Only who reaches to the
    list's end goes on in it: for who grows in another way from a shorter one, the list begins anew.
    """

    __slots__ = ("_begin", "_end", "_items")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._begin, self._end = 0, len(self._items)

    @classmethod
    def _within(cls, items: list[T], begin: int, end: int) -> Grown[T]:
        one = cls.__new__(cls)
        one._items, one._begin, one._end = items, begin, end
        return one

    def plus(self, more: Iterable[T]) -> Grown[T]:
        """This and ``more``, which is made out before anything changes."""
        new = list(more)
        if not new:
            return self
        if self._end != len(self._items):
            return Grown([*self, *new])
        self._items += new
        return self._within(self._items, self._begin, len(self._items))

    def begins_like(self, other: Grown[T]) -> bool:
        """Whether one of the two has certainly grown from the other."""
        return other._items is self._items and other._begin == self._begin

    def __len__(self) -> int:
        return self._end - self._begin

    def __iter__(self) -> Iterator[T]:
        return itertools.islice(self._items, self._begin, self._end)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Grown[T]: ...

    def __getitem__(self, index: int | slice) -> T | Grown[T]:
        if isinstance(index, int):
            return self._items[range(self._begin, self._end)[index]]
        part = range(self._begin, self._end)[index]
        if part.step != 1:
            return Grown(self._items[at] for at in part)
        return self._within(self._items, part.start, max(part.start, part.stop))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grown | list | tuple) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Grown({list(self)!r})"


def shared(one: Sequence[T], other: Sequence[T]) -> int:
    """With how many of the same objects both begin; told at once of two that have `Grown` from one."""
    least = min(len(one), len(other))
    if isinstance(one, Grown) and isinstance(other, Grown) and one.begins_like(other):
        return least
    if all(map(operator.is_, one, other)):
        return least
    return next(at for at in range(least) if one[at] is not other[at])


class Hash:
    """The SHA-256 of a text that is, as a rule, the last one with more near its end."""

    def __init__(self) -> None:
        self._before: memoryview = memoryview(b"")  # the beginning that `_hashed` has
        self._hashed = hashlib.sha256()

    def of(self, text: bytes) -> str:
        """In hexadecimal. That the text begins like the last one is seen, not believed: to compare is
        twenty times as fast as to hash."""
        if not text.startswith(self._before):
            self._before, self._hashed = memoryview(b""), hashlib.sha256()
        known, keeps = len(self._before), len(text) - HASHED_AGAIN
        if keeps > known:
            self._hashed.update(memoryview(text)[known:keeps])
            self._before, known = memoryview(text)[:keeps], keeps
        all = self._hashed.copy()
        all.update(memoryview(text)[known:])
        return all.hexdigest()
