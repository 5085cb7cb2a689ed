"""Saying something to a session: checked, its attachments put on disk, decided, answered with a receipt.

Where a message goes is decided in `sending`. Here is what that takes time for: the attachments, the
disk, and, for who wants to wait for it (``when_full``), room in the inbox.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from dshd import wire
from dshd.errors import Denied, Full, Unavailable
from dshd.session.deciding import agreeing, sending
from dshd.session.disk.ledger import Ledger
from dshd.session.fold import attachments
from dshd.session.fold.attachments import Content
from dshd.session.fold.who import Peer
from dshd.session.owner import loading
from dshd.session.owner.live import Live
from dshd.session.shown.activities import Activity

Json = dict[str, Any]
Tell = Callable[[Callable[[], Json]], None]  # is given a function that returns the answer, or raises


async def prepare(session: Live, p: wire.SendParams | wire.InterruptParams) -> Content:
    if isinstance(p, wire.SendParams):
        p.check()
    content = attachments.content_of(p.text, p.content)
    session.writable()
    if p.key is not None:
        loading.hold_or_drop(await session.recall(("k", p.key)))
    if not getattr(p, "dry_run", False):
        await session.shelf.put(content.files)
    return content


def offer(session: Live, p: wire.SendParams, peer: Peer, tell: Tell) -> bool:
    ledger = session.guard(peer)
    content = attachments.content_of(p.text, p.content)
    if session.state.closed or content.files:
        return False
    said = _said(session, p, peer, content)
    activity, most = session.activity, _most(session)
    ledger.offer(
        lambda s: sending.decide(s, said, most),
        lambda proposal: tell(lambda: _completed(session, activity, proposal.unwrap())),
    )
    return True


async def send(session: Live, p: wire.SendParams, peer: Peer, content: Content | None) -> Json:
    ledger = session.guard(peer)
    content = content or await prepare(session, p)
    said = _said(session, p, peer, content)
    if p.dry_run:
        return await ledger.propose(lambda s: sending.would(s, said, _most(session)))
    if p.when_full == "wait":
        return await session.shelf.during(content.files, lambda: _send_when_room(session, ledger, said))
    return await session.shelf.during(content.files, lambda: _send(session, ledger, said))


async def interrupt(session: Live, p: wire.InterruptParams, peer: Peer, content: Content | None) -> Json:
    ledger = session.guard_person(peer)
    content = content or await prepare(session, p)
    said = sending.followup(
        content.blocks, peer.source(p.as_), p.key,
        tag=p.tag, interrupts=True, then_park=p.keep, reason=p.reason,
    )  # fmt: skip
    return await session.shelf.during(content.files, lambda: _send(session, ledger, said))


def _said(session: Live, p: wire.SendParams, peer: Peer, content: Content) -> sending.Send:
    if p.now and peer.kind == "agent":
        raise Denied("not sent: a tool can't cut a step short.", outcome="not-written")
    settings = agreeing.meant(p.settings, session.state, session.around.services) if p.settings else {}
    return sending.of_params(p, content.blocks, peer.source(p.as_), settings)


def _most(session: Live) -> int:
    return int(session.around.services.config().inbox.max_pending)


async def _send_when_room(session: Live, ledger: Ledger, send: sending.Send) -> Json:
    """First come, first served; a key that is known needs no room."""
    asked_at = session.around.services.now()
    if _is_known(session, send):
        return await _send(session, ledger, send)
    async with session.line:
        while True:
            while sending.fullness(session.state, send, _most(session)) is not None:
                await _wait_for_room(session, ledger)
            try:
                return await _send(session, ledger, send, asked_at)
            except Full as full:
                if full.data.get("room") != "wait":
                    raise


async def _wait_for_room(session: Live, ledger: Ledger) -> None:
    session.writable()
    if session.driver.draining:
        raise Unavailable(f"not sent: dshd is stopping, and {session.state.name} is full.",
                          outcome="not-written")  # fmt: skip
    await ledger.changed.wait()


async def _send(session: Live, ledger: Ledger, send: sending.Send, asked_at: int | None = None) -> Json:
    activity = session.activity
    async with _name_again(session, send):
        receipt = await ledger.propose(lambda s: sending.decide(s, send, _most(session), asked_at))
    return _completed(session, activity, receipt)


def _completed(session: Live, activity: Activity, receipt: Json) -> Json:
    """The receipt with what only the session knows. ``activity``: before the message came."""
    state = session.state
    idle = activity.phase == "idle"
    starts = idle and receipt["state"] == "pending" and state.runnable and receipt["position"] == 1
    if starts and receipt["turn"] is None:
        receipt["turn"] = state.last_turn + 1
    receipt["waits_for"] = session.driver.would_wait if starts else activity.doing
    receipt["since_at"] = None if starts else activity.since
    receipt["phase"] = activity.phase
    receipt["warning"] = _warning(session, receipt)
    return receipt


def _name_again(session: Live, send: sending.Send) -> AbstractAsyncContextManager[None]:
    """A send to a closed session opens it again, under a name that another may have by now."""
    if not session.state.closed or _is_known(session, send):
        return contextlib.nullcontext()
    return session.around.reopening(session.state.name, session.id)


def _is_known(session: Live, send: sending.Send) -> bool:
    return send.key is not None and send.key in session.state.keys


def _warning(session: Live, receipt: Json) -> str | None:
    if session.driver.draining:
        return "stopping"
    is_due = receipt["state"] == "held" and receipt["due_at"] is not None
    return session.around.what_ends_us() if is_due else None
