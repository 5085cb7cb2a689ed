"""From a line to its answer: requests are begun in the order in which they come, and answered as they get
done.

Those that write reach their session in the order in which they came (`InOrder`). At most `MOST` are under
way, those that only look one at a time, and none is begun while much of what we said is not taken: who
doesn't read isn't served, and costs no more than one answer. Those that write run in the daemon's nursery, to
their end, whatever becomes of the client; the others end with the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio

from dshd.control import jsonrpc
from dshd.control.access import Rights
from dshd.control.admission import admitted, may_wait
from dshd.control.calls import Answer, Call, Link, Room
from dshd.control.jsonrpc import Refused, Request
from dshd.control.life import Life
from dshd.control.methods import Method
from dshd.control.outbox import Outbox
from dshd.control.refusals import worded
from dshd.errors import DshError, Internal
from dshd.order import InOrder
from dshd.session.fold.who import Peer
from dshd.session.owner.loading import holding
from dshd.wire import HelloParams, Params

log = logging.getLogger(__name__)

MOST: Final = 64  # requests under way at once; one more is not read


class Answering:
    """One connection's. ``nursery`` is the connection's, there while it is served, ``writes`` the daemon's;
    ``under_way`` counts the requests that are begun and not answered."""

    nursery: trio.Nursery

    def __init__(
        self, link: Link, room: Room, peer: Peer, life: Life, out: Outbox, writes: trio.Nursery, *,
        brief: bool,
    ) -> None:  # fmt: skip
        self.under_way = 0
        self._link = link
        self._room = room
        self._peer = peer
        self._life = life
        self._out = out
        self._writes = writes
        self._brief = brief
        self._looking = InOrder()
        self._waits = 0
        self._starting = 0  # tasks of requests that have not begun to run

    async def take(self, line: bytes) -> None:
        """Begin what this line asks, or refuse it."""
        if not line.strip():
            return
        request = jsonrpc.parse(line)
        if isinstance(request, Refused):
            return self._out.write(jsonrpc.error_line(request.id, request.error))
        try:
            method, params = admitted(
                request, self._link.rights, brief=self._brief,
                stopping=self._room.closing.is_set(), waits=self._waits,
            )  # fmt: skip
        except DshError as error:
            return self._refuse(request, error)
        await self._begin(request, method, params)

    async def _begin(self, request: Request, method: Method, params: Params) -> None:
        """Start it, in the order of the lines: the next one isn't looked at before this one has run up
        to its first wait."""
        if method.params is HelloParams:
            return await self._run(request, method, params)
        await self._out.room()
        waits = may_wait(method, params)
        while not waits and self.under_way - self._waits >= MOST:
            await self._life.change()
        if method.offer is not None and not self._starting and self._offer(request, method, params):
            return
        self.under_way += 1
        self._starting += 1
        self._waits += waits
        nursery = self._writes if method.writes else self.nursery
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
            self.under_way += 1
        return True

    def _told(self, request: Request, method: Method, result: Callable[[], Any]) -> None:
        self.under_way -= 1
        self._life.note()
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
            self.under_way -= 1
            self._waits -= waits
            self._life.note()

    async def _look(self, request: Request, method: Method, params: Params) -> None:
        """One at a time: answers can be long, and there shall be one of them in memory, not `MOST`."""
        async with self._looking:
            await self._out.room()
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
        link = self._link
        return Call(self._room, link, link.rights or Rights(self._peer, writes=False), params)

    def _fail(self, request: Request, method: Method, error: Exception) -> None:
        """The boundary: what isn't a refusal is a mistake of ours, and of this request alone."""
        if isinstance(error, DshError):
            return self._refuse(request, worded(request.method, error))
        log.error("%s failed", request.method, exc_info=error)
        outcome = "unknown" if method.writes else None
        what = f"{request.method} failed; the daemon's log has the details"
        self._refuse(request, Internal(what, outcome=outcome))

    def _answer(self, request: Request, result: Any) -> None:
        shown = result.result if isinstance(result, Answer) else result
        if request.replaced:
            shown = _counting(shown, request.replaced)
        if request.answered:
            self._out.write(jsonrpc.result_line(request.id, shown))
        if isinstance(result, Answer) and self._life.state != "closed":
            result.then()

    def _refuse(self, request: Request, error: DshError) -> None:
        if request.answered:
            self._out.write(jsonrpc.error_line(request.id, error))


def _counting(result: Any, replaced: int) -> Any:
    """A receipt, by itself or of a session's first message, with what of the request became U+FFFD."""
    if not isinstance(result, dict):
        return result
    if result.get("type") == "receipt":
        return {**result, "replaced": result["replaced"] + replaced}
    return {**result, "receipt": _counting(result["receipt"], replaced)} if "receipt" in result else result
