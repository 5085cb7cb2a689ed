"""A session as the control room sees it: everything one can ask of it, in the protocol's shapes.

A session owns a `Ledger` (its state and its log) and a `Driver`. Each method here is: decide on a
scratch, wait for the disk, answer with a view. A session whose log can't be written is *broken*:
it can be looked at, every change is refused with the sentence that names the way out.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import attrs
import trio

from dshd import wire
from dshd.driver.driver import ROOM_POLL_S, Driver
from dshd.driver.port import Services
from dshd.errors import (
    Conflict,
    Denied,
    DshError,
    Faulted,
    Full,
    Internal,
    NoSpace,
    NotFound,
    Stalled,
    Unavailable,
)
from dshd.log.codec import Event
from dshd.log.writer import LogWriter
from dshd.session import attachments, closing, inbox, loading, queueing, retrying, sending, undo, views, why
from dshd.session.attachments import Content
from dshd.session.events import Queue, file_name
from dshd.session.keeping import Keeper
from dshd.session.ledger import DEADLINE_S, Hooks, Ledger
from dshd.session.scratch import Scratch
from dshd.session.shelf import Shelf
from dshd.session.state import State
from dshd.session.turns import Abort, EndedTurn, requested
from dshd.session.views import WAITS_FOR_ROOM, Activity
from dshd.session.who import Peer

log = logging.getLogger(__name__)
Json = dict[str, Any]

CLOCK_LOOK_S: Final = 10.0  # how long a wall clock that jumps can go unnoticed


@attrs.frozen(kw_only=True)
class Surroundings:
    """What a session needs of the daemon. ``boot`` names this run of it; ``attach`` and ``detach``
    keep and remove attachments, ``{file name: content}`` and names; ``what_ends_us`` says what may
    end this daemon before a send is due, as a receipt's ``warning`` has it. ``reopening`` is entered
    by who opens a closed session again: (name, id); it raises `Conflict` if the name is taken."""

    services: Services
    start: Callable[..., None]
    mark: Callable[[str], Awaitable[None]]
    unmark: Callable[[str], Awaitable[None]]
    attach: Callable[[str, Mapping[str, bytes]], Awaitable[None]]
    detach: Callable[[str, list[str]], Awaitable[None]]
    what_ends_us: Callable[[], str | None]
    reopening: Callable[[str, str], AbstractAsyncContextManager[None]]
    on_lines: Callable[[str, int, list[bytes]], None]
    on_reset: Callable[[str, int], None]
    boot: str
    version: str


@attrs.frozen(slots=True)
class Broken:
    """Why a session can't be driven: ``word`` is damaged, faulted or unsupported."""

    word: str
    error: DshError

    def refusal(self) -> DshError:
        """For a request that comes now. What broke the session may have been half written; this is
        not written at all."""
        error = self.error
        return type(error)(error.message, hint=error.hint, outcome="not-written", data=error.data)


