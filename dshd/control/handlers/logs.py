"""Reading a log, and following one or all of them."""

from __future__ import annotations

from functools import partial

from dshd import wire
from dshd.control.calls import Answer, Call, Json
from dshd.control.encoding import pieces
from dshd.control.feed import READ, Follower, Hub, Watcher
from dshd.control.logfile import LogFile, Piece
from dshd.errors import Damaged


async def read(call: Call) -> Json:
    """Events as notifications, at the pace at which the client takes them, then the answer."""
    params: wire.LogReadParams = call.params
    session = await call.id(log=True)
    try:
        return await _read(call, session, params)
    except Damaged as damaged:
        raise call.registry.instead(session, damaged) from None


async def _read(call: Call, session: str, params: wire.LogReadParams) -> Json:
    hub = call.room.hub
    until = await hub.head(session)
    log = hub.log(session)
    offset, end = await _span(hub, log, session, params)
    last = None
    while offset < end:
        async with call.link.reading:
            await call.link.room()
            piece: Piece = await hub.reading(partial(log.piece, offset, until, READ))
            lines = [line for line in piece.lines if line.offset < end]
            data = [hub.encoder.line(session, line.seq, line.raw) for line in lines
                    if params.chunks or line.type != "assistant/chunk"]  # fmt: skip
            for one in pieces(data):
                call.link.write(one)
        last, offset = lines[-1] if lines else last, piece.offset
        if not piece.more:
            break
    await look_for_damage(call, session, log)
    at = {"seq": last.seq, "crc": last.crc} if last else None
    return {"type": "log", "session": session, "at": at, "damage": log.damage}


async def look_for_damage(call: Call, session: str, log: LogFile) -> None:
    """In all of the log, unless it is open, and good: then all of it was looked at."""
    one = call.registry.loaded.get(session)
    if one is None or one.broken is not None:
        await call.room.hub.reading(log.check)


async def _span(hub: Hub, log: LogFile, session: str, params: wire.LogReadParams) -> tuple[int, int]:
    """``(start, end)`` in bytes."""
    end = await hub.reading(log.size)
    if params.turn is not None:
        first, last = params.turn
        start = await hub.reading(partial(log.locate_turn, first))
        return start, await hub.reading(partial(log.locate_turn, last + 1))
    if params.since is not None:
        return await hub.reading(partial(log.locate_time, params.since)), end
    _next_seq, offset = await hub.start(session, params.after, params.turns)
    return offset, end


async def follow(call: Call) -> Answer:
    params: wire.LogFollowParams = call.params
    if params.all:
        return await _follow_all(call)
    session = await call.id()
    next_seq, offset = await call.room.hub.start(session, params.after, params.turns)
    head = await call.room.hub.head(session)

    def begin() -> None:
        call.link.follow(Follower(call.room.hub, session, call.link, next_seq, offset, chunks=params.chunks))

    return Answer({"type": "following", "session": session, "head": head}, begin)


async def _follow_all(call: Call) -> Answer:
    hub, link, params = call.room.hub, call.link, call.params

    def start(session: str, next_seq: int, offset: int | None = None) -> None:
        link.follow(Follower(hub, session, link, next_seq, offset, chunks=params.chunks))

    watcher = Watcher(start)
    places = {id: await hub.start(id, at, None) for id, at in params.positions.items()}

    def begin() -> None:
        for session, (next_seq, offset) in places.items():
            watcher.know(session)
            start(session, next_seq, offset)
        link.watch(watcher)

    return Answer({"type": "following", "session": None, "head": None}, begin)


async def unfollow(call: Call) -> Json:
    call.link.unfollow(call.params.session)
    return {"type": "unfollowed", "session": call.params.session}
