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
from dshd.tools.tool import Args, ToolContext, ToolFailure, ToolOutput

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

    def leave(self, session: str) -> None:
        pass

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
        self._links: dict[str, dict[str, tuple[_Is, Link]]] = {}  # {session: {name of the server: ...}}
        self._made: dict[str, tuple[Any, Registry]] = {}

    async def registry(self, base: Registry, ctx: ToolContext) -> Registry:
        """The tools of a session's turn. Cancellation: while servers are waited for."""
        config = self._config()
        links = [self._link(name, server, ctx) for name, server in config.items()]
        self._end_strangers(ctx.session, config)
        with trio.move_on_after(PATIENCE):
            for link in links:
                if not link.again:
                    await link.ready.wait()
        return self.known(base, ctx.session)

    def _end_strangers(self, session: str, config: Mapping[str, Server]) -> None:
        """Those that the config has no longer."""
        links = self._links.get(session, {})
        for name in [name for name in links if name not in config]:
            links.pop(name)[1].stop()

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

    def leave(self, session: str) -> None:
        """The session is over for now: its connections end, and nothing of them is remembered."""
        self._made.pop(session, None)
        for link in self._links.pop(session, {}).values():
            link[1].stop()

    def states(self, session: str | None) -> dict[str, str]:
        """{name: how it is with it} of the servers whose tools, or some of them, aren't there."""
        links = self._links.get(session or "", {})
        states = {name: _state(links.get(name)) for name in self._config()}
        return {name: state for name, state in states.items() if state is not None}

    def _tools(self, session: str | None, name: str) -> list[Remote]:
        found = self._links.get(session or "", {}).get(name)
        return _remotes(name, found[1].tools or [], partial(self._call, name))[0] if found else []

    async def _call(self, name: str, ctx: ToolContext, tool: str, args: Args) -> ToolOutput:
        server = self._config().get(name)
        if server is None:
            raise ToolFailure(f"the server {name} is no longer in the config", code="MCP")
        link = self._link(name, server, ctx, needed=True)
        await link.ready.wait()
        return await link.call(tool, args)

    def _link(self, name: str, server: Server, ctx: ToolContext, *, needed: bool = False) -> Link:
        """The session's connection; made, if there is none, or none that will do."""
        wants = _Is(server, str(ctx.dir), ctx.mode, ctx.net, ctx.sandbox, dict(ctx.env))
        links = self._links.setdefault(ctx.session, {})
        was, link = links.get(name, (None, None))
        if link is not None and was == wants and (link.lives or not _due(link, needed)):
            return link
        if link is not None:
            link.stop()
        made = Link(name, partial(self._connect, server, ctx))
        if was == wants and link is not None:
            made.tools = link.tools  # as they were, until it says so again
            made.again = link.tools is None
        links[name] = wants, made
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


def _remotes(server: str, listed: list[dict[str, Any]], calling: Any) -> tuple[list[Remote], list[str]]:
    """What can be offered, and a sentence for each that can't."""
    own = {str(tool.get("name")): tool for tool in listed}
    names, problems = sort_out(server, own)
    found = []
    for name, tool in names.items():
        try:
            found.append(remote(name, own[tool], calling))
        except ValueError as error:
            problems.append(f"{tool[:80]} is left out: {error}")
    return found, problems


def _state(found: tuple[_Is, Link] | None) -> str | None:
    """What is to be said of a server; None if all its tools are there."""
    if found is None:
        return "it is started with the session's next turn"
    link = found[1]
    offered, problems = _remotes(link.name, link.tools or [], None)
    if not offered and link.problem is not None:
        return link.problem
    if problems:
        return f"{len(problems)} of its tools can't be offered: {problems[0]}"
    if offered:
        return None
    return "it has no tools" if link.ready.is_set() else "it is starting"


def wildcard(server: str) -> str:
    """All tools of a server, as a rule names them."""
    return f"{named(server, '')}*"
