"""The queue commands: what waits in a session, and changing it. What they do is decided in `queueing`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dshd import wire
from dshd.session.deciding import queueing, undoing
from dshd.session.fold import attachments
from dshd.session.fold.events import Queue
from dshd.session.fold.state import State
from dshd.session.fold.who import Peer
from dshd.session.owner.live import Live
from dshd.session.shown import views

Json = dict[str, Any]


def rows(state: State, queue: Queue | None) -> list[Json]:
    """What waits in a queue, or in all."""
    return views.messages(state, waiting(state, queue))


def waiting(state: State, queue: Queue | None = None) -> list[str]:
    """The ids of what waits, in the order in which it is shown."""
    return [m.id for q in _SHOWN if queue in (None, q) for m in state.queues[q]]


_SHOWN: Final[tuple[Queue, ...]] = ("next-step", "next-turn", "held")


def show(session: Live, id: str) -> Json:
    queueing.waiting(session.state, id)
    return views.message(session.state, id)


async def change(session: Live, op: str, ids: Sequence[str], peer: Peer) -> None:
    ledger, by = session.guard_person(peer), peer.source()
    if op == "rm":
        await ledger.propose(lambda s: queueing.remove(s, ids, by))
    else:
        await ledger.propose(lambda s: queueing.move(s, op, ids, by))


async def clear(session: Live, queue: Queue | None, peer: Peer) -> list[str]:
    ledger, by = session.guard_person(peer), peer.source()
    return await ledger.propose(lambda s: queueing.clear(s, queue, by))


async def edit(session: Live, p: wire.QueueEditParams, peer: Peer) -> Json:
    ledger, by = session.guard_person(peer), peer.source()
    content = attachments.content_of(p.text, p.content)
    await session.shelf.put(content.files)

    async def edited() -> Json:
        await ledger.propose(lambda s: queueing.edit(s, p.message, content.blocks, p.version, by))
        return views.message(session.state, p.message)

    return await session.shelf.during(content.files, edited)


async def take_back(session: Live, peer: Peer) -> Json:
    ledger, by = session.guard_person(peer), peer.source()
    taken_back = await ledger.propose(lambda s: undoing.decide(s, by))
    return {
        "type": "undone",
        "exit": 0,
        "session": session.id,
        "name": session.state.name,
        "cause": taken_back.cause,
        "at": taken_back.at,
        "by": taken_back.by,
        "messages": views.messages(session.state, taken_back.ids),
    }
