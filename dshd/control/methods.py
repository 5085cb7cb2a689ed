"""What can be asked: one table, method to parameters, handler and rights.

A handler gets a `Call` and returns what is answered. It decides nothing about sessions: it finds the
session, asks it, and wraps the answer. Handlers that write find their session `in_order`, so that
requests sent one behind the other on a connection reach the session in that order; from there on they
run at the same time, and share a sync.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import attrs
import trio

from dshd import wire
from dshd.control import jsonrpc
from dshd.control.access import AgentMay, Rights
from dshd.control.feed import Follower, Hub, Watcher
from dshd.control.logfile import LogFile, Piece
from dshd.control.order import InOrder
from dshd.control.takeup import Gate, Settled, message_of
from dshd.control.uploads import Uploads
from dshd.errors import Conflict, Denied, DshError, Invalid, NotFound, Unavailable
from dshd.log.writer import hop
from dshd.session import views
from dshd.session.attachments import content_of
from dshd.session.loading import holding
from dshd.session.registry import Registry
from dshd.session.session import Session
from dshd.session.who import Peer
from dshd.spool import Spool, is_alias
from dshd.strict import structure

Json = dict[str, Any]


class Link(Protocol):
    """What a handler needs of the connection that asked."""

    in_order: InOrder
    reading: InOrder
    rights: Rights | None
    uploads: Uploads

    @property
    def backlog(self) -> int: ...

    def write(self, data: bytes) -> None: ...

    async def room(self) -> None: ...

    def greet(self, params: wire.HelloParams) -> Rights: ...

    def follow(self, follower: Follower) -> None:
        """Run it as long as the connection lives."""

    def watch(self, watcher: Watcher) -> None: ...

    def unfollow(self, session: str | None) -> None: ...

    def tie(self, session: str, message: str) -> None:
        """Abort this message's work when the connection ends."""

    async def gone(self) -> None:
        """Returns when nobody is there any more."""


class Process(Protocol):
    """What a handler needs of the daemon's process."""

    def hello(self) -> Json: ...

    def status(self) -> Json: ...

    async def reload(self) -> Json: ...

    def stop(self) -> None: ...


@attrs.frozen(slots=True)
class Room:
    """The daemon's, as handlers see it. ``creating``: one lookup that may make a session at a time;
    ``closing``: it is the end, and nothing more is begun; ``gate``: where sends wait for those that were
    spooled before them."""

    registry: Registry
    hub: Hub
    process: Process
    creating: InOrder = attrs.field(factory=InOrder)
    closing: trio.Event = attrs.field(factory=trio.Event)
    gate: Gate = attrs.field(factory=Gate)

    @property
    def spool(self) -> Spool:
        return Spool(self.registry.store.disk, self.registry.store.state)


@attrs.frozen(slots=True)
class Call:
    """One request: ``params`` is checked, ``rights`` are the connection's."""

    room: Room
    link: Link
    rights: Rights
    params: Any

    @property
    def registry(self) -> Registry:
        return self.room.registry

    @property
    def peer(self) -> Peer:
        return self.rights.peer

    async def session(self, *, exact: bool = False) -> Session:
        """The session that ``session`` and ``cwd`` mean."""
        return await self.registry.get(await self.id(exact=exact))

    async def id(self, *, exact: bool = False) -> str:
        return await self.registry.resolve(self.params.session, self.params.cwd, exact=exact)


@attrs.frozen(slots=True)
class Answer:
    """A result with something to do right behind it, in the same step."""

    result: Any
    then: Callable[[], None]


Handler = Callable[[Call], Awaitable[Any]]


@attrs.frozen(slots=True)
class Method:
    """``writes``: refused to readers, and carried through once begun, whatever becomes of the client.
    ``waits``: may take for ever, and costs nothing meanwhile. ``process``: about the daemon itself, and
    so answered to those who are one too many."""

    params: type[wire.Params]
    handler: Handler
    writes: bool = False
    agent: AgentMay = "yes"
    waits: bool = False
    process: bool = False


# ---------------------------------------------------------------- daemon


