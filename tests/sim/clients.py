"""What clients do, and what each answer promises them. `Player` plays them; `check` holds the promises."""

from __future__ import annotations

import io
import math
from typing import Any

import trio

from dshd import wire
from dshd.errors import Conflict, DshError, Full, Internal, Invalid, NoSpace, NotFound
from dshd.session.owner.loading import holding
from dshd.session.owner.session import Session
from tests.sim import check
from tests.sim.oracle import as_logged
from tests.sim.plan import Action
from tests.sim.world import ME, Life

NEVER_WRITTEN = (Conflict, Full, Invalid, NoSpace, NotFound)
FLAGS = ("in_", "expires", "hold", "tag", "supersede", "on_crash", "when_full", "dry_run", "retry")


class Clients:
    def __init__(self, life: Life, trace: Any) -> None:
        self.life, self.past, self._trace = life, life.past, trace
        self.busy = 0
        self.quiet = trio.Event()

    def say(self, what: str) -> None:
        if self._trace is not None and not self.life.dead:
            self._trace(f"{trio.current_time():10.3f} life {self.life.number}: {what}")

    async def client(self, action: Action) -> None:
        try:
            with holding():
                await self._asks(action)
            self.past.count(f"done: {action.kind}")
        except Internal as error:
            self.life.find(f"{action}: answered {error}")
        except DshError as error:
            self.past.count(f"refused: {type(error).__name__}")
            self.say(f"   {action.kind}: refused: {error}")
        finally:
            self.busy -= 1
            if not self.busy:
                self.quiet.set()

    async def _asks(self, action: Action) -> None:
        await self.life.gate.passed()
        if action.kind == "create":
            return await self.create(action.args)
        session = await self.life.session(action.args.get("s", 0))
        if session is not None:
            with trio.move_on_after(_or_inf(action.args.get("gives_up"))):
                await getattr(self, action.kind)(session, action.args)

    def promise(self, *what: Any) -> None:
        if not self.life.dead:
            self.past.promises.append(what)

    def text(self, *, long: bool = False) -> str:
        self.past.texts += 1
        some = 20 if self.life.plan.windows is not None else 0
        return f"text {self.past.texts}" + " and so on" * (40 if long else some)

    def pick(self, session: Session, at: int) -> str | None:
        """A message that somebody knows of: one that waits, mostly."""
        waiting = [m.id for items in session.state.queues.values() for m in items]
        known = waiting if at % 5 and waiting else [m for s, m in self.past.receipts if s == session.id]
        return known[at % len(known)] if known else None

    async def create(self, args: dict[str, Any]) -> None:
        text = self.text(long=args.get("long", False)) if args["text"] else None
        if args["key"] and text:
            text = self.past.keys.setdefault(("", args["key"]), text)
        ask: wire.Ask | None = "wait" if self.life.plan.asks is not None else None
        params = wire.CreateParams(dir="/", mode="full", run=args["run"], text=text, key=args["key"], ask=ask)
        session, receipt = await self.life.registry.create(params, ME)
        if self.life.dead:
            return
        self.say(f"   created {session.id}")
        if args["key"] and text:
            self._same_run(args["key"], session)
        if session.id not in self.past.sessions:
            self.past.sessions.append(session.id)
        if receipt is not None and text is not None:
            self.received(session, text, args["key"], receipt)

    def _same_run(self, key: str, session: Session) -> None:
        """A run's key names one session, in the whole state directory and for ever."""
        first = self.past.runs.setdefault(key, session.id)
        if first != session.id and first not in self.past.maybe:
            self.life.find(f"run key {key} made {session.id}, and {first} before")
        self.past.runs[key] = session.id

    def received(self, session: Session, text: str, key: str | None, receipt: Any) -> None:
        if self.life.dead:
            return
        id = receipt["message"]
        self.say(f"   {text!r} is {id}, {receipt['state']} in {receipt['queue']}"
                 f"{', a duplicate' if receipt['duplicate'] else ''}")  # fmt: skip
        self.past.receipts.append((session.id, id))
        self.promise("sent", session.id, id, as_logged(text))
        if key is not None:
            self.promise("key", session.id, key, id)

    def keyed(self, session: Session, args: dict[str, Any]) -> str:
        """The text to send: one of its own, or (mostly) the one that the key was used for first."""
        text = self.text(long=args.get("long", False))
        if args["key"] and not args.get("other"):
            text = self.past.keys.setdefault((session.id, args["key"]), text)
        self.past.said[as_logged(text)] = self.past.said.get(as_logged(text), 0) + 1
        return text

    def denied(self, session: Session, text: str, error: DshError) -> None:
        never = isinstance(error, NEVER_WRITTEN) or error.outcome == "not-written"
        if never and not self.life.dead:
            self.past.denied[as_logged(text)] = session.id

    async def send(self, session: Session, args: dict[str, Any]) -> None:
        text, turn = self.keyed(session, args), session.state.turn
        number = turn.number if turn else session.state.last_turn
        only = args["only"]
        params = wire.SendParams(
            verb=args["verb"], text=text, key=args["key"], first=args["first"], as_=args["as_"],
            no_wake=args["no_wake"], if_idle=only == "idle", if_empty=only == "empty",
            if_turn={"turn": number, "late": number - 1}.get(only or ""),
            **_flags(args),
        )  # fmt: skip
        try:
            receipt = await session.send(params, ME)
        except DshError as error:
            self.denied(session, text, error)
            raise
        if args.get("dry_run"):
            self.past.denied[as_logged(text)] = session.id
            return
        self.received(session, text, args["key"], receipt)

    async def interrupt(self, session: Session, args: dict[str, Any]) -> None:
        text = self.keyed(session, args)
        try:
            receipt = await session.interrupt(
                wire.InterruptParams(text=text, keep=args["keep"], key=args["key"]), ME
            )
        except DshError as error:
            self.denied(session, text, error)
            raise
        self.received(session, text, args["key"], receipt)

    async def abort(self, session: Session, args: dict[str, Any]) -> None:
        turn, last = session.state.turn, session.state.last_turn
        number = {"now": turn.number if turn else None, "next": last + 1}.get(args["turn"] or "")
        params = wire.AbortParams(turn=number, disposition=args["disposition"])
        answer = await session.abort(params, ME)
        if self.life.dead or answer["turn"] is None:
            return
        number, id = answer["turn"], session.id
        self.promise("aborted", id, number)
        if session.broken is None:
            self.promise("over", id, number, answer["outcome"])
        still = [c for s, c in self.life.running if s == id and c.startswith(f"t{number}_")]
        if still:
            self.life.find(f"{id}: abort of turn {number} was answered, and {still} still run")
        for message in answer["cleared"]:
            self.promise("gone", id, message, "cleared")

    async def wake(self, session: Session, args: dict[str, Any]) -> None:
        await session.wake(wire.WakeParams(), ME)

    async def release(self, session: Session, args: dict[str, Any]) -> None:
        id = self.pick(session, args["at"])
        if id is not None:
            await session.wake(wire.WakeParams(message=id), ME)

    async def move(self, session: Session, args: dict[str, Any]) -> None:
        ids = [id for at in args["at"] if (id := self.pick(session, at)) is not None]
        if ids:
            await session.queue_change(args["how"], ids, ME)
            self.past.count("moved")
            self.promise("moved", session.id, tuple(sorted(set(ids))))

    async def remove(self, session: Session, args: dict[str, Any]) -> None:
        ids = [id for at in args["at"] if (id := self.pick(session, at)) is not None]
        self.past.removals.update(ids)
        if ids:
            await session.queue_change("rm", ids, ME)
            for id in ids:
                self.promise("gone", session.id, id, "removed")

    async def edit(self, session: Session, args: dict[str, Any]) -> None:
        id, text = self.pick(session, args["at"]), self.text(long=args.get("long", False))
        if id is None:
            return
        version = session.state.receipts[id].message.version if args["version"] == "now" else args["version"]
        await session.queue_edit(wire.QueueEditParams(message=id, text=text, version=version), ME)
        self.promise("edited", session.id, as_logged(text))

    async def clear(self, session: Session, args: dict[str, Any]) -> None:
        waiting = [
            m.id for q, items in session.state.queues.items() for m in items if args["queue"] in (None, q)
        ]
        await session.queue_clear(args["queue"], ME)
        for id in waiting:
            if session.state.receipts[id].state == "cleared":
                self.promise("gone", session.id, id, "cleared")

    async def wait(self, session: Session, args: dict[str, Any]) -> None:
        id = self.pick(session, args["at"])
        if id is None:
            return
        with trio.move_on_after(_or_inf(args["for"])):
            result = await session.wait_message(id, stay=args["stay"])
            if result["outcome"] is not None and result["exit"] not in (7, 16, 18):
                self.promise("ended", session.id, id, result["outcome"], result["turn"])

    async def wait_idle(self, session: Session, args: dict[str, Any]) -> None:
        with trio.move_on_after(200):
            await session.wait_idle(stay=args["stay"])

    async def answer(self, session: Session, args: dict[str, Any]) -> None:
        """Of all that waits for one, whichever session's."""
        ids = [asked["id"] for asked in self.life.registry.approvals.open()]
        if args["again"]:
            ids = [promise[2] for promise in self.past.promises if promise[0] == "answered"]
        if ids:
            await self.give(ids[args["at"] % len(ids)], args["answer"], args["scope"])

    async def give(self, id: str, answer: str, scope: str) -> None:
        given: Any = {"answer": answer, "scope": scope if answer == "allow" else "once"}
        session = await self.life.registry.approvals.session_of(id)
        params = wire.ApprovalAnswerParams(id=id, **given)
        await self.life.registry.approvals.answer(session, params, ME)
        self.promise("answered", session.id, id, answer)

    async def compact(self, session: Session, args: dict[str, Any]) -> None:
        answer = await session.compact(ME)
        self.past.count(f"compact: {answer['outcome']}")
        if answer["outcome"] == "done":
            self.promise("compacted", session.id, answer["compaction"], answer["hidden"])

    async def retry(self, session: Session, args: dict[str, Any]) -> None:
        id = self.pick(session, args["at"]) if args["named"] else None
        answer = await session.retry(wire.RetryParams(message=id), ME)
        self.promise("retried", session.id, answer["turn"])

    async def wake_all(self, session: Session, args: dict[str, Any]) -> None:
        views = await self.life.registry.views(False)
        for id in [view["id"] for view in views if view["parked"] or view["waits"] == "provider"]:
            await (await self.life.registry.get(id)).wake(wire.WakeParams(), ME)

    async def rename(self, session: Session, args: dict[str, Any]) -> None:
        await self.life.registry.rename(session, args["name"], ME)
        self.promise("changed", session.id, args["name"])

    async def remove_session(self, session: Session, args: dict[str, Any]) -> None:
        self.past.maybe.add(session.id)
        try:
            await self.life.registry.delete(session.id, args["force"], ME)
        except DshError as error:
            if error.outcome == "not-written" and not self.life.dead:
                self.past.maybe.discard(session.id)
            raise
        if not self.life.dead:
            self.past.removed.add(session.id)

    async def fork(self, session: Session, args: dict[str, Any]) -> None:
        at = args["at"] % (session.state.seq + 1) if args["at"] is not None else None
        answer = await self.life.registry.fork(session, wire.ForkParams(at=at), ME)
        if self.made(answer["session"]):
            check.same_history(self.life, session.id, answer["session"], answer["seq"])

    async def copy(self, session: Session, args: dict[str, Any]) -> None:
        """An export, and its import as a new session."""
        export, pieces = await self.life.registry.export(session.id), []
        while piece := await export.next():
            pieces.append(piece)
        params = wire.ImportParams(upload="", as_new=True)
        answer = await self.life.registry.take(io.BytesIO(b"".join(pieces)).read, params, ME)
        self.made(answer["session"])

    def made(self, id: str) -> bool:
        """Note a session that was acknowledged, and say whether anybody is there to see it."""
        if self.life.dead:
            return False
        self.say(f"   made {id}")
        self.past.sessions.append(id)
        return True

    async def fsck(self, session: Session, args: dict[str, Any]) -> None:
        answer = await self.life.registry.fsck(session.id)
        if not answer["ok"] and session.broken is None and not self.life.weather:
            self.life.find(f"{session.id}: fsck says {answer['problem']}")

    async def undo(self, session: Session, args: dict[str, Any]) -> None:
        await session.queue_undo(ME)

    async def close(self, session: Session, args: dict[str, Any]) -> None:
        await session.close(args["clear"], ME)

    async def reopen(self, session: Session, args: dict[str, Any]) -> None:
        await self.life.registry.reopen(session, ME)

    async def change(self, session: Session, args: dict[str, Any]) -> None:
        await session.change({"patience": args["value"]}, ME)
        self.promise("changed", session.id, args["value"])

    async def look(self, session: Session, args: dict[str, Any]) -> None:
        """Nobody is shown what is not told, nor told what is not shown."""
        session.show()
        session.queue_ls()
        for id in list(dict(session.state.receipts.items())):
            session.message(id)
            session.why(id)
        told = self.past.told.get(session.id, [])
        if session.id in self.life.followed and session.broken is None and len(told) != session.state.seq + 1:
            self.life.find(f"{session.id}: shown up to seq {session.state.seq}, told {len(told)} lines")


def _flags(args: dict[str, Any]) -> dict[str, Any]:
    flags = {name: args[name] for name in FLAGS if name in args}
    return flags | {"retry": bool(flags.get("retry") and args["key"])}


def _or_inf(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds
