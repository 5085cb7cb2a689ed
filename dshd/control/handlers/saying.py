"""Saying something: send and interrupt, the texts that were put before, and what was spooled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import trio

from dshd import wire
from dshd.control.calls import Call, Json, Room, Tell
from dshd.control.takeup import Settled
from dshd.errors import Denied, DshError, Invalid, NotFound, Unavailable
from dshd.session.fold.attachments import content_of
from dshd.session.fold.who import Peer
from dshd.session.owner.loading import holding
from dshd.session.owner.session import Session
from dshd.session.registry.registry import Registry
from dshd.session.shown import views


def offer(call: Call, tell: Tell) -> bool:
    """`send`, of what can be decided at once (`Method.offer`): nearly all that programs send."""
    params: wire.SendParams = call.params
    ref = params.session
    if ref is None or not _is_plain(params) or call.link.in_order.busy or not call.room.gate.is_open:
        return False
    session = call.registry.at_hand(ref)
    if session is None:
        return False
    call.rights.check_session(session.id)
    return session.offer(params, call.peer, tell)


def _is_plain(p: wire.SendParams) -> bool:
    """Nothing has to be looked for, made or waited for before it is decided."""
    later = p.content is not None or p.key is not None or p.create is not None or p.when_full == "wait"
    return not later and not p.tied and not p.dry_run


async def send(call: Call) -> Json:
    params: wire.SendParams = call.params
    async with call.link.in_order:
        await call.room.gate.passed()
        try:
            session, created = await _destination(call, params)
        except NotFound as missing:
            return _would_make(params, missing)
        call.rights.check_session(session.id)
        params = await call.with_uploads(params)
        content = await session.prepare(params)
    sent = partial(session.send, params, call.peer, content)
    receipt: Json = await (_while_there(call, sent) if params.when_full == "wait" else sent())
    if params.tied and not params.dry_run:
        call.link.tie(session.id, receipt["message"])
    return {**receipt, "created": created} if created else receipt


def _would_make(params: wire.SendParams, missing: NotFound) -> Json:
    """What a dry run says where there is no session yet; anybody else is told that there is none."""
    if not params.dry_run or params.create is None or "candidates" in missing.data:
        raise missing
    content_of(params.text, params.content)
    later = params.hold or params.at is not None or params.in_ is not None
    starts = not later and params.intent()[1] and params.if_turn is None
    return views.would(None, "start-turn" if starts else "wait")


async def _while_there(call: Call, sent: Callable[[], Awaitable[Json]]) -> Json:
    """Wait for room as long as the client does. What is being decided when it goes is decided."""
    receipt: Json | None = None
    refused: DshError | None = None
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await call.link.gone()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        try:
            receipt = await sent()
        except DshError as error:
            refused = error
        nursery.cancel_scope.cancel()
    if receipt is None:
        raise refused or Unavailable("the client is gone.", outcome="not-written")
    return receipt


async def interrupt(call: Call) -> Json:
    async with call.link.in_order:
        await call.room.gate.passed()
        session = await call.session()
        params = await call.with_uploads(call.params)
        content = await session.prepare(params)
    return await session.interrupt(params, call.peer, content)


async def put(call: Call) -> Json:
    async with call.link.in_order:
        params: wire.AttachmentPutParams = call.params
        uploads, state = call.link.uploads, call.registry.store.state
        if (params.text is None) == (params.data is None):
            raise Invalid("expected text or data, one of them @ $")
        if params.text is not None:
            return await uploads.put(params.upload, params.text, state)
        if call.peer.kind == "agent":
            raise Denied("a tool can't put files.")
        return await uploads.put_data(params.upload, str(params.data), state)


async def _destination(call: Call | _Behind, params: wire.SendParams) -> tuple[Session, bool]:
    """The session, made if it may be; looking and making are one step for the whole daemon."""
    if params.create is None or params.dry_run:
        return await call.session(), False
    async with call.room.creating:
        try:
            return await call.session(), False
        except NotFound as missing:
            if "candidates" in missing.data:
                raise
        session, _receipt = await call.registry.create(params.create, call.peer)
        return session, True


async def deliver_spooled(
    room: Room, peer: Peer, params: wire.SendParams, session: str | None, settled: Settled
) -> Json:
    """Make a send for somebody who is gone (`takeup.Deliver`)."""
    with holding():
        if session is not None:
            found = await room.registry.get(session)
        else:
            found, _created = await _destination(_Behind(room, peer, params), params)
            await settled(found.id)
        receipt: Json = await found.send(params, peer)
        return receipt


@attrs.frozen(slots=True)
class _Behind:
    """What looking for a session needs of a `Call`, for one without a connection."""

    room: Room
    peer: Peer
    params: wire.SendParams

    @property
    def registry(self) -> Registry:
        return self.room.registry

    async def session(self) -> Session:
        return await self.registry.get(await self.registry.resolve(self.params.session, self.params.cwd))
