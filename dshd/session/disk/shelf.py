"""A session's attachments on disk: there before the message that refers to them is acknowledged.

A send puts its files on the shelf, is decided, and takes its hand off them again. What a refused send
leaves is taken away, unless somebody else's send holds the same file, or a message refers to it. Where
the outcome isn't known, the file stays: one too many does no harm.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

from dshd.errors import DshError

log = logging.getLogger(__name__)
T = TypeVar("T")


class Shelf:
    """``write`` puts files (by hash) on disk, durably; ``remove`` takes some away, best effort;
    ``used`` says whether a message refers to one; ``start`` runs a task."""

    def __init__(
        self,
        write: Callable[[Mapping[str, bytes]], Awaitable[None]],
        remove: Callable[[list[str]], Awaitable[None]],
        used: Callable[[str], bool],
        start: Callable[..., None],
    ) -> None:
        self._write = write
        self._remove = remove
        self._used = used
        self._start = start
        self._held: Counter[str] = Counter()
        self._one_at_a_time = trio.Lock()

    @property
    def busy(self) -> bool:
        return bool(self._held) or self._one_at_a_time.locked()

    async def put(self, files: Mapping[str, bytes]) -> None:
        """Durability: on return all of them are on disk. Raises `NoSpace` and other `DshError`s; then
        none is held."""
        if not files:
            return
        self._held.update(files.keys())
        try:
            async with self._one_at_a_time:
                await self._write(files)
        except BaseException:
            self._let_go(files, unused=True)
            raise

    async def during(self, files: Mapping[str, bytes], decided: Callable[[], Awaitable[dict[str, T]]]
                     ) -> dict[str, T]:  # fmt: skip
        """What ``decided`` answers; files that nobody needs after it are taken away."""
        unused = False
        try:
            receipt = await decided()
            unused = bool(receipt.get("duplicate"))
            return receipt
        except DshError as error:
            unused = error.outcome == "not-written"
            raise
        finally:
            self._let_go(files, unused=unused)

    def _let_go(self, files: Mapping[str, bytes], *, unused: bool) -> None:
        self._held.subtract(files.keys())
        self._held = +self._held
        if unused and files:
            self._start(self._sweep, list(files))

    async def _sweep(self, hashes: list[str]) -> None:
        async with self._one_at_a_time:
            gone = [one for one in hashes if not self._held[one] and not self._used(one)]
            if gone:
                await self._remove(gone)