class Session:
    """``partial``: what the open step of a crashed turn had streamed. ``used`` is when somebody last asked
    for it or it last changed, in Trio's time; ``holders``: how many requests hold it (`loading`)."""

    def __init__(
        self,
        id: str,
        state: State,
        writer: LogWriter | None,
        around: Surroundings,
        *,
        broken: Broken | None = None,
        partial: Sequence[Mapping[str, Any]] = (),
        found: str = "clean",
        marked: bool = False,
        refold: Callable[[LogWriter], Awaitable[State]] | None = None,
        keeper: Callable[[Ledger], Keeper] | None = None,
    ) -> None:
        self.id = id
        self.broken = broken
        self._around = around
        self._state = state
        self._refold = refold
        self._clock_watched = False
        self._waits_for_room = False
        self._line = trio.Lock()  # of those who wait for room
        self._shelf = Shelf(self._attach, self._detach, self._refers_to, around.start)
        self.driver = Driver(self, around.services, around.start)
        self.ledger: Ledger | None = None
        if writer is not None:
            self.ledger = Ledger(state, writer, self._hooks(), self._prelude(partial, found))
            self.ledger.marked = marked
        self.keeper = keeper(self.ledger) if keeper is not None and self.ledger is not None else None
        self.used = trio.current_time()
        self.holders = 0
        self.gone = False

    # --- what the driver needs (driver.port.Owner)

    @property
    def state(self) -> State:
        return self.ledger.state if self.ledger is not None else self._state

    @property
    def usable(self) -> bool:
        return self.broken is None

    def rested(self) -> None:
        if self.ledger is not None:
            self.ledger.changed.fire()

    async def remember(self) -> None:
        if self.keeper is not None:
            await self.keeper.surface()

    def post(self, decide: Callable[[Scratch], object]) -> object:
        return self._writable().post(decide)

    async def record(self, decide: Callable[[Scratch], Any]) -> Any:
        return await self._writable().record(decide)

    # --- after each batch

    def _hooks(self) -> Hooks:
        around = self._around
        return Hooks(
            start=around.start,
            now=around.services.now,
            mark=lambda: around.mark(self.id),
            unmark=lambda: around.unmark(self.id),
            tell=lambda first, lines: around.on_lines(self.id, first, lines),
            changed=self._changed,
            faulted=self._faulted,
        )

    def _changed(self, events: list[Event]) -> None:
        """Look at the new state: heed aborts, start the driver, watch the clock, close a run."""
        turn = self.state.turn
        if turn is not None and turn.abort is not None:
            self.driver.cancel(turn.abort.cause, turn.number)
        self.used = trio.current_time()
        self.driver.poke()
        self._watch_clock()
        self._close_if_run()
        if self.keeper is not None and self.keeper.due():
            self._around.start(self.keep)

    async def _faulted(self, error: Faulted) -> None:
        """The disk failed: what was not synced is withdrawn, running work is cancelled at once."""
        if self.broken is not None:
            return
        self.broken = Broken("faulted", error)
        self.driver.cancel("fault")
        if self.ledger is not None and self._refold is not None:
            try:
                self.ledger.state = await self._refold(self.ledger.writer)
            except DshError as unreadable:
                log.error("session %s: %s", self.id, unreadable)
            self._around.on_reset(self.id, self.ledger.writer.synced)

    def _prelude(self, partial: Sequence[Mapping[str, Any]], found: str) -> Callable[[Scratch], None]:
        around = self._around

        def prelude(s: Scratch) -> None:
            repaired, doubted = s.state.repaired, s.state.doubted
            s.emit("session/opened", {"boot": around.boot, "version": around.version, "found": found})
            go_on = around.services.config().recovery.continue_interrupted
            closing.recover(s, partial, go_on and not repaired)
            if repaired:
                queueing.hold_doubted(s, doubted)

        return prelude

    # --- life

    async def start(self) -> None:
        """Go on where the last daemon stopped: close what a crash left open, then drive.

        On a full disk it returns all the same, and goes on by itself when there is room.
        Durability: the closing is on disk before the driver starts.
        """
        try:
            await self._go_on()
        except NoSpace as error:
            log.warning("session %s: %s", self.id, error)
            self._waits_for_room = True
            self._around.start(self._go_on_with_room)

    async def _go_on(self) -> None:
        if self.ledger is None or self.broken is not None:
            return
        if self.state.owes:
            await self.ledger.record(lambda s: None)
        await self.ledger.record(queueing.expire)
        self._waits_for_room = False
        self.driver.poke()
        self._watch_clock()

    async def _go_on_with_room(self) -> None:
        try:
            while self._waits_for_room:
                if not self._around.services.reserve():
                    await trio.sleep(ROOM_POLL_S)
                with contextlib.suppress(NoSpace):
                    await self._go_on()
                    return
        except DshError as error:
            log.error("session %s does not go on: %s", self.id, error)
        finally:
            self._waits_for_room = False

    # --- memory

    @property
    def rests(self) -> bool:
        """Nothing runs, nothing will by itself, nothing is on its way, and nobody waits."""
        state, ledger = self.state, self.ledger
        waits = self._clock_watched or self._waits_for_room or self._shelf.busy
        if waits or self.driver.phase.name != "idle" or (self.keeper is not None and self.keeper.busy):
            return False
        if ledger is None:
            return True
        moves = state.turn is not None or state.runnable or state.owes
        return self.broken is None and not moves and ledger.rests

    def hold(self) -> Callable[[], None]:
        """Keep it loaded until what is returned is called."""
        self.used = trio.current_time()
        self.holders += 1
        return self._let_go_of

    def _let_go_of(self) -> None:
        self.used = trio.current_time()
        self.holders -= 1

    async def keep(self) -> None:
        """Write a checkpoint, if it is worth it."""
        if self.keeper is None or self.broken is not None:
            return
        await self.keeper.keep(lambda: self.driver.phase.name == "idle")
        if self.state.surface.cold is not None:
            self.driver.forget()

    async def recall(self, *names: tuple[str, str]) -> Callable[[], None]:
        """Have a message (``("m", id)``) or what a key stands for (``("k", key)``) in memory, however
        old, until what is returned is called."""
        return await self.keeper.recall(names) if self.keeper is not None else lambda: None

    def _watch_clock(self) -> None:
        if not self._clock_watched and self.state.timed and self.usable:
            self._clock_watched = True
            self._around.start(self._clock)

    async def _clock(self) -> None:
        """Move what comes due and end what expires, by the wall clock, however it jumps."""
        try:
            while self.ledger and self.usable:
                moment = inbox.next_moment(self.state.queues)
                if moment is None:
                    break
                wait = max(0.0, (moment - self._around.services.now()) / 1000)
                with trio.move_on_after(min(wait, CLOCK_LOOK_S)):
                    await self.ledger.changed.wait()
                if moment <= self._around.services.now():
                    await self.ledger.record(_tick)
        except DshError as error:
            log.warning("session %s: due messages wait: %s", self.id, error)
            await trio.sleep(1)
        finally:
            self._clock_watched = False
        self._watch_clock()

    def _close_if_run(self) -> None:
        state = self.state
        if state.settings.get("run") and not state.closed and state.turn is None and self.ledger:
            self.ledger.post(_close_run) if _run_is_over(state) else None

    def _writable(self) -> Ledger:
        if self.broken is not None:
            raise self.broken.refusal()
        if self.gone:
            raise Unavailable(f"session {self.state.name} was closed meanwhile; try again.",
                              outcome="not-written")  # fmt: skip
        if self.ledger is None:
            raise Internal(f"session {self.id} has no log")
        return self.ledger

    def _guard(self, peer: Peer) -> Ledger:
        """The ledger, for a peer that may change this session."""
        if peer.kind == "agent" and peer.session != self.id:
            raise Denied(f"a tool of another session may not change {self.state.name}.")
        return self._writable()

    def _guard_person(self, peer: Peer) -> Ledger:
        if peer.kind == "agent":
            raise Denied("a tool may read and send to its own session, and nothing else.")
        return self._writable()

    # --- what it does now

    @property
    def activity(self) -> Activity:
        if self._waits_for_room:
            return WAITS_FOR_ROOM
        return self.driver.activity

    @property
    def size(self) -> int:
        return self.ledger.writer.size if self.ledger is not None else 0

    @property
    def word(self) -> str | None:
        return self.broken.word if self.broken else None

    def row(self) -> wire.SessionRow:
        """What names are resolved by; the same as in `show`."""
        state = self.state
        return wire.SessionRow(
            id=self.id,
            name=state.name,
            dir=state.settings.get("dir") or "",
            state=views.session_state(state, self.activity, self.word),
            implicit=bool(state.settings.get("implicit")),
            active_at=state.time,
        )

    def show(self) -> Json:
        return views.session(self.state, self.activity, size=self.size, broken=self.word)

    # --- saying something

    async def prepare(self, p: wire.SendParams | wire.InterruptParams) -> Content:
        """Check what is said and put its attachments on disk: `send` takes it from there.

        Apart, so that it can be done in the order in which a client's requests came. Raises
        `Invalid`, `Full` and what the disk refuses with.
        """
        if isinstance(p, wire.SendParams):
            p.check()
        content = attachments.content_of(p.text, p.content)
        self._writable()
        if p.key is not None:
            loading.hold_or_drop(await self.recall(("k", p.key)))
        if not getattr(p, "dry_run", False):
            await self._shelf.put(content.files)
        return content

    async def send(self, p: wire.SendParams, peer: Peer, content: Content | None = None) -> Json:
        """Say something; ``dry_run``: what would become of it. See `sending`.

        Cancellation: only while it waits for room (``when_full``), and then nothing is sent.
        Durability: the receipt means it is on disk, with its attachments.
        """
        ledger = self._guard(peer)
        content = content or await self.prepare(p)
        send = sending.of_params(p, content.blocks, peer.source(p.as_))
        if p.dry_run:
            return await ledger.propose(lambda s: sending.would(s, send, self._most))
        if p.when_full == "wait":
            return await self._shelf.during(content.files, lambda: self._send_when_room(ledger, send))
        return await self._shelf.during(content.files, lambda: self._send(ledger, send))

    @property
    def _most(self) -> int:
        return int(self._around.services.config().inbox.max_pending)

    async def _send_when_room(self, ledger: Ledger, send: sending.Send) -> Json:
        """First come, first served; a key that is known needs no room."""
        asked_at = self._around.services.now()
        if send.key is not None and send.key in self.state.keys:
            return await self._send(ledger, send)
        async with self._line:
            while True:
                while sending.fullness(self.state, send, self._most) is not None:
                    await self._wait_for_room(ledger)
                try:
                    return await self._send(ledger, send, asked_at)
                except Full as full:
                    if full.data.get("room") != "wait":
                        raise

    async def _wait_for_room(self, ledger: Ledger) -> None:
        self._writable()
        if self.driver.draining:
            raise Unavailable(f"not sent: dshd is stopping, and {self.state.name} is full.",
                              outcome="not-written")  # fmt: skip
        await ledger.changed.wait()

    async def _send(self, ledger: Ledger, send: sending.Send, asked_at: int | None = None) -> Json:
        activity, idle = self.activity, self.activity.phase == "idle"
        async with self._name_again(send):
            receipt = await ledger.propose(lambda s: sending.decide(s, send, self._most, asked_at))
        starts = idle and receipt["state"] == "pending" and self.state.runnable and receipt["position"] == 1
        if starts and receipt["turn"] is None:
            receipt["turn"] = self.state.last_turn + 1
        receipt["waits_for"] = activity.doing
        receipt["phase"] = activity.phase
        receipt["warning"] = self._warning(receipt)
        return receipt

    def _name_again(self, send: sending.Send) -> AbstractAsyncContextManager[None]:
        """A send to a closed session opens it again, under a name that another may have by now."""
        if not self.state.closed or (send.key is not None and send.key in self.state.keys):
            return contextlib.nullcontext()
        return self._around.reopening(self.state.name, self.id)

    def _warning(self, receipt: Json) -> str | None:
        if self.driver.draining:
            return "stopping"
        is_due = receipt["state"] == "held" and receipt["due_at"] is not None
        return self._around.what_ends_us() if is_due else None

    # --- attachments

    async def _attach(self, files: Mapping[str, bytes]) -> None:
        await self._around.attach(self.id, {file_name(sha): raw for sha, raw in files.items()})

    async def _detach(self, hashes: list[str]) -> None:
        await self._around.detach(self.id, [file_name(sha) for sha in hashes])

    def _refers_to(self, sha256: str) -> bool:
        return sha256 in self.state.files

    async def interrupt(self, p: wire.InterruptParams, peer: Peer, content: Content | None = None) -> Json:
        """One event: the activity that runs now is aborted, and the text is next."""
        ledger = self._guard_person(peer)
        content = content or await self.prepare(p)
        send = sending.Send(
            verb="followup",
            queue="next-turn",
            wake=True,
            content=content.blocks,
            source=peer.source(p.as_),
            key=p.key,
            tag=p.tag,
            interrupts=True,
            then_park=p.keep,
        )
        return await self._shelf.during(content.files, lambda: self._send(ledger, send))

    # --- stopping and going on

    async def abort(self, p: wire.AbortParams, peer: Peer) -> Json:
        """Stop the running activity; answers when it has ended.

        The work is cancelled at once, before the disk is asked; on a full disk what was asked is
        written with the turn's end. Raises `Conflict` (another turn runs than the one named) and
        `Stalled` after 10 s (the stopping goes on).
        """
        ledger = self._guard_person(peer)
        running, doing = self.state.turn, self.activity.doing
        if p.turn is not None and (running is None or running.number != p.turn):
            now = f"turn {running.number} runs" if running else "no turn runs"
            raise Conflict(f"not aborted: {self.state.name} doesn't run turn {p.turn}; {now}.",
                           outcome="not-written")  # fmt: skip
        asked = Abort("user", p.disposition, peer.source(), p.reason)
        clears = [m.id for items in self.state.queues.values() for m in items]
        clears = clears if p.disposition == "clear" else []
        proposal = ledger.post(lambda s: _abort(s, p.turn, asked))
        if running is not None:
            self.driver.abort(running.number, asked, clears)
        with trio.move_on_after(DEADLINE_S):
            await proposal.done.wait()
            if isinstance(proposal.error, NoSpace) and running is not None:
                answer: Json = {"turn": running.number, "cleared": clears}
            else:
                answer = proposal.unwrap()
            await self._ended(answer["turn"])
            return self._aborted(answer, doing)
        raise Stalled("the turn is stopped, but the disk has not answered for 10 s.", outcome="unknown")

    async def _ended(self, turn: int | None) -> None:
        ledger = self._writable()
        while turn is not None and self.state.turn is not None and self.state.turn.number == turn:
            await ledger.changed.wait()
            if self.broken is not None:
                return

    def _aborted(self, answer: Json, doing: str | None) -> Json:
        state = self.state
        ended = state.turns.get(answer["turn"]) if answer["turn"] is not None else None
        return {
            "type": "aborted",
            "exit": 0,
            "session": self.id,
            "name": state.name,
            "turn": answer["turn"],
            "doing": doing if answer["turn"] is not None else None,
            "outcome": ended.reason if ended else None,
            "started_at": ended.started_at if ended else None,
            "ended_at": ended.ended_at if ended else None,
            "cleared": answer["cleared"],
            "parked": views.parked(state),
        }

    async def wake(self, p: wire.WakeParams, peer: Peer) -> Json:
        """Unpark, or release a held message; says what runs now."""
        ledger = self._guard_person(peer)
        by = peer.source()
        if p.message is not None:
            id = p.message
            await ledger.propose(lambda s: queueing.release(s, id, by))
            return {"type": "woken", "exit": 0, **self._about(), "released": [id], "unparked": None}
        was = views.parked(self.state)
        did = await ledger.propose(lambda s: _wake(s, by))
        return {"type": "woken", "exit": 0, **self._about(), "released": [], "unparked": was if did else None}

    async def retry(self, p: wire.RetryParams, peer: Peer) -> Json:
        """The last turn once more; see `retrying`. Raises `Conflict` if there is nothing to retry.

        Durability: that it was asked for is on disk; a crash before the turn begins loses nothing.
        """
        ledger, by = self._guard_person(peer), peer.source()
        again = await ledger.propose(lambda s: retrying.decide(s, p.message, by))
        state = self.state
        return {
            "type": "retrying",
            "exit": 0,
            "session": self.id,
            "name": state.name,
            "message": again.message,
            "retry_of": again.of.number,
            "outcome": again.of.reason,
            "turn": again.turn,
            "attempts": list(state.receipts[again.message].attempts),
            "seq": again.seq,
            "reopened": again.reopened,
            "parked": views.parked(state),
            "warning": "stopping" if self.driver.draining else None,
        }

    def _about(self) -> Json:
        state = self.state
        runs = state.turn is not None or state.runnable
        return {
            "session": self.id,
            "name": state.name,
            "runs": runs,
            "turn": state.turn.number if state.turn else (state.last_turn + 1 if runs else None),
            "pending": {queue: len(state.queues[queue]) for queue in state.queues},
        }

    # --- waiting

    async def wait_message(self, id: str, *, stay: bool = False) -> Json:
        """The result of a message, once it has ended; at once when only a person can move it on.

        Cancellation: at any time, nothing is changed.
        """
        let_go = await self.recall(("m", id))
        try:
            return await self._wait_message(id, stay)
        finally:
            let_go()

    async def _wait_message(self, id: str, stay: bool) -> Json:
        began = trio.current_time()
        await self._go_on_if_owed()
        while True:
            if id not in self.state.receipts:
                raise NotFound(f'no message "{id}"', hint=f"dshctl queue -s {self.state.name}")
            waited = round((trio.current_time() - began) * 1000)
            result = views.settled(self.state, id, waited)
            if result is None:
                result = self._stuck(id, waited, stay)
            if result is not None:
                return result
            await self._next_change()

    async def wait_idle(self, *, stay: bool = False) -> Json:
        """A result with exit 0 once nothing runs and nothing is runnable; 18 if messages are parked."""
        began = trio.current_time()
        await self._go_on_if_owed()
        while True:
            if self.broken is not None:
                raise self.broken.refusal()
            if self._rests:
                waiting = self.state.pending - len(self.state.queues["held"])
                code = 18 if self.state.parked and waiting else 0
                if code == 0 or not stay:
                    waited = round((trio.current_time() - began) * 1000)
                    last = self.state.turns.get(self.state.last_turn)
                    return views.result(self.state, message=None, turn=last, exit=code, waited_ms=waited)
            await self._next_change()

    async def _go_on_if_owed(self) -> None:
        """A copied session may have an open turn that no start has closed; who waits needs its end."""
        if self.ledger is not None and self.ledger.owes and self.state.owes and self.usable:
            await self.start()
        self.driver.poke()
        self._watch_clock()

    @property
    def _rests(self) -> bool:
        quiet = self.ledger is None or self.ledger.idle
        return quiet and self.activity.phase == "idle" and self.state.turn is None and not self.state.runnable

    def _stuck(self, id: str, waited: int, stay: bool) -> Json | None:
        """The result of a message that can't end by itself any more."""
        if self.broken is not None:
            return views.result(self.state, message=id, turn=None, exit=7, waited_ms=waited)
        found, state = self.state.receipts[id], self.state
        if stay or found.state not in ("pending", "held"):
            return None
        person = found.queue == "held" and found.message.due is None
        if person or state.is_parked(id) or (self._rests and found.queue != "held"):
            unconfigured = None if person else self._unconfigured()
            code = 9 if unconfigured else 18
            return views.result(state, message=id, turn=unconfigured, exit=code, waited_ms=waited)
        return None

    def _unconfigured(self) -> EndedTurn | None:
        """The turn that parked the session because no model can be reached as things are set up."""
        state = self.state
        last = state.turns.get(state.last_turn) if state.parked and state.parked.by == "error" else None
        code = (last.error or {}).get("code") if last is not None else None
        return last if code in ("NO_ADAPTER", "MISSING_CREDENTIAL") else None

    async def _next_change(self) -> None:
        if self.ledger is None:
            await trio.sleep_forever()
        else:
            await self.ledger.changed.wait()

    # --- the queue

    def queue_ls(self, queue: Queue | None = None) -> Json:
        state = self.state
        rows = [
            views.queued(state, m)
            for q in ("next-step", "next-turn", "held")
            if queue in (None, q)
            for m in state.queues[q]
        ]
        return {"type": "queue", "session": self.show(), "messages": rows}

    def queue_show(self, id: str) -> Json:
        queueing.waiting(self.state, id)
        return views.message(self.state, id)

    async def queue_change(self, op: str, ids: Sequence[str], peer: Peer) -> Json:
        """``op``: first, last, promote, demote or rm."""
        ledger, by = self._guard_person(peer), peer.source()
        if op == "rm":
            await ledger.propose(lambda s: queueing.remove(s, ids, by))
        else:
            await ledger.propose(lambda s: queueing.move(s, op, ids, by))
        return {"type": "queue", "session": self.show(), "messages": [self.message(id) for id in ids]}

    async def queue_edit(self, p: wire.QueueEditParams, peer: Peer) -> Json:
        ledger, by = self._guard_person(peer), peer.source()
        content = attachments.content_of(p.text, p.content)
        await self._shelf.put(content.files)

        async def edited() -> Json:
            await ledger.propose(lambda s: queueing.edit(s, p.message, content.blocks, p.version, by))
            return self.message(p.message)

        return await self._shelf.during(content.files, edited)

    async def queue_undo(self, peer: Peer) -> Json:
        """Take back the newest removal; see `undo`. The messages as they are now."""
        ledger, by = self._guard_person(peer), peer.source()
        taken_back = await ledger.propose(lambda s: undo.decide(s, by))
        return {
            "type": "undone",
            "exit": 0,
            "session": self.id,
            "name": self.state.name,
            "cause": taken_back.cause,
            "at": taken_back.at,
            "by": taken_back.by,
            "messages": [self.message(id) for id in taken_back.ids],
        }

    async def queue_clear(self, queue: Queue | None, peer: Peer) -> Json:
        ledger, by = self._guard_person(peer), peer.source()
        ids = await ledger.propose(lambda s: queueing.clear(s, queue, by))
        return {"type": "queue", "session": self.show(), "messages": [self.message(id) for id in ids]}

    # --- looking

    def message(self, id: str) -> Json:
        if id not in self.state.receipts:
            raise NotFound(f'no message "{id}"', hint=f"dshctl queue -s {self.state.name}")
        return views.message(self.state, id)

    def why(self, id: str) -> Json:
        self.message(id)
        return why.why(
            self.state, id, self.activity, now=self._around.services.now(), broken_word=self.word,
            broken=self.broken.error if self.broken else None, draining=self.driver.draining,
        )  # fmt: skip

    def answer(self, message: str | None, n: int) -> Json:
        """The result of a message, or of the n-th newest turn that has an answer (from 1)."""
        if message is not None:
            self.message(message)
            result = views.settled(self.state, message)
            return result or views.result(self.state, message=message, turn=None, exit=18)
        turn = views.newest_answer(self.state, n)
        if turn is None:
            raise NotFound(f"{self.state.name} has no answer yet.", hint=f"dshctl log -s {self.state.name}")
        return views.result(self.state, message=turn.members[0] if turn.members else None, turn=turn)

    # --- as a thing

    async def change(self, values: Mapping[str, Any], peer: Peer) -> Json:
        """Set settings; what is None is unset."""
        ledger, by = self._guard_person(peer), peer.source()
        await ledger.propose(lambda s: s.emit("session/changed", {"set": dict(values), "by": by}))
        return self.show()

    async def close(self, clear: bool, peer: Peer) -> Json:
        """Close it. Raises `Conflict` while it runs or holds messages, unless ``clear``."""
        ledger, by = self._guard_person(peer), peer.source()
        if clear:
            await self.abort(wire.AbortParams(disposition="clear", reason="close"), peer)
        await ledger.propose(lambda s: _close(s, by))
        return self.show()

    async def reopen(self, peer: Peer) -> Json:
        ledger, by = self._guard_person(peer), peer.source()
        await ledger.propose(lambda s: s.emit("session/reopened", {"by": by}) if s.state.closed else None)
        return self.show()

    # --- the end of the daemon

    async def drain(self) -> None:
        """Wait until the running turn has ended and all that was asked is written."""
        while self.activity.phase != "idle" or (self.ledger is not None and not self.ledger.idle):
            await self._next_change()
        if self.keeper is not None:
            await self.keeper.finish()

    def let_go(self) -> None:
        """Close the log's file. The session may still be looked at, and refuses to be changed."""
        self.gone = True
        if self.ledger is not None:
            self.ledger.writer.close()


