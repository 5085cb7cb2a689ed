"""Where a batch is decided: a layer over the durable state, and the lines it will write.

A *proposal* is a function that looks at a scratch's ``state``, emits events, and returns an
answer. It runs synchronously, sees everything that earlier proposals of the same batch emitted,
and refuses by raising `DshError` before its first `emit`. When the batch is durable the layer is
merged; when it isn't, the scratch is dropped and nothing happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import attrs

from dshd.errors import Invalid
from dshd.log import codec
from dshd.log.codec import Event
from dshd.session.fold import folding
from dshd.session.fold.events import ON_SURFACE, is_soon
from dshd.session.fold.state import State


class Scratch:
    """``now`` is Unix ms; ``synced`` is the seq of the last durable line, written on the batch's
    first line. ``urgent``: the batch must be synced before anybody is told."""

    def __init__(self, base: State, now: int, synced: int) -> None:
        self._base = base
        self._synced = synced
        self.now = now
        self.state = base.layer()
        self.events: list[Event] = []
        self.lines: list[bytes] = []
        self.urgent = False

    def emit(
        self, type: str, data: dict[str, Any], *, surface: Any = None, sources: Sequence[int] | None = None
    ) -> Event:
        """Append one event: encoded, folded into the scratch, and later written with the batch.

        Lone surrogates become U+FFFD, wherever they came from. Raises `Invalid` for other data that
        isn't lossless JSON; then nothing was appended.
        """
        if surface is None and type in ON_SURFACE:
            surface = "append"
        event = Event(
            seq=self.state.seq + 1,
            time=self.now,
            type=type,
            data=data,
            surface=surface,
            sources=tuple(sources) if sources is not None else None,
            synced=self._synced if not self.events and self._synced >= 0 else None,
        )
        event, line = _encoded(event)
        folding.apply(self.state, event)
        self.events.append(event)
        self.urgent = self.urgent or not is_soon(type)
        self.lines.append(line)
        return event

    def merge(self) -> State:
        """The durable state after the batch. The scratch and its base are used up."""
        return self.state.merged_into(self._base)

    def take_id(self) -> str:
        """The id of the next message; it is taken when an event brings it into the log."""
        return f"{self.state.id}.{self.state.next_message}"


def _encoded(event: Event) -> tuple[Event, bytes]:
    try:
        return event, codec.encode(event)
    except Invalid:
        event = attrs.evolve(event, data=cast(dict[str, Any], codec.lossless(event.data)))
        return event, codec.encode(event)
