"""Approvals over all sessions: who asks, what an answer allows everywhere, and taking that back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dshd import wire
from dshd.errors import Denied, DshError, NotFound
from dshd.log.store import Store
from dshd.session.fold.approvals import Allowed
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.session.registry.desk import Desk
from dshd.session.registry.hops import Hops
from dshd.session.registry.kin import asking
from dshd.session.shown import questions

Json = dict[str, Any]


class Approvals:
    """Those that ask are in ``loaded``; ``get`` loads the one that an old approval was of."""

    def __init__(
        self, store: Store, hops: Hops, loaded: Mapping[str, Session], desk: Desk,
        get: Callable[[str], Awaitable[Session]],
    ) -> None:  # fmt: skip
        self._store = store
        self._hops = hops
        self._loaded = loaded
        self._desk = desk
        self._get = get
        self.changed = desk.changed

    def open(self, session: str | None = None) -> list[Json]:
        """The questions that wait for an answer, of one session and its subagents or of all, the oldest
        first."""
        found = [
            approval for one in self._loaded.values() if one.state.asks
            for approval in asking(self._loaded, one)
            if session in (None, one.id, *(above["id"] for above in approval["works_for"]))
        ]  # fmt: skip
        return sorted(found, key=lambda approval: approval["asked_at"])

    async def session_of(self, id: str) -> Session:
        """The session that an approval's id is of. Raises `NotFound`."""
        open = next((one for one in self._loaded.values() if id in one.state.approvals), None)
        if open is not None:
            return await self._get(open.id)
        owner = await self._desk.numbers.session_of(id)
        if owner is None or not await self._hops.read(lambda: self._store.exists(owner)):
            raise NotFound(f'no approval "{id}"', hint="dshctl approvals", outcome="not-written")
        return await self._get(owner)

    async def answer(self, session: Session, p: wire.ApprovalAnswerParams, peer: Peer) -> Json:
        """`Session.answer_approval`; ``always`` is kept here.

        Durability: the answer is on disk, with all that it allows. If only the latter is refused
        (`NoSpace`), the call is allowed all the same, and the error says so.
        """
        answered = await session.answer_approval(p, peer)
        if p.scope == "always":
            done = session.state.approvals[p.id]
            try:
                await self._desk.always.add(Allowed(p.id, done.grant, done.answered_at or 0, done.by))
            except DshError as error:
                error.message = f"{p.id} is allowed this once, but not for always: {error.message}"
                raise
        return answered

    async def allowed(self, session: str | None = None) -> list[Json]:
        """What answers have allowed: everywhere, and for one session (or for all that are in memory)."""
        own = [
            questions.allowed(one, loaded.state)
            for id, loaded in self._loaded.items() if session in (None, id)
            for one in loaded.state.allowed
        ]  # fmt: skip
        return [questions.allowed(one) for one in self._desk.always.allowed] + own

    async def forget(self, id: str, peer: Peer) -> None:
        """Take back what the answer to this approval allowed. Raises `NotFound` if that is nothing.

        Durability: it is on disk; the next call of it is asked about.
        """
        if peer.kind == "agent":
            raise Denied("a tool can't answer for a person.")
        gone = await self._desk.always.forget(id)
        session = await self.session_of(id) if not gone else None
        if session is not None and not await session.forget_approval(id, peer):
            raise NotFound(f"{id} allows nothing any more.", hint="dshctl approvals", outcome="not-written")

    def ended(self, asked: Json) -> Json:
        """How one ended that was open, as far as that is known."""
        session = self._loaded.get(asked["session"])
        found = session.state.approvals.get(asked["id"]) if session is not None else None
        if session is None or found is None or found.open:
            return {**asked, "answer": "withdrawn", "arguments": None}
        return {**questions.approval(session.state, found), "works_for": asked["works_for"]}
