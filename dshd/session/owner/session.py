"""A session as the control room sees it: everything one can ask of it, in the protocol's shapes.

What it lives by is `live`. Each method here is: decide on a scratch, wait for the disk, answer with a
view. A session whose log can't be written is *broken*: it can be looked at, every change is refused with
the sentence that names the way out.

| asked                             | is done in       | and decided in          |
|-----------------------------------|------------------|-------------------------|
| prepare, send, offer, interrupt   | `saying`         | `sending`               |
| abort, wake, retry                | `stopping`       | `lifecycle`, `retrying` |
| wait                              | `waiting`        |                         |
| compact                           | `maintaining`    | `driver.compacting`     |
| the queue commands                | `queue_commands` | `queueing`, `undoing`   |
| looks, settings, close and reopen | here             | `views`, `lifecycle`    |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dshd import wire
from dshd.errors import NotConfigured, NotFound
from dshd.session.deciding import approving, budget, lifecycle
from dshd.session.deciding.budget import Now
from dshd.session.fold.attachments import Content
from dshd.session.fold.events import Queue
from dshd.session.fold.who import Peer
from dshd.session.owner import maintaining, prompting, queue_commands, saying, stopping, waiting
from dshd.session.owner.live import Live
from dshd.session.shown import ends, origins, questions, views, why

Json = dict[str, Any]


class Session(Live):
    # --- saying something

    async def prepare(self, p: wire.SendParams | wire.InterruptParams) -> Content:
        """Check what is said and put its attachments on disk: `send` takes it from there.

        Apart, so that it can be done in the order in which a client's requests came. Raises
        `Invalid`, `Full` and what the disk refuses with.
        """
        return await saying.prepare(self, p)

    async def send(self, p: wire.SendParams, peer: Peer, content: Content | None = None) -> Json:
        """Say something; ``dry_run``: what would become of it. See `sending`.

        Cancellation: only while it waits for room (``when_full``), and then nothing is sent.
        Durability: the receipt means it is on disk, with its attachments.
        """
        return await saying.send(self, p, peer, content)

    def offer(self, p: wire.SendParams, peer: Peer, tell: saying.Tell) -> bool:
        """`send` for one without a task to wait in: ``tell`` is called when `send` would return.

        Of what has neither attachment nor key, goes to an open session, and doesn't wait for room. False:
        it must be sent by `send`.
        """
        return saying.offer(self, p, peer, tell)

    async def interrupt(self, p: wire.InterruptParams, peer: Peer, content: Content | None = None) -> Json:
        """One event: the activity that runs now is aborted, and the text is next."""
        return await saying.interrupt(self, p, peer, content)

    # --- stopping and going on

    async def abort(self, p: wire.AbortParams, peer: Peer) -> Json:
        """Stop the running activity; answers when it has ended.

        The work is cancelled at once, before the disk is asked; on a full disk what was asked is
        written with the turn's end. Raises `Conflict` (another turn runs than the one named) and
        `Stalled` after 10 s (the stopping goes on).
        """
        return await stopping.abort(self, p, peer)

    async def wake(self, p: wire.WakeParams, peer: Peer) -> Json:
        """Unpark, or release a held message; says what runs now. ``add`` raises the budget that stopped it
        (`raising`). Raises `Conflict` if a budget keeps it from running."""
        return await stopping.wake(self, p, peer)

    async def retry(self, p: wire.RetryParams, peer: Peer) -> Json:
        """The last turn once more; see `retrying`. Raises `Conflict` if there is nothing to retry.

        Durability: that it was asked for is on disk; a crash before the turn begins loses nothing.
        """
        return await stopping.retry(self, p, peer)

    async def compact(self, peer: Peer) -> Json:
        """Compact the conversation, now or at the next step boundary; what became of it. See
        `maintaining`."""
        return await maintaining.compact(self, peer)

    async def prompt(self) -> Json:
        """What the next request is made of; see `prompting`."""
        return await prompting.show(self)

    # --- waiting

    async def wait_message(
        self, id: str, *, stay: bool = False, asked: Collection[str] | None = None
    ) -> Json:
        """The result of a message, once it has ended; at once when only a person can move it on
        (``stay``: not then either; ``asked``: told of any other approval all the same).

        Cancellation: at any time, nothing is changed.
        """
        return await waiting.for_message(self, id, stay=stay, asked=asked)

    async def wait_idle(self, *, stay: bool = False, asked: Collection[str] | None = None) -> Json:
        """A result with exit 0 once nothing runs and nothing is runnable; 18 if messages are parked, 16 if
        something waits for an approval (``stay``, ``asked``: as of `wait_message`)."""
        return await waiting.for_rest(self, stay=stay, asked=asked)

    # --- approvals

    def approvals(self) -> list[Json]:
        """The questions that wait for a person, the oldest first; none of a session that can't go on."""
        return questions.approvals(self.state) if self.usable else []

    async def answer_approval(self, p: wire.ApprovalAnswerParams, peer: Peer) -> Json:
        """The question, answered. Raises `NotFound`, `Conflict` (somebody was first, or it has expired),
        `Denied` (a tool may not).

        Durability: the answer is on disk; what it allows for the session, too.
        """
        ledger, by = self.guard_person(peer), peer.source()
        done = await ledger.propose(lambda s: approving.answer(s, p.id, p.answer, p.scope, p.reason, by))
        return questions.approval(self.state, done)

    async def forget_approval(self, id: str, peer: Peer) -> bool:
        """Take back what was allowed for the session; whether there was anything."""
        ledger, by = self.guard_person(peer), peer.source()
        return await ledger.propose(lambda s: approving.forget(s, id, by))

    # --- the queue

    def queue_ls(self, queue: Queue | None = None) -> Json:
        rows = queue_commands.rows(self.state, queue)
        return {"type": "queue", "session": self.show(), "messages": rows}

    def queue_show(self, id: str) -> Json:
        return queue_commands.show(self, id)

    async def queue_change(self, op: str, ids: Sequence[str], peer: Peer) -> Json:
        """``op``: first, last, promote, demote or rm."""
        await queue_commands.change(self, op, ids, peer)
        return self._changed_queue(ids)

    async def queue_clear(self, queue: Queue | None, peer: Peer) -> Json:
        return self._changed_queue(await queue_commands.clear(self, queue, peer))

    def _changed_queue(self, ids: Sequence[str]) -> Json:
        return {"type": "queue", "session": self.show(), "messages": views.messages(self.state, ids)}

    async def queue_edit(self, p: wire.QueueEditParams, peer: Peer) -> Json:
        return await queue_commands.edit(self, p, peer)

    async def queue_undo(self, peer: Peer) -> Json:
        """Take back the newest removal; see `undoing`. The messages as they are now."""
        return await queue_commands.take_back(self, peer)

    # --- looking

    def row(self) -> wire.SessionRow:
        """What names are resolved by; the same as in `show`."""
        state = self.state
        return wire.SessionRow(
            id=self.id,
            name=self.name,
            dir=state.settings.get("dir") or "",
            state=views.session_state(state, self.activity, self.word),
            implicit=bool(state.settings.get("implicit")) and state.id == self.id,
            active_at=state.time,
        )

    def show(self) -> Json:
        broken = self.broken.told() if self.broken is not None else None
        view = views.session(self.state, self.activity, size=self.size, broken=broken)
        return views.in_directory(view, self.id)

    def show_all(self) -> Json:
        """With its budgets, what is used of each and the limit, and whose word its settings are."""
        services, work = self.around.services, self.driver.work
        today = services.days.today(services.now())
        now = Now(work.worked if work else None, today)
        return {
            **self.show(),
            "budgets": budget.shown(self.state, services.config(), now),
            "origins": origins.of(self.state),
        }

    def message(self, id: str) -> Json:
        self.check_message(id)
        return views.message(self.state, id)

    def why(self, id: str | None = None) -> Json:
        """What a message waits for; without one the first that waits, else what the running turn was opened
        by. Raises `NotFound`."""
        id = id or self._in_question()
        self.check_message(id)
        return why.why(
            self.state, id, self.activity, now=self.around.services.now(), broken_word=self.word,
            broken=self.broken.error if self.broken else None, draining=self.driver.draining,
            awaited=self.agents.awaited(), below=self.agents.asks(),
        )  # fmt: skip

    def _in_question(self) -> str:
        waiting = queue_commands.waiting(self.state)
        turn = self.state.turn
        inside = () if turn is None else (turn.opener, *turn.members, *(m.id for _, m in turn.claimed))
        found = next(filter(None, (*waiting, *inside)), None)
        if found is None:
            raise NotFound("nothing waits", hint="dshctl message MESSAGE")
        return found

    def answer(self, message: str | None, n: int) -> Json:
        """The result of a message, or of the n-th newest turn that has an answer (from 1)."""
        if message is not None:
            self.check_message(message)
            found = ends.settled(self.state, message)
            return found or ends.not_ended(self.state, message, self.agents.asks())
        turn = ends.newest_answer(self.state, n)
        if turn is None:
            name = self.state.name or self.id  # of a damaged one nothing may be known
            raise NotFound(f"{name} has no answer yet.", hint=f"dshctl log -s {name}")
        return ends.result(self.state, message=turn.members[0] if turn.members else None, turn=turn)

    # --- as a thing

    async def change(self, values: Mapping[str, Any], peer: Peer) -> Json:
        """Set settings; what is None is unset. Raises `NotConfigured` for a limit in money on a model without
        a price."""
        ledger, by = self.guard_person(peer), peer.source()
        self._check_prices(values)
        await ledger.propose(lambda s: s.emit("session/changed", {"set": dict(values), "by": by}))
        return self.show_all()

    def _check_prices(self, values: Mapping[str, Any]) -> None:
        if values.keys() & {"model", "max_cost", "session_cost"}:
            settings, config = {**self.state.settings, **values}, self.around.services.config()
            problem = budget.unpriced(settings, config, str(settings.get("model") or ""))
            if problem is not None:
                raise NotConfigured(f"{problem}.", hint="man dshd-config", outcome="not-written")

    async def close(self, clear: bool, peer: Peer) -> Json:
        """Close it. Raises `Conflict` while it runs, is about to go on with a turn, or holds messages,
        unless ``clear``."""
        ledger, by = self.guard_person(peer), peer.source()
        if clear:
            await self._clear_and_close(peer)
        else:
            await ledger.propose(lambda s: lifecycle.close(s, by))
        await self.agents.close_all(by)
        return self.show()

    async def _clear_and_close(self, peer: Peer) -> None:
        """A turn may start until it is decided. What runs is stopped before the disk is asked."""
        by, closed = peer.source(), False
        while not closed:
            if self.state.turn is not None or self.state.compaction is not None:
                await self.abort(wire.AbortParams(disposition="clear", reason="close"), peer)
            await self.agents.stop_all(by)
            await self.jobs.stop_all("close", by, kept=True)
            closed = await self.writable().propose(lambda s: lifecycle.clear_and_close(s, by))

    async def reopen(self, peer: Peer) -> Json:
        ledger, by = self.guard_person(peer), peer.source()
        await ledger.propose(lambda s: lifecycle.reopen(s, by))
        return self.show()
