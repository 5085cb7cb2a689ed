"""One client: its requests in, answers and events out, and what happens when it is slow or gone.

Rules. Requests are answered as they get done, not in order; those that write reach their session in the
order in which they came (`InOrder`). At most `MOST` are under way, those that only look one at a time, and
none is begun while much of what we said is not taken: who doesn't read isn't served, and costs no more
than one answer.

`write` never waits: it gives the kernel what it takes, and the rest to the writing task, whose only
patience is `STALL_S` without a byte taken. So a stopped client delays nobody, neither a turn nor another
client.

A client that is gone (not one that has only finished sending: ``echo ... | nc -U``) cancels what it waits
for, never what it asked to be written: writing requests run in the daemon's nursery, to their end.

States, and what leads from one to the next:

- ``new``: only hello is taken, for `HELLO_S` s;
- ``open``: everything is;
- ``ending``: nothing more is read; what is under way is answered;
- ``closed``.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

import attrs
import trio

from dshd.control import jsonrpc
from dshd.control.access import Rights
from dshd.control.calls import Answer, Call, Following, Room
from dshd.control.encoding import Data
from dshd.control.feed import UNSENT, Watcher
from dshd.control.framing import Framer
from dshd.control.jsonrpc import Id, Refused, Request
from dshd.control.methods import METHODS, Method
from dshd.control.refusals import worded
from dshd.control.uploads import Uploads
from dshd.errors import Conflict, DshError, Full, Internal, Invalid, NotFound, Unavailable
from dshd.order import InOrder
from dshd.session.fold.who import Peer
from dshd.session.owner.loading import holding
from dshd.strict import Wrong, dotted, structure
from dshd.wire import (
    GONE,
    MAX_LINE,
    PROTOCOL,
    AbortParams,
    HelloParams,
    Params,
    did_you_mean,
)  # fmt: skip

log = logging.getLogger(__name__)

State = Literal["new", "open", "ending", "closed"]
Event = Literal["hello", "no more", "done", "gone"]

TABLE: Final[dict[State, dict[Event, State]]] = {
    "new": {"hello": "open", "no more": "ending", "gone": "closed"},
    "open": {"hello": "open", "no more": "ending", "gone": "closed"},
    "ending": {"hello": "ending", "done": "closed", "gone": "closed"},
    "closed": {},
}

PIECE: Final = 64 * 1024  # bytes read at once
MOST: Final = 64  # requests under way at once; one more is not read
MOST_WAITS: Final = 1000  # waits, which cost next to nothing
MOST_FOLLOWED: Final = 10_000
SMALL: Final = UNSENT // 2  # bytes; with less unsent there is room for more
TOGETHER: Final = 16 * 1024  # bytes; of shorter unsent pieces one is made, for each costs something, too
HELLO_S: Final = 30.0
STALL_S: Final = 30.0  # without a byte taken, the client counts as gone
LOOK_S: Final = 1.0  # between looks at a client that has finished sending: is it still there?
LOOK_AGAIN_S: Final = 0.02  # after a message has moved on while it was being stopped
LINGER_S: Final = 5.0  # for a refused client to finish its line and read why
LINGER_BYTES: Final = 8 * MAX_LINE


class Socket:
    """A connected Unix stream socket, as a connection needs it. Errors mean: the peer is gone."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    async def receive(self) -> bytes:
        """What came; empty at its end."""
        while True:
            await trio.lowlevel.wait_readable(self._sock)
            try:
                return self._sock.recv(PIECE)
            except BlockingIOError:
                continue
            except OSError:
                return b""

    def send_now(self, data: bytes | memoryview) -> int:
        """How many bytes the kernel took, without waiting. Raises OSError if nobody is there."""
        try:
            return self._sock.send(data, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0

    async def writable(self) -> None:
        await trio.lowlevel.wait_writable(self._sock)

    def finish(self) -> None:
        """Nothing more will be sent."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def is_gone(self) -> bool:
        """Whether the peer has closed, and not only finished sending."""
        poll = select.poll()
        poll.register(self._sock, 0)
        return any(flags & (select.POLLHUP | select.POLLERR) for _fd, flags in poll.poll(0))

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()


class Connection:
    """``writes`` is the daemon's nursery for what must be carried through. ``brief``: one client too
    many, to be served only what concerns the daemon itself, and not for long."""

    def __init__(self, sock: Socket, room: Room, peer: Peer, writes: trio.Nursery, *, brief: bool = False):
        self.in_order = InOrder()
        self.reading = InOrder()
        self._looking = InOrder()
        self.rights: Rights | None = None
        self._state: State = "new"
        self._sock = sock
        self._room = room
        self._peer = peer
        self._writes = writes
        self._brief = brief
        self._scope = trio.CancelScope()
        self._patience = trio.CancelScope()
        self._nursery: trio.Nursery
        self._under_way = 0
        self._waits = 0
        self._starting = 0  # tasks of requests that have not begun to run
        self._changed: trio.Event | None = None  # there while somebody waits for a change
        self._unsent: deque[memoryview] = deque()
        self._backlog = 0
        self._to_send = trio.Event()
        self._followers: dict[Following, None] = {}
        self._watchers: dict[Watcher, None] = {}
        self._tied: list[tuple[str, str]] = []
        self._gone = trio.Event()
        self.uploads = Uploads()

    # ---------------------------------------------------------------- life

    async def serve(self) -> None:
        """Until the client is done or gone, or the caller is cancelled. Never raises an error."""
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(self._send_rest)
                    await self._read()
                    self._step("no more")
                    await self._finish()
                    self._lose("done")
        finally:
            self._state = "closed"
            self._gone.set()
            self._leave()
            self.uploads.close()
            self._sock.close()

    def _step(self, event: Event) -> None:
        self._state = TABLE[self._state].get(event, self._state)

    def _lose(self, why: Event = "gone") -> None:
        """Nobody is there any more: end what is done for them alone."""
        self._step(why)
        self._scope.cancel()

    def _leave(self) -> None:
        for watcher in self._watchers:
            self._room.hub.unwatch(watcher)
        for session, message in () if self._room.closing.is_set() else self._tied:
            self._writes.start_soon(self._abort_tied, session, message)

    async def _finish(self) -> None:
        """Answer what is under way; look now and then whether somebody still listens."""
        while self._under_way or self._followers or self._backlog:
            if self._sock.is_gone():
                return self._lose()
            with trio.move_on_after(LOOK_S):
                await self._change()

    def _note(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    # ---------------------------------------------------------------- in

    async def _read(self) -> None:
        framer = Framer()
        self._patience.deadline = trio.current_time() + HELLO_S
        with self._patience:
            while not framer.oversized:
                await self.room()
                data = await self._sock.receive()
                if not data:
                    return self._lose() if self._sock.is_gone() else None
                for line in framer.feed(data):
                    await self._take(line)
        if framer.oversized:
            self._refuse(None, jsonrpc.Malformed(f"a line has more than {MAX_LINE} bytes; hanging up"))
            await self._linger()
        elif self._state == "new":
            self._refuse(None, Unavailable(f"nothing was said for {HELLO_S:g} s; hanging up"))

    async def _linger(self) -> None:
        """A socket closed with unread bytes resets the peer before it has read why: so say that this is
        the end, and read what it still sends."""
        rest = LINGER_BYTES
        with trio.move_on_after(LINGER_S):
            while self._backlog:
                await self._change()
            self._sock.finish()
            while rest > 0 and (data := await self._sock.receive()):
                rest -= len(data)

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        request = jsonrpc.parse(line)
        if isinstance(request, Refused):
            return self._refuse(request.id, request.error)
        try:
            method, params = self._admit(request)
        except DshError as error:
            return self._refuse_request(request, error)
        await self._begin(request, method, params)

    def _admit(self, request: Request) -> tuple[Method, Params]:
        """The method and its checked parameters. Raises `Invalid`, `Denied`, `Unavailable`, `Full`."""
        method = METHODS.get(request.method)
        if method is None:
            near = did_you_mean(request.method, METHODS)
            raise jsonrpc.UnknownMethod(f"no method {request.method!r}{near}")
        greets = method.params is HelloParams
        if self.rights is None and not greets:
            raise Invalid("daemon.hello comes first", outcome="not-written")
        if self.rights is not None and not greets:
            self.rights.check(request.method, method.writes, method.agent)
        if self._brief and not method.process:
            raise Unavailable("too many clients are connected.", outcome="not-written")
        if self._room.closing.is_set():
            raise Unavailable("dshd is stopping.", outcome="not-written")
        params = _checked(request.params, method.params)
        if _waits(method, params) and self._waits >= MOST_WAITS:
            raise Full(f"this connection waits for {MOST_WAITS} things already.", outcome="not-written")
        return method, params

    async def _begin(self, request: Request, method: Method, params: Params) -> None:
        """Start it, in the order of the lines: the next one isn't looked at before this one has run up
        to its first wait."""
        if method.params is HelloParams:
            return await self._run(request, method, params)
        await self.room()
        waits = _waits(method, params)
        while not waits and self._under_way - self._waits >= MOST:
            await self._change()
        if method.offer is not None and not self._starting and self._offer(request, method, params):
            return
        self._under_way += 1
        self._starting += 1
        self._waits += waits
        nursery = self._writes if method.writes else self._nursery
        nursery.start_soon(self._do, request, method, params, waits)
        await trio.lowlevel.checkpoint()

    def _offer(self, request: Request, method: Method, params: Params) -> bool:
        """Begin it without a task; False if it needs one."""
        assert method.offer is not None
        call = self._call(params)
        try:
            if not method.offer(call, partial(self._told, request, method)):
                return False
        except Exception as error:
            self._fail(request, method, error)
        else:
            self._under_way += 1
        return True

    def _told(self, request: Request, method: Method, result: Callable[[], Any]) -> None:
        self._under_way -= 1
        self._note()
        try:
            answer = result()
        except Exception as error:
            self._fail(request, method, error)
        else:
            self._answer(request, answer)

    async def _do(self, request: Request, method: Method, params: Params, waits: bool) -> None:
        self._starting -= 1
        try:
            if method.writes or method.waits:
                await self._run(request, method, params)
            else:
                await self._look(request, method, params)
        finally:
            self._under_way -= 1
            self._waits -= waits
            self._note()

    async def _look(self, request: Request, method: Method, params: Params) -> None:
        """One at a time: answers can be long, and there shall be one of them in memory, not `MOST`."""
        async with self._looking:
            await self.room()
            await self._run(request, method, params)

    async def _run(self, request: Request, method: Method, params: Params) -> None:
        try:
            with holding():
                result = await method.handler(self._call(params))
        except Exception as error:
            self._fail(request, method, error)
        else:
            self._answer(request, result)

    def _call(self, params: Params) -> Call:
        return Call(self._room, self, self.rights or Rights(self._peer, writes=False), params)

    def _fail(self, request: Request, method: Method, error: Exception) -> None:
        """The boundary: what isn't a refusal is a mistake of ours, and of this request alone."""
        if isinstance(error, DshError):
            return self._refuse_request(request, worded(request.method, error))
        log.error("%s failed", request.method, exc_info=error)
        outcome = "unknown" if method.writes else None
        what = f"{request.method} failed; the daemon's log has the details"
        self._refuse_request(request, Internal(what, outcome=outcome))

    def _answer(self, request: Request, result: Any) -> None:
        shown = result.result if isinstance(result, Answer) else result
        if request.answered:
            self.write(jsonrpc.result_line(request.id, shown))
        if isinstance(result, Answer) and self._state != "closed":
            result.then()

    def greet(self, params: HelloParams) -> Rights:
        """Take a hello. Raises `Conflict` for another protocol, or a second hello."""
        if self.rights is not None:
            raise Conflict("hello was said already")
        if params.protocol != PROTOCOL:
            what = f"this daemon speaks protocol {PROTOCOL}, not {params.protocol}"
            raise Conflict(what, data={"protocol": PROTOCOL})
        if not self._brief:
            self._patience.deadline = float("inf")
        peer = attrs.evolve(self._peer, tty=params.tty, client=params.client)
        self.rights = Rights(peer, writes=params.mode == "write")
        self._step("hello")
        return self.rights

    # ---------------------------------------------------------------- out

    @property
    def backlog(self) -> int:
        return self._backlog

    def _refuse(self, ident: Id, error: DshError) -> None:
        self.write(jsonrpc.error_line(ident, error))

    def _refuse_request(self, request: Request, error: DshError) -> None:
        if request.answered:
            self._refuse(request.id, error)

    def write(self, data: Data) -> None:
        """Give these lines to the client: at once if it takes them, else as it does."""
        if self._state == "closed" or not data:
            return
        rest = memoryview(data)
        if not self._unsent:
            rest = rest[self._send_now(rest) :]
        if rest:
            self._keep(rest)
            self._backlog += len(rest)
            self._to_send.set()

    def _keep(self, rest: memoryview) -> None:
        if self._unsent and len(self._unsent[-1]) + len(rest) <= TOGETHER:
            rest = memoryview(b"".join((self._unsent.pop(), rest)))
        self._unsent.append(rest)

    def _send_now(self, data: memoryview) -> int:
        try:
            return self._sock.send_now(data)
        except OSError:
            self._lose()
            return len(data)

    async def _send_rest(self) -> None:
        """Send what `write` couldn't, as long as the client takes any."""
        while True:
            await self._to_send.wait()
            while self._unsent:
                with trio.move_on_after(STALL_S) as patience:
                    await self._sock.writable()
                if patience.cancelled_caught:
                    log.info("client %d took nothing for %g s", self._peer.pid, STALL_S)
                    return self._lose()
                self._sent(self._send_now(self._unsent[0]))
            self._to_send = trio.Event()

    def _sent(self, count: int) -> None:
        first = self._unsent.popleft()
        if count < len(first):
            self._unsent.appendleft(first[count:])
        self._backlog -= count
        if self._backlog < SMALL:
            self._note()

    async def room(self) -> None:
        """Returns when little is unsent."""
        while self._backlog >= SMALL:
            await self._change()

    # ---------------------------------------------------------------- what lasts as long as we do

    def follow(self, follower: Following) -> None:
        if len(self._followers) >= MOST_FOLLOWED:
            raise Full(f"this connection follows {MOST_FOLLOWED} logs already.")
        self._followers[follower] = None
        self._nursery.start_soon(self._follow, follower)

    async def _follow(self, follower: Following) -> None:
        try:
            await follower.run()
        except DshError as error:
            follower.end(error.message)
        finally:
            self._followers.pop(follower, None)
            self._note()

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None
        self._room.hub.watch(watcher)

    def unfollow(self, session: str | None) -> None:
        for follower in self._followers:
            if session in (None, follower.session):
                follower.scope.cancel()
        if session is None:
            for watcher in self._watchers:
                self._room.hub.unwatch(watcher)
            self._watchers.clear()

    async def gone(self) -> None:
        await self._gone.wait()

    def tie(self, session: str, message: str) -> None:
        self._tied.append((session, message))

    async def _abort_tied(self, session: str, message: str) -> None:
        """The client is gone: stop the turn of its message, or take the message back.

        Between looking and asking the message may have been claimed, or its turn have ended and
        another begun with it; then it is looked at anew.
        """
        try:
            while not await self._stop_once(session, message):  # noqa: ASYNC110 - no event tells of both
                await trio.sleep(LOOK_AGAIN_S)
        except NotFound:
            pass
        except DshError as error:
            log.warning("%s was tied to a client that is gone, and not aborted: %s", message, error)

    async def _stop_once(self, session: str, message: str) -> bool:
        """Whether nothing is left to stop."""
        found = await self._room.registry.get(session)
        state = found.message(message)
        try:
            if state["state"] in ("pending", "held"):
                await found.queue_change("rm", [message], self._peer)
            elif state["state"] in ("claimed", "entered"):
                await found.abort(AbortParams(turn=state["turn"], reason=GONE), self._peer)
        except Conflict:
            return False
        return True


def _waits(method: Method, params: Params) -> bool:
    """Whether it may take for ever."""
    return method.waits or getattr(params, "when_full", None) == "wait"


def _checked(params: dict[str, Any], kind: type[Params]) -> Params:
    try:
        found = structure(params, kind)
    except Wrong as wrong:
        raise Invalid(f"{wrong.what} @ $.{dotted(wrong.path)}", outcome="not-written") from None
    found.check()
    return found