async def _hello(call: Call) -> Json:
    rights = call.link.greet(call.params)
    permissions = {"read": True, "write": rights.writes, "kind": rights.peer.kind}
    return {**call.room.process.hello(), "capabilities": sorted(METHODS), "permissions": permissions}


async def _status(call: Call) -> Json:
    sessions = await call.registry.views(True)
    closed = [one for one in sessions if one["state"] == "closed"]
    spool = call.room.spool
    spooled = await hop(spool.disk, spool.counts)
    return {
        **call.room.process.status(),
        "type": "status",
        "exit": 0,
        "sessions": [one for one in sessions if one["state"] != "closed"],
        "closed": len(closed),
        "closed_bytes": sum(one["bytes"] or 0 for one in closed),
        "spool": {**spooled._asdict(), "dir": str(spool.path)},
    }


async def _reload(call: Call) -> Json:
    return await call.room.process.reload()


async def _stop(call: Call) -> Answer:
    running = sum(one["state"] == "running" for one in await call.registry.views(False))
    return Answer({"type": "stopping", "exit": 0, "running": running}, call.room.process.stop)


async def _models(call: Call) -> Json:
    models = call.registry.services.models
    return {"type": "models", "models": models.rows(), "default": models.default}


# ---------------------------------------------------------------- sessions


async def _create(call: Call) -> Json:
    params: wire.CreateParams = call.params
    async with call.link.in_order:
        await call.room.gate.passed()
        async with call.room.creating:
            params = await _with_uploads(call, params)
            session, receipt = await _made(call, params)
    if params.tied and receipt is not None:
        call.link.tie(session.id, receipt["message"])
    return {"type": "created", "exit": 0, "session": session.show(), "receipt": receipt}


async def _made(call: Call, params: wire.CreateParams) -> tuple[Session, Json | None]:
    """A directory has one session made for it: asked for twice at once, it is made once."""
    if params.implicit and params.name is None:
        rows = [row for row in await call.registry.rows() if row.implicit and row.state != "closed"]
        found = next((row for row in rows if row.dir == params.dir), None)
        if found is not None:
            raise Conflict(
                f"{params.dir} has a session already: {found.name or found.id}.",
                hint=f"dshctl followup -s {found.name or found.id} 'TEXT'",
                outcome="not-written",
            )
    return await call.registry.create(params, call.peer)


async def _list(call: Call) -> Json:
    sessions = await call.registry.views(True)
    shown = [one for one in sessions if call.params.all or one["state"] != "closed"]
    cwd = call.params.cwd
    here = wire.session_of_directory(await call.registry.rows(), cwd) if cwd is not None else None
    return {
        "type": "sessions",
        "sessions": shown,
        "current": here.id if here else None,
        "more": 0,
        "closed": sum(one["state"] == "closed" for one in sessions),
    }


async def _show(call: Call) -> Json:
    return (await call.session()).show()


async def _set(call: Call) -> Json:
    values = await _settings(call)
    async with call.link.in_order:
        session = await call.session()
    return await session.change(values, call.peer)


async def _settings(call: Call) -> Json:
    """The values, checked as `wire.setting` would have read them."""
    values = call.params.values
    if not values:
        raise Invalid("nothing to set", hint="dshctl set mode=workspace")
    for name, value in values.items():
        if value is not None:
            _check_setting(call, name, value)
    if values.get("model") is not None:
        values = {**values, **await _model(call, values["model"])}
    return dict(values)


def _check_setting(call: Call, name: str, value: Any) -> None:
    if name.startswith("env.") and len(name) > len("env."):
        kind = "text"
    elif name in wire.SETTINGS:
        kind = wire.SETTINGS[name]
    else:
        raise Invalid(f'no setting "{name}"{wire.did_you_mean(name, wire.SETTINGS)}')
    if not _KINDS[kind](value):
        raise Invalid(f"expected {kind}, got {value!r} @ $.values.{name}")
    if name == "mode" and call.registry.services.config().within_policy(value) != value:
        raise Denied(f"the policy allows no mode above {call.registry.services.config().policy.max_mode}.")


