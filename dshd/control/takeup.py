"""Taking up what was spooled while there was no daemon, before anybody's sends are answered.

One after the other, in the order in which they were handed in, each like a send that comes now from whoever
handed it in then: the session is looked for (or made) now, the time limits count from then. So these are the
answers to one, and what follows:

| the send                                     | then                                                |
|----------------------------------------------|-----------------------------------------------------|
| is on disk                                   | its message is noted under its alias, the file goes |
| could not be written (disk full, or slow)    | it stays; tried again, until there is room          |
| is refused (no such session, another text    | it is kept with the reason, and counted in status   |
| under the key, too late, ...), or is no send |                                                     |

Whatever step a crash comes after, the next start does the rest and nothing twice: see `dshd.spool`.
Meanwhile sends wait at the `Gate`; when the disk is full they are told so instead.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import trio

from dshd import wire
from dshd.errors import Conflict, DshError, Internal, Invalid, NoSpace, Stalled, Unavailable
from dshd.log.disk import FULL
from dshd.log.writer import hop
from dshd.plural import count
from dshd.session.fold.who import Peer
from dshd.spool import Broken, Spool, Spooled, Taken, missing
from dshd.strict import Wrong, dotted, structure

log = logging.getLogger(__name__)
Json = dict[str, Any]
T = TypeVar("T")

POLL_S: Final = 5.0  # how often room is looked for
_LATER: Final = (NoSpace, Stalled, Unavailable)

# (who sends it, what, the session it is for if that is settled, what to do once it is settled) -> receipt
Settled = Callable[[str], Awaitable[None]]
Deliver = Callable[[Peer, wire.SendParams, str | None, Settled], Awaitable[Json]]


class Gate:
    """Where sends wait for what was handed in before them. Open, unless somebody closes it."""

    def __init__(self) -> None:
        self._open = trio.Event()
        self._open.set()
        self._why: DshError | None = None

    def close(self) -> None:
        """Who waits already waits on."""
        self._why = None
        if self._open.is_set():
            self._open = trio.Event()

    def open(self) -> None:
        self._why = None
        self._open.set()

    def stop(self, why: DshError) -> None:
        """It stays closed for now; those who wait, and those who come, are told why."""
        self._why = why
        self._open.set()

    @property
    def is_open(self) -> bool:
        return self._why is None and self._open.is_set()

    async def passed(self) -> None:
        """Returns when it is open; without yielding, if it is. Raises what it was stopped with."""
        if not self._open.is_set():
            await self._open.wait()
        if self._why is not None:
            why = self._why
            raise type(why)(why.message, hint=why.hint, outcome="not-written")


@attrs.frozen(slots=True, kw_only=True)
class Earlier(Peer):
    """Somebody who is gone: what they said is older than this daemon. ``created`` is Unix ms."""

    created: int

    def source(self, lowered: str | None = None) -> Json:
        return {**Peer.source(self, lowered), "via": "spool", "created": self.created}


def sender(spooled: Spooled) -> Earlier:
    """Who handed it in. Raises `Broken`."""
    said = spooled.source
    for name, kinds in (("uid", int), ("pid", int), ("tty", str | None), ("client", str | None)):
        if not isinstance(said.get(name), kinds):
            raise Broken(f"its {name} is wrong")
    return Earlier(uid=said["uid"], pid=said["pid"], tty=said["tty"], client=said["client"],
                   created=spooled.created)  # fmt: skip


def due_now(spooled: Spooled, now: int) -> wire.SendParams:
    """What it asks for at ``now`` (Unix ms), given what it asked for then. Raises `Broken`, `Conflict`
    for one that has expired."""
    try:
        params = structure(spooled.send, wire.SendParams)
        params.check()
    except Wrong as wrong:
        raise Broken(f"{wrong.what} @ $.send.{dotted(wrong.path)}") from None
    except Invalid as error:
        raise Broken(error.message) from None
    at, in_, expires = params.at, params.in_, params.expires
    if in_ is not None:
        at = spooled.created + round(in_ * 1000)
    if expires is not None and (expires := expires - max(0, now - spooled.created) / 1000) <= 0:
        raise Conflict("it expired while there was no daemon.", outcome="not-written")
    late = at is not None and at <= now
    return params.replace(
        key=params.key or spooled.id, at=None if late else at, in_=None, expires=expires,
        when_full="refuse", tied=False, dry_run=False,
    )  # fmt: skip


def reason(error: Exception, now: int) -> Json:
    """Why it was refused, as it is kept."""
    known = error if isinstance(error, DshError) else None
    return {
        "refused_at": now,
        "code": known.code if known else "INVALID",
        "reason": known.message if known else str(error),
        "hint": known.hint if known else "",
    }


class TakingUp:
    """``now`` is Unix ms; ``deliver`` makes the send."""

    def __init__(self, spool: Spool, gate: Gate, deliver: Deliver, now: Callable[[], int]) -> None:
        self._spool = spool
        self._gate = gate
        self._deliver = deliver
        self._now = now

    async def _hop(self, work: Callable[[], T]) -> T:
        return await hop(self._spool.disk, work)

    async def look(self) -> list[str]:
        """What there is to take up; with nothing, the gate is opened."""
        try:
            names = await self._hop(self._spool.look)
        except OSError as error:
            log.error("the spool can't be looked at: %s", error)
            names = []
        if not names:
            self._gate.open()
        return names

    async def run(self, names: list[str]) -> None:
        """Take up these, then open the gate, whatever happened."""
        try:
            for name in names:
                await self._until_done(name)
                self._gate.close()  # if there was no room, there is now
            if names:
                log.info("%s taken up", count(len(names), "spooled send was", "spooled sends were"))
        finally:
            self._gate.open()

    async def _until_done(self, name: str) -> None:
        """A send that can't be written now is tried until it can; what goes wrong otherwise is no reason
        to hold up the others."""
        while True:
            try:
                return await self._one(name)
            except OSError as error:
                if error.errno not in FULL:
                    return log.error("%s/%s stays where it is: %s", self._spool.path, name, error)
                why: DshError = NoSpace(f"no space in {self._spool.path}. Nothing was lost.")
            except _LATER as error:
                why = error
            log.warning("spooled sends are taken up later: %s", why)
            self._gate.stop(why)
            await trio.sleep(POLL_S)

    async def _one(self, name: str) -> None:
        spooled = None
        try:
            spooled = await self._hop(lambda: self._spool.read(name))
            sent = await self._send(spooled)
        except (Broken, DshError) as error:
            if isinstance(error, _LATER):
                raise
            return await self._refuse(name, error, spooled)
        except OSError:
            raise
        except Exception:
            log.exception("the spooled send %s failed", name)
            return await self._refuse(name, Internal("it failed; the daemon's log has the details"), spooled)
        await self._hop(lambda: self._spool.note(spooled.id, sent))
        await self._hop(lambda: self._spool.done(name))

    async def _send(self, spooled: Spooled) -> Taken:
        """Where it went: at once, if that was noted and only the file had not gone."""
        before = await self._hop(lambda: self._spool.find(spooled.id))
        if before is not None and before.message is not None:
            return before
        peer, params = sender(spooled), due_now(spooled, self._now())
        settled = partial(self._settled, spooled)
        receipt = await self._deliver(peer, params, before and before.session, settled)
        return Taken(receipt["session"], receipt["message"])

    async def _settled(self, spooled: Spooled, session: str) -> None:
        await self._hop(lambda: self._spool.note(spooled.id, Taken(session, None)))

    async def _refuse(self, name: str, error: Exception, spooled: Spooled | None) -> None:
        log.warning("the spooled send %s was refused: %s", name, error)
        why = reason(error, self._now())
        await self._hop(lambda: self._spool.refuse(name, why, spooled))


async def message_of(spool: Spool, gate: Gate, alias: str) -> str:
    """The message that ``spool:<uuid>`` is another name for.

    Raises `NotFound` if it was refused or never was, and what the gate was stopped with.
    """
    taken = await hop(spool.disk, lambda: spool.find(alias))
    if taken is None or taken.message is None:
        await gate.passed()
        taken = await hop(spool.disk, lambda: spool.find(alias))
    if taken is not None and taken.message is not None:
        return taken.message
    raise await hop(spool.disk, lambda: missing(alias, spool.fate(alias), spool.refused_file(alias)))
