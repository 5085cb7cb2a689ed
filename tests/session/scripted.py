"""The scripted run, on a disk that may fail under it: nobody here counts on an answer.

Two tool steps, a steer, an inject, two followups, an abort; beside it another session that must go
on whatever happens to the first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from dshd import wire
from dshd.errors import DshError
from dshd.session.owner.session import Session
from tests.session.rig import ME, World, call, followup, inject, say, steer

PATIENCE_S = 20.0


@attrs.define
class Account:
    """What the senders were told: {text: message id} and {text: refusal}."""

    acknowledged: dict[str, str] = attrs.field(factory=dict)
    refused: dict[str, DshError] = attrs.field(factory=dict)

    async def note(self, text: str, send: Callable[..., Awaitable[Any]], session: Session) -> None:
        try:
            self.acknowledged[text] = (await send(session, text))["message"]
        except DshError as error:
            self.refused[text] = error


async def play(world: World, session: Session, account: Account) -> None:
    """Play it to the end; the clock must jump by itself."""
    world.script = [call("quick:a", "look:b"), call("gate"), say("one"), call("quick:c"), say("two")]
    await account.note("work", followup, session)
    await _patiently(world.gate.began.wait)
    await account.note("steered", steer, session)
    await account.note("injected", inject, session)
    await account.note("second", followup, session)
    world.gate.opened.set()
    await _rests(session)
    world.gate.began, world.gate.opened = trio.Event(), trio.Event()
    world.script = [call("gate")]
    await account.note("third", followup, session)
    await _patiently(world.gate.began.wait)
    await account.note("parked", followup, session)
    try:
        await session.abort(wire.AbortParams(), ME)
    except DshError as error:
        account.refused["abort"] = error
    await account.note("unparks", followup, session)
    await _rests(session)


async def _patiently(wait: Callable[[], Awaitable[Any]]) -> None:
    with trio.move_on_after(PATIENCE_S):
        await wait()


async def _rests(session: Session) -> None:
    async def rest() -> None:
        try:
            await session.wait_idle()
        except DshError:
            return

    await _patiently(rest)