_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "text": lambda value: isinstance(value, str),
    "directory": lambda value: isinstance(value, str) and value.startswith("/"),
    "mode": lambda value: value in wire.MODES,
    "ask": lambda value: value in ("wait", "deny"),
    "bool": lambda value: isinstance(value, bool),
    "duration": lambda value: type(value) in (int, float) and value >= 0,
}


async def _model(call: Call, ref: str) -> Json:
    models = call.registry.services.models
    choice = await models.choose(ref, client_is_terminal=True)
    return {"model": choice.ref, "model_why": choice.why, "adapter": models.adapter_name(choice.ref)}


async def _rename(call: Call) -> Json:
    return await call.registry.rename(await call.session(), call.params.name, call.peer)


async def _close(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session()
    return await session.close(call.params.clear, call.peer)


async def _reopen(call: Call) -> Json:
    _session, view = await call.registry.reopen(await call.session(), call.peer)
    return view


async def _delete(call: Call) -> Json:
    if call.params.session in (None, ".", ""):
        raise Invalid("say which session to remove", hint="dshctl rm NAME")
    id = await call.id(exact=True)
    removed = await call.registry.delete(id, call.params.force, call.peer)
    call.room.hub.forget(id)
    return removed


async def _fsck(call: Call) -> Json:
    params: wire.FsckParams = call.params
    if params.all and params.session is not None:
        raise Invalid("either one session or all @ $.all")
    ids = [row.id for row in await call.registry.rows()] if params.all else [await call.id()]
    if params.repair and params.all:
        raise Invalid("repair one session at a time", hint="dshctl fsck --repair NAME")
    if params.repair:
        call.rights.check("fsck --repair", True, "no")
        with trio.CancelScope(shield=True):  # it rewrites a file: to be ended, whoever asked
            report = await call.registry.repair(ids[0], call.peer)
        return _fsck_report([await call.registry.fsck(ids[0], requests=True) if params.requests else report])
    if not params.all:
        return _fsck_report([await call.registry.fsck(ids[0], requests=params.requests)])
    return _fsck_report([await _fsck_one(call, id) for id in ids])


async def _fsck_one(call: Call, id: str) -> Json:
    """One of all: what can't be looked at is a finding, and the others are looked at."""
    try:
        return await call.registry.fsck(id, requests=call.params.requests)
    except DshError as error:
        return {
            "type": "fsck", "session": id, "name": id, "ok": False, "events": 0, "bytes": 0,
            "problem": error.message, "hint": error.hint, "requests": None, "exit": 7,
        }  # fmt: skip


def _fsck_report(reports: list[Json]) -> Json:
    return {"type": "fsck", "exit": max((r["exit"] for r in reports), default=0), "sessions": reports}


# ---------------------------------------------------------------- saying something


async def _send(call: Call) -> Json:
    params: wire.SendParams = call.params
    async with call.link.in_order:
        await call.room.gate.passed()
        params.check()
        try:
            session, created = await _destination(call, params)
        except NotFound as missing:
            return _would_make(params, missing)
        call.rights.check_session(session.id)
        params = await _with_uploads(call, params)
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


P = TypeVar("P", bound=wire.Params)


async def _with_uploads(call: Call, params: P) -> P:
    """The same with the texts that were put before, by `attachment.put`."""
    content = getattr(params, "content", None)
    return params if content is None else params.replace(content=await call.link.uploads.taken(content))


async def _put(call: Call) -> Json:
    async with call.link.in_order:
        params: wire.AttachmentPutParams = call.params
        return await call.link.uploads.put(params.upload, params.text, call.registry.store.state)


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


async def _interrupt(call: Call) -> Json:
    async with call.link.in_order:
        await call.room.gate.passed()
        session = await call.session()
        params = await _with_uploads(call, call.params)
        content = await session.prepare(params)
    return await session.interrupt(params, call.peer, content)


async def _abort(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session()
    return await session.abort(call.params, call.peer)


async def _retry(call: Call) -> Json:
    params: wire.RetryParams = call.params
    async with call.link.in_order:
        session = await _of(call, params.message) if params.message else await call.session()
    done: Json = await session.retry(params, call.peer)
    if params.tied:
        call.link.tie(session.id, done["message"])
    return done


async def _wake(call: Call) -> Json:
    params: wire.WakeParams = call.params
    if params.all:
        return await _wake_all(call)
    async with call.link.in_order:
        session = await _of(call, params.message) if params.message else await call.session()
    return await session.wake(params, call.peer)


async def _of(call: Call, message: str) -> Session:
    return await call.registry.of_message(message)


async def _wake_all(call: Call) -> Json:
    parked = [one["id"] for one in await call.registry.views(False) if one["parked"]]
    params = call.params.replace(all=False)
    sessions = [await (await call.registry.get(id)).wake(params, call.peer) for id in parked]
    return {"type": "woken", "exit": 0, "sessions": sessions}


async def _wait(call: Call) -> Json:
    params: wire.WaitParams = call.params
    if not params.messages:
        session = await call.session()
        return {"type": "waited", "results": [await session.wait_idle(stay=params.stay)]}
    results = await _together([partial(_wait_one, call, message) for message in params.messages])
    return {"type": "waited", "results": results}


async def _wait_one(call: Call, message: str) -> Json:
    session = await _of(call, message)
    return await session.wait_message(message, stay=call.params.stay)


async def _together(works: Iterable[Callable[[], Awaitable[Json]]]) -> list[Json]:
    """All at once; answers in the order asked. The first error ends all."""
    answers: dict[int, Json] = {}

    async def one(index: int, work: Callable[[], Awaitable[Json]]) -> None:
        answers[index] = await work()

    try:
        async with trio.open_nursery() as nursery:
            for index, work in enumerate(works):
                nursery.start_soon(one, index, work)
    except BaseExceptionGroup as group:
        raise _first_of(group) from None
    return [answers[index] for index in sorted(answers)]


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    ours = group.subgroup(DshError)
    found: BaseException = ours if ours is not None else group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if ours is not None else group


# ---------------------------------------------------------------- queues and messages


async def _queue_ls(call: Call) -> Json:
    return (await call.session()).queue_ls(call.params.queue)


async def _queue_show(call: Call) -> Json:
    return (await _of(call, call.params.message)).queue_show(call.params.message)


async def _queue_edit(call: Call) -> Json:
    async with call.link.in_order:
        session = await _of(call, call.params.message)
        params = await _with_uploads(call, call.params)
    return await session.queue_edit(params, call.peer)


def _queue_change(op: str) -> Handler:
    async def change(call: Call) -> Json:
        messages = call.params.messages
        if len({wire.session_of(message) for message in messages}) != 1:
            raise Invalid("name messages of one session @ $.messages")
        async with call.link.in_order:
            session = await _of(call, messages[0])
        return await session.queue_change(op, messages, call.peer)

    return change


async def _queue_clear(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session()
    return await session.queue_clear(call.params.queue, call.peer)


async def _queue_undo(call: Call) -> Json:
    async with call.link.in_order:
        session = await call.session()
    return await session.queue_undo(call.peer)


async def _message(call: Call) -> Json:
    return (await _of(call, call.params.message)).message(call.params.message)


async def _why(call: Call) -> Json:
    return (await _of(call, call.params.message)).why(call.params.message)


async def _answer(call: Call) -> Json:
    params: wire.AnswerShowParams = call.params
    if params.n < 1:
        raise Invalid("counts from 1 @ $.n")
    session = await _of(call, params.message) if params.message else await call.session()
    return session.answer(params.message, params.n)


# ---------------------------------------------------------------- logs


async def _log_read(call: Call) -> Json:
    """Events as notifications, at the pace at which the client takes them, then the answer."""
    params: wire.LogReadParams = call.params
    session, hub = await call.id(), call.room.hub
    until = await hub.head(session)
    log = hub.log(session)
    offset, end = await _span(hub, log, session, params)
    last = None
    while offset < end:
        async with call.link.reading:
            await call.link.room()
            piece: Piece = await hub.reading(partial(log.piece, offset, until))
            lines = [line for line in piece.lines if line.offset < end]
            data = [jsonrpc.event_line(session, line.raw) for line in lines
                    if params.chunks or line.type != "assistant/chunk"]  # fmt: skip
            call.link.write(b"".join(data))
        last, offset = lines[-1] if lines else last, piece.offset
        if not piece.more:
            break
    at = {"seq": last.seq, "crc": last.crc} if last else None
    return {"type": "log", "session": session, "at": at, "damage": log.damage}


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


async def _log_follow(call: Call) -> Answer:
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


async def _log_unfollow(call: Call) -> Json:
    call.link.unfollow(call.params.session)
    return {"type": "unfollowed", "session": call.params.session}


# ---------------------------------------------------------------- the table

_TABLE: Final = (
    Method(wire.HelloParams, _hello, process=True),
    Method(wire.StatusParams, _status, process=True),
    Method(wire.ReloadParams, _reload, writes=True, agent="no", process=True),
    Method(wire.StopParams, _stop, writes=True, agent="no", process=True),
    Method(wire.ModelListParams, _models),
    Method(wire.CreateParams, _create, writes=True, agent="no"),
    Method(wire.ListParams, _list),
    Method(wire.ShowParams, _show),
    Method(wire.SetParams, _set, writes=True, agent="no"),
    Method(wire.RenameParams, _rename, writes=True, agent="no"),
    Method(wire.CloseParams, _close, writes=True, agent="no"),
    Method(wire.ReopenParams, _reopen, writes=True, agent="no"),
    Method(wire.DeleteParams, _delete, writes=True, agent="no"),
    Method(wire.FsckParams, _fsck),
    Method(wire.SendParams, _send, writes=True, agent="own"),
    Method(wire.InterruptParams, _interrupt, writes=True, agent="no"),
    Method(wire.AbortParams, _abort, writes=True, agent="no"),
    Method(wire.RetryParams, _retry, writes=True, agent="no"),
    Method(wire.WakeParams, _wake, writes=True, agent="no"),
    Method(wire.WaitParams, _wait, waits=True),
    Method(wire.QueueLsParams, _queue_ls),
    Method(wire.QueueShowParams, _queue_show),
    Method(wire.QueueEditParams, _queue_edit, writes=True, agent="no"),
    Method(wire.QueueFirstParams, _queue_change("first"), writes=True, agent="no"),
    Method(wire.QueueLastParams, _queue_change("last"), writes=True, agent="no"),
    Method(wire.QueuePromoteParams, _queue_change("promote"), writes=True, agent="no"),
    Method(wire.QueueDemoteParams, _queue_change("demote"), writes=True, agent="no"),
    Method(wire.QueueRmParams, _queue_change("rm"), writes=True, agent="no"),
    Method(wire.QueueClearParams, _queue_clear, writes=True, agent="no"),
    Method(wire.QueueUndoParams, _queue_undo, writes=True, agent="no"),
    Method(wire.AttachmentPutParams, _put, writes=True, agent="own"),
    Method(wire.MessageShowParams, _message),
    Method(wire.MessageWhyParams, _why),
    Method(wire.AnswerShowParams, _answer),
    Method(wire.LogReadParams, _log_read, waits=True),
    Method(wire.LogFollowParams, _log_follow),
    Method(wire.LogUnfollowParams, _log_unfollow),
)



def _by_alias(method: Method) -> Method:
    """The same method for messages that are called ``spool:<uuid>``, too."""
    fields = [name for name in ("message", "messages") if name in method.params.fields]
    if not fields:
        return method
    field, handler = fields[0], method.handler

    async def handle(call: Call) -> Any:
        named = getattr(call.params, field)
        several = (named,) if isinstance(named, str) else named or ()
        if not any(map(is_alias, several)):
            return await handler(call)
        real = [await _real(call, message) for message in several]
        changed = call.params.replace(**{field: real[0] if isinstance(named, str) else tuple(real)})
        return await handler(attrs.evolve(call, params=changed))

    return attrs.evolve(method, handler=handle)


async def _real(call: Call, message: str) -> str:
    return await message_of(call.room.spool, call.room.gate, message) if is_alias(message) else message


METHODS: Final[dict[str, Method]] = {method.params.method: _by_alias(method) for method in _TABLE}

structure({}, wire.SendParams)  # has its code compiled now, and not while the first sender waits
