"""The connections of all sessions, and the tools that they bring.

A turn begins with the tools that are there within `PATIENCE`, and keeps to them; who is slower is there for
the next, and nobody waits for one that has failed before. A server that has ended is started again by the
next call of one of its tools. When what a session may do has changed (its mode, network, directory,
environment), so has its sandbox: its servers start anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import attrs
import trio

from dshd.spawn.client import Spawner
from dshd.tools.bash import Bash, spill_name
from dshd.tools.mcp.link import Link
from dshd.tools.mcp.names import named, sort_out
from dshd.tools.mcp.pipes import Command, End, transport
from dshd.tools.mcp.remote import Remote, remote
from dshd.tools.policy import has_net
from dshd.tools.registry import Registry
from dshd.tools.tool import Args, ToolContext, ToolOutput

Transport = AbstractAsyncContextManager[Any]

PATIENCE = 10.0  # s that a turn waits for its servers
AGAIN = 30.0  # s until one that did not start is tried again


class Server(Protocol):
    """One ``[mcp.NAME]``."""

    @property
    def command(self) -> str | list[str] | None: ...
    @property
    def url(self) -> str | None: ...


class NoServers:
    """For who has none."""

    async def registry(self, base: Registry, ctx: ToolContext) -> Registry:
        return base

    def known(self, base: Registry, session: str | None) -> Registry:
        return base

    def states(self, session: str | None) -> dict[str, str]:
        return {}


@attrs.frozen(slots=True)
class _Is:
    """What a connection was made for."""

    server: Server
    dir: str
    mode: str
    net: bool
    sandbox: str
    env: Mapping[str, str]


class Servers:
    """``config`` gives the ``[mcp]`` of now; ``start`` runs a task of the daemon's."""

    def __init__(
        self, config: Callable[[], Mapping[str, Server]], spawner: Spawner, bash: Bash,
        start: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:  # fmt: skip
        self._config, self._spawner, self._bash, self._start = config, spawner, bash, start
        self._links: dict[tuple[str, str], tuple[_Is, Link]] = {}
        self._made: dict[str, tuple[Any, Registry]] = {}

    async def registry(self, base: Registry, ctx: ToolContext) -> Registry:
        """The tools of a session's turn. Cancellation: while servers are waited for."""
        links = [self._link(name, server, ctx) for name, server in self._config().items()]
        with trio.move_on_after(PATIENCE):
            for link in links:
                if not link.again:
                    await link.ready.wait()
        return self.known(base, ctx.session)

    def known(self, base: Registry, session: str | None) -> Registry:
        """The tools as far as they are known now; the same registry as long as they are the same."""
        tools = [tool for name in sorted(self._config()) for tool in self._tools(session, name)]
        if session is None or not tools:
            return base
        key = (base, dict(base.off), tools)
        made = self._made.get(session)
        if made is None or made[0] != key:
            made = self._made[session] = (key, base.with_more(tools))
        return made[1]

    def states(self, session: str | None) -> dict[str, str]:
        """{name: how it is with it} of the servers whose tools aren't there."""
        return {name: _state(self._links.get((session or "", name))) for name in self._config()
                if not self._tools(session, name)}  # fmt: skip

    def _tools(self, session: str | None, name: str) -> list[Remote]:
        found = self._links.get((session or "", name))
        return _remotes(name, found[1].tools, partial(self._call, name)) if found and found[1].tools else []

    async def _call(self, name: str, ctx: ToolContext, tool: str, args: Args) -> ToolOutput:
        link = self._link(name, self._config()[name], ctx, needed=True)
        await link.ready.wait()
        return await link.call(tool, args)

    def _link(self, name: str, server: Server, ctx: ToolContext, *, needed: bool = False) -> Link:
        """The session's connection; made, if there is none, or none that will do."""
        wants = _Is(server, str(ctx.dir), ctx.mode, ctx.net, ctx.sandbox, dict(ctx.env))
        was, link = self._links.get((ctx.session, name), (None, None))
        if link is not None and was == wants and (link.lives or not _due(link, needed)):
            return link
        if link is not None:
            link.stop()
        made = Link(name, partial(self._connect, server, ctx))
        if was == wants and link is not None:
            made.tools = link.tools  # as they were, until it says so again
            made.again = link.tools is None
        self._links[ctx.session, name] = wants, made
        if server.url is not None and not has_net(ctx.mode, ctx.net):
            made.fails(f"network is off here: dshctl set net=on{ctx.whose}")
        else:
            self._start(made.run)
        return made

    def _connect(self, server: Server, ctx: ToolContext, end: End) -> Transport:
        if server.url is not None:
            from mcp.client.streamable_http import streamable_http_client

            return streamable_http_client(server.url)
        assert server.command is not None
        return self._started(server.command, ctx, end)

    @asynccontextmanager
    async def _started(self, command: str | list[str], ctx: ToolContext, end: End) -> Any:
        line = command if isinstance(command, str) else " ".join(command)
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        async with self._bash.around(line, ctx) as (plan, env):
            given = Command(
                argv=[*plan.prefix, *argv], cwd=str(ctx.dir), env=env, label=ctx.session,
                pipes=ctx.spill_dir / "tmp" / spill_name("mcp"),
                wrapper=plan.kind == "bubblewrap", landlock=plan.landlock,
            )  # fmt: skip
            async with transport(self._spawner, given, end) as streams:
                yield streams


def _due(link: Link, needed: bool) -> bool:
    """Whether one that is no more is to be made again."""
    if needed:
        return True
    return link.tools is None and trio.current_time() - link.failed_at >= AGAIN


def _remotes(server: str, listed: list[dict[str, Any]], calling: Any) -> list[Remote]:
    own = {str(tool.get("name")): tool for tool in listed}
    found = []
    for name, tool in sort_out(server, own)[0].items():
        try:
            found.append(remote(name, own[tool], calling))
        except ValueError:
            continue
    return found


def _state(found: tuple[_Is, Link] | None) -> str:
    if found is None:
        return "it is started with the session's next turn"
    link = found[1]
    if link.problem is not None:
        return link.problem
    return "it has no tools that can be offered" if link.ready.is_set() else "it is starting"


def wildcard(server: str) -> str:
    """All tools of a server, as a rule names them."""
    return f"{named(server, '')}*"