# --- decisions ---------------------------------------------------------------------------------------


def _tick(s: Scratch) -> None:
    queueing.expire(s)
    queueing.come_due(s)


def _abort(s: Scratch, number: int | None, asked: Abort) -> Json:
    turn = s.state.turn
    if turn is not None and number is not None and turn.number != number:
        raise Conflict(f"not aborted: turn {turn.number} runs now.", outcome="not-written")
    if turn is not None:
        s.emit("abort/requested", requested(turn.number, asked))
    cleared = queueing.clear(s, None, asked.by) if asked.disposition == "clear" else []
    return {"turn": turn.number if turn else None, "cleared": cleared}


def _wake(s: Scratch, by: Mapping[str, Any]) -> bool:
    """Emit `driver/woken` if that changes anything."""
    state = s.state
    waits = bool(state.queues["next-turn"]) or any(m.wake for m in state.queues["next-step"])
    if state.parked is None and (state.turn is not None or state.runnable or not waits):
        return False
    s.emit("driver/woken", {"by": dict(by)})
    return True


def _close(s: Scratch, by: Mapping[str, Any]) -> None:
    state = s.state
    if state.closed:
        return
    if state.turn is not None:
        raise Conflict(f"not closed: {state.name} runs turn {state.turn.number}.",
                       hint=f"dshctl close --clear {state.name}", outcome="not-written")  # fmt: skip
    if state.pending:
        raise Conflict(f"not closed: {state.name} holds {state.pending} messages.",
                       hint=f"dshctl close --clear {state.name}", outcome="not-written")  # fmt: skip
    s.emit("session/closed", {"by": dict(by)})


def _run_is_over(state: State) -> bool:
    return state.last_turn > 0 and state.turn is None and not state.pending and state.again is None


def _close_run(s: Scratch) -> None:
    if not s.state.closed and _run_is_over(s.state):
        s.emit("session/closed", {"by": {"kind": "system", "via": "run"}})
