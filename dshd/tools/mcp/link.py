"""One session's connection to one server: used until it is idle, lost, or no longer what it was.

Its task is the daemon's. Whatever goes wrong in it ends in a sentence (`problem`), never in an exception.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import trio

from dshd.errors import one_line
from dshd.tools.mcp import results
from dshd.tools.mcp.pipes import End
from dshd.tools.tool import ToolFailure, ToolOutput

START = 30.0  # s until it has told its tools
CALL = 120.0  # s for a call
IDLE = 600.0  # s without a call
PAGES = 50  # of a list of tools
MISSING = "the package mcp is not installed: pip install 'dshd[mcp]'"

log = logging.getLogger(__name__)

Connect = Callable[[End], AbstractAsyncContextManager[Any]]  # a transport, which says when it has ended


@attrs.define(eq=False)
class Link:
    """``tools``: as the server lists them, in JSON; ``ready``: set once it has, or has failed;
    ``again``: one before it did."""

    name: str
    connect: Connect
    tools: list[dict[str, Any]] | None = None
    problem: str | None = None
    ready: trio.Event = attrs.field(factory=trio.Event)
    failed_at: float = 0.0
    again: bool = False
    _client: Any = None
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _end: End = attrs.field(factory=End)
    _calls: int = 0

    @property
    def lives(self) -> bool:
        return self.problem is None and self._end.words is None

    async def run(self) -> None:
        """Be connected, until it is stopped."""
        try:
            with self._scope:
                await self._connected()
        except BaseException as error:  # noqa: ASYNC103 - ours comes again at the checkpoint below
            if _fatal(error):
                raise
            self.problem = self._words(error)  # also a cancellation within the package that has got out
        finally:
            self.problem = self.problem or self._end.words or "it was idle"
            self.failed_at = trio.current_time()
            self._client = None
            self.ready.set()
        await trio.lowlevel.checkpoint_if_cancelled()  # our own goes on, alone

    async def _connected(self) -> None:
        try:
            await trio.to_thread.run_sync(importlib.import_module, "mcp.client.client")
        except ImportError:
            self.problem = MISSING
            return
        from mcp.client.client import Client

        with trio.fail_after(START) as starting:
            async with Client(self.connect(self._end), cache=None) as client:
                self.tools = await _listed(client)
                client.session.validate_tool_result = _as_it_is  # type: ignore[method-assign]
                starting.deadline = math.inf
                self._client = client
                self.ready.set()
                self._rest()
                await self._end.came.wait()

    def _rest(self) -> None:
        self._scope.deadline = trio.current_time() + IDLE if self._calls == 0 else math.inf

    def fails(self, problem: str) -> None:
        """It is not even tried."""
        self.problem = problem
        self.failed_at = trio.current_time()
        self.ready.set()

    def stop(self) -> None:
        self._scope.cancel()

    async def call(self, tool: str, args: dict[str, Any]) -> ToolOutput:
        """Raises `ToolFailure`. Cancellation: the server is told; it may go on with it all the same."""
        if self._client is None:
            raise ToolFailure(f"the server {self.name} is not there: {self.problem}", code="MCP")
        self._calls += 1
        self._rest()
        try:
            with trio.fail_after(CALL):
                answer = await self._client.call_tool(tool, args)
            return results.output(answer.model_dump(mode="json", by_alias=True, exclude_none=True))
        except trio.TooSlowError:
            words = f"the server {self.name} has not answered within {CALL:g} s"
            raise ToolFailure(words, code="TIMEOUT") from None
        except Exception as error:
            words = self._words(error)
            if _lost(error):
                self._end.comes("the connection was lost")
            raise ToolFailure(f"the server {self.name}: {words}", code="MCP") from None
        finally:
            self._calls -= 1
            self._rest()

    def _words(self, error: BaseException) -> str:
        if self._end.words:
            return self._end.words
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, trio.TooSlowError):
            return f"it was not there within {START:g} s"
        if (wrong := _wrong(error)) is not None:
            return wrong
        return one_line(error)[:500] or type(error).__name__


def _wrong(error: BaseException) -> str | None:
    """What the server sent is not what the protocol says: where, first of all. None for another error."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return None
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"what it sent is not as the protocol has it: {where}: {first['msg']}"


def _fatal(error: BaseException) -> bool:
    """Whether it is the end of the whole process."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_fatal, error.exceptions))
    return not isinstance(error, Exception | trio.Cancelled)


def _lost(error: Exception) -> bool:
    """Whether there is nobody any more to be asked again."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    return not isinstance(error, MCPError) or error.code == CONNECTION_CLOSED


async def _as_it_is(name: str, result: Any) -> None:
    """What a server says of its own results is not checked: its patterns could hold up the daemon."""


async def _listed(client: Any) -> list[dict[str, Any]]:
    """All pages of its tools."""
    found: list[dict[str, Any]] = []
    cursor = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return found
    return found
