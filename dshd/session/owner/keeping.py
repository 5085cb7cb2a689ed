"""Checkpoints of a loaded session: when they are written, and what leaves memory by them.

One is written when the session rests (`keep` with ``rests``), and while it works whenever its log has
grown by a sixteenth. It is never in anybody's way: the state is looked at in one step, when all of it
is durable, and everything else happens in a reader's thread. If it fails, that is logged, and all is as
before.

Afterwards the receipts, keys and turns that it has moved to the archive are let go of; and, if the
session rests, the text of its surface. Both are read again where they are asked for; who can say
beforehand what will be asked `recall`s it, so that nobody waits for a disk in the middle of a decision.
An archive that turns out to be lost is made again from the log (`mend`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import attrs
import trio

from dshd.errors import DshError
from dshd.session.disk import checkpoint
from dshd.session.disk.archive import Archive, Lost, Name
from dshd.session.disk.checkpoint import Kept, Places, Snapshot, Unfit, Written
from dshd.session.disk.freeze import Unfreezable
from dshd.session.disk.ledger import Ledger
from dshd.session.fold.state import State
from dshd.session.owner.loading import Upkeep

log = logging.getLogger(__name__)

PART: Final = 16  # of the log: what it must have grown by, while the session works
Read = Callable[[Callable[[], Any]], Awaitable[Any]]


class Keeper:
    """One session's. ``read`` runs blocking work in a reader's thread; ``refold`` folds the log anew up
    to a seq."""

    def __init__(
        self, kept: Kept, ledger: Ledger, upkeep: Upkeep, read: Read, refold: Callable[[int], State]
    ) -> None:
        self._upkeep = upkeep
        self._kept = kept
        self._ledger = ledger
        self._read = read
        self._refold = refold
        self._one_at_a_time = trio.Lock()

    @property
    def archive(self) -> Archive:
        return self._kept.archive

    @property
    def busy(self) -> bool:
        return self._one_at_a_time.locked()

    async def finish(self) -> None:
        """Wait for what is being written."""
        async with self._one_at_a_time:
            pass

    # --- writing

    def due(self) -> bool:
        """Whether a session that works should have one now."""
        growth = self._growth()
        return growth >= self._upkeep.working and growth * PART >= self._kept.mark.offset and self._can()

    def _growth(self) -> int:
        return self._ledger.writer.synced_size - self._kept.mark.offset

    def _can(self) -> bool:
        """All that is held is durable, and nothing streams (its chunks are read when a log is opened)."""
        state, writer = self._ledger.state, self._ledger.writer
        streams = state.turn is not None and state.turn.chunks_from is not None
        synced = writer.synced == state.seq and writer.size == writer.synced_size
        return synced and not streams and writer.fault is None and not self.busy

    async def keep(self, rests: Callable[[], bool]) -> None:
        """Write a checkpoint if it is worth it, and let go of what it holds; also of the surface's text,
        if nothing runs by then (``rests``)."""
        if self.archive.lost:
            await self.mend()
        if self._growth() < self._upkeep.least or not self._can():
            return
        state, offset = self._ledger.state, self._ledger.writer.synced_size
        surface = state.surface
        snapshot, kept = Snapshot.of(state, offset), self._kept
        async with self._one_at_a_time:
            try:
                written = await self._read(lambda: checkpoint.write(kept, snapshot))
            except (OSError, DshError, Unfit, Unfreezable) as error:
                log.warning("session %s: no checkpoint was written: %s", state.id, error)
                return
            self._adopt(written)
            if self._ledger.state.surface is surface and rests():
                surface.chill(written.places)

    def _adopt(self, written: Written) -> None:
        kept = self._kept
        kept.mark, kept.places = written.mark, written.places
        kept.archive.adopt(written.extent, written.ended)
        if self._ledger.writer.fault is None:
            checkpoint.chill(self._ledger.state, written.ended, kept)

    # --- reading

    async def recall(self, names: Iterable[Name]) -> Callable[[], None]:
        """Have these in memory until what is returned is called: ``("m", id)``, ``("k", key)``.

        Whatever happens meanwhile, no answer is another one than without it.
        """
        archive, asked = self.archive, list(names)
        archive.pin(asked)
        if any(archive.may_have(*name) for name in asked):
            await self._look(archive, asked)
        return lambda: self.archive.drop(asked)

    async def _look(self, archive: Archive, asked: list[Name]) -> None:
        extent = archive.extent
        try:
            archive.warm(await self._read(lambda: archive.look(asked)), extent)
        except Lost as lost:
            log.warning("session %s: %s", self._ledger.state.id, lost.message)
            await self.mend()

    async def surface(self) -> None:
        """Have the surface's text in memory. Raises `DshError` if the log can't be read."""
        rows = self._ledger.state.surface
        cold = rows.cold
        if isinstance(cold, Places):
            entries = await self._read(cold.load)
            if rows.cold is cold:
                rows.warm(entries)

    async def mend(self) -> None:
        """The archive is lost: take what was in it from the log, and begin another one."""
        async with self._one_at_a_time:
            lost = self.archive
            if not lost.lost:
                return
            seq = self._kept.mark.seq
            old = await self._read(lambda: self._refold(seq))
            self._kept = attrs.evolve(Kept.nothing(self._kept.disk, self._kept.log), archive=lost.anew())
            state = self._ledger.state
            for name in ("receipts", "keys", "turns"):
                getattr(state, name).refill(getattr(old, name).hot())
