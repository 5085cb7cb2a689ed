"""Tools of servers: a real server, written with the same package, in a process of the real spawner."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from dshd.config.tools import Server
from dshd.spawn.client import Spawner, launch
from dshd.tools.bash import Bash
from dshd.tools.mcp import link, servers
from dshd.tools.mcp.servers import Servers
from dshd.tools.registry import Registry
from dshd.tools.tool import Call, Rule, ToolContext, ToolFailure, ToolOutput
from tests.tools.doubles import Made, call, context
from tests.tools.mcp.far import Far

pytest.importorskip("mcp", reason="NOTHING OF MCP IS TESTED: pip install 'dshd[mcp]'")

SERVER = Path(__file__).with_name("server.py")
LIGHT = SERVER.with_name("light.py")


def command(*how: str) -> Server:
    return Server(command=[sys.executable, str(SERVER), *how])


@attrs.define(eq=False)
class World:
    """``config`` is what the servers are taken from; ``base`` the tools beside."""

    ctx: ToolContext
    servers: Servers
    config: dict[str, Server]
    base: Registry

    async def registry(self, **changes: Any) -> Registry:
        with trio.fail_after(90):
            return await self.servers.registry(self.base, attrs.evolve(self.ctx, **changes))

    async def call(self, name: str, _ctx: ToolContext | None = None, **args: Any) -> ToolOutput:
        with trio.fail_after(90):
            return await (await self.registry()).execute(call(name, **args), _ctx or self.ctx)

    @property
    def states(self) -> dict[str, str]:
        return self.servers.states(self.ctx.session)


@pytest.fixture
async def world(
    place: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(servers, "PATIENCE", 60.0)  # a machine that has much to do starts programs slowly
    spawner = Spawner(launch())
    config = {"t": command()}
    ctx = context(place, spawner=spawner, mode="full", env={"COLOUR": "green", "PATH": os.environ["PATH"]})
    made = Servers(lambda: config, spawner, Bash(), nursery.start_soon)
    yield World(ctx, made, config, Registry([Made("a"), Made("z")]))
    nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True):
        await spawner.aclose()


OWN = ["add", "die", "fail", "hang", "lots", "picture", "put", "where"]


async def test_a_servers_tools_are_offered_called_and_bounded_and_cost_a_result_when_they_hang_or_die(
    world: World, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = await world.registry()
    assert list(registry.names) == ["a", *(f"mcp__t__{name}" for name in OWN), "z"]
    assert await world.registry() is registry
    assert world.states == {}
    assert registry.read_only(Call("c", "mcp__t__add", "{}"))
    assert not registry.read_only(Call("c", "mcp__t__put", "{}"))
    assert (await world.call("mcp__t__add", a=2, b=3)).text == "5"
    assert (await world.call("mcp__t__where")).text == f"{world.ctx.dir} green"
    assert (await world.call("mcp__t__picture")).text == "[image: image/png, 8 bytes, not shown]"
    much = (await world.call("mcp__t__lots")).text
    assert (len(much) < 41_000, "characters left out" in much) == (True, True)
    assert (await world.call("mcp__t__fail")).error == "TOOL_FAILED"
    wrong = await world.call("mcp__t__add", a="two", b=3)
    assert (wrong.error, "$.a: expected integer" in wrong.text) == ("INVALID_ARGS", True)
    denied = attrs.evolve(world.ctx, rules=(Rule("deny", tool="mcp__*"),))
    assert (await world.call("mcp__t__add", denied, a=1, b=2)).error == "DENIED"

    with trio.move_on_after(0.3) as scope:
        await world.call("mcp__t__hang")
    assert scope.cancelled_caught
    monkeypatch.setattr(link, "CALL", 0.3)
    hung = await world.call("mcp__t__hang")
    assert (hung.error, "has not answered within 0.3 s" in hung.text) == ("TIMEOUT", True)
    monkeypatch.setattr(link, "CALL", 60)

    died = await world.call("mcp__t__die")
    assert (died.error, died.text) == ("MCP", "the server t: it ended with exit 3: out of memory")
    assert (await world.call("mcp__t__add", a=2, b=3)).text == "5"
    assert not nursery.cancel_scope.cancel_called, "no cancellation gets out of the package"
    world.config.clear()
    assert await world.registry() is world.base


async def test_one_that_does_not_start_is_said_and_takes_nothing_along(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "START", 2.0)
    monkeypatch.setitem(world.config, "t", command("silent"))
    world.config |= {
        "broken": command("broken"),
        "absent": Server(command=["no-such-program"]),
        "far": Server(url="http://127.0.0.1:1/mcp"),
        "mute": Server(command=["sleep", "60"]),
    }
    registry = await world.registry()
    assert registry is world.base
    states = world.states
    assert states["broken"] == "it ended with exit 1: it has no licence"
    assert "no-such-program" in states["absent"]
    assert "connect" in states["far"].lower()
    monkeypatch.setattr(servers, "AGAIN", 0)
    before = trio.current_time()
    assert await world.registry() is registry
    assert trio.current_time() - before < 1, "nobody waits for them twice"
    assert states["mute"] == states["t"] == "it was not there within 2 s"


async def test_what_a_session_may_do_holds_for_its_servers(world: World) -> None:
    """The session stands where the server's program is: a sandbox has a /tmp of its own."""
    world.config["t"] = Server(command=[sys.executable, str(LIGHT)])
    world.config["far"] = Server(url="http://127.0.0.1:1/mcp")
    out = world.ctx.dir.parent / "outside" / "out"
    world.ctx = attrs.evolve(world.ctx, mode="read-only", dir=SERVER.parents[3])
    await world.registry()
    assert world.states == {"far": "network is off here: dshctl set net=on"}
    assert (await world.call("mcp__t__add", a=2, b=3)).text == "5"
    assert (await world.call("mcp__t__put", path=str(out))).error == "TOOL_FAILED"
    assert not out.exists()


async def test_of_what_meets_a_cancellation_on_its_way_out_only_the_cancellation_gets_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connected(self: link.Link) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ExceptionGroup("the package's", [ValueError("no connection")])

    monkeypatch.setattr(link.Link, "_connected", connected)
    made = link.Link("x", lambda end: None)  # type: ignore[arg-type, return-value]
    with trio.move_on_after(0.01) as scope:
        await made.run()
    assert scope.cancelled_caught
    assert made.problem == "no connection"


async def test_a_server_ends_with_what_it_is_for(world: World) -> None:
    """With its session, and when the config has it no longer; a call that comes later says so."""
    world.config["t"] = Server(command=[sys.executable, str(LIGHT)])
    registry = await world.registry()
    late = registry.get("mcp__t__add")
    assert late is not None
    world.servers.leave(world.ctx.session)
    await ended(world)
    assert world.states == {"t": "it is started with the session's next turn"}
    assert (await world.call("mcp__t__add", a=2, b=3)).text == "5"
    kept = world.config.pop("t")
    with pytest.raises(ToolFailure, match="no longer in the config"):
        await late.run({"a": 2, "b": 3}, world.ctx)
    await world.registry()
    await ended(world)
    world.config["t"] = kept


async def ended(world: World) -> None:
    """Wait until no server of its session runs."""
    with trio.fail_after(10):
        while any(running(world.ctx)):  # noqa: ASYNC110 - it is another process
            await trio.sleep(0.02)


def running(ctx: ToolContext) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            if str(LIGHT).encode() in words and (entry / "cwd").readlink() == ctx.dir.resolve():
                yield int(entry.name)


async def test_what_breaks_the_protocol_is_said_in_a_line_of_ours(world: World) -> None:
    world.config["t"] = Server(command=[sys.executable, str(LIGHT), "mistaken"])
    await world.registry()
    assert world.states["t"].startswith("what it sent is not as the protocol has it: tools.0.inputSchema: ")
    assert "pydantic" not in world.states["t"]


async def test_one_at_an_address_may_go_and_come_back(world: World) -> None:
    with Far() as far:
        world.config["t"] = Server(url=far.url)
        world.ctx = attrs.evolve(world.ctx, net=True)
        assert (await world.call("mcp__t__twice", n=2)).text == "2 2"
        far.stop()
        lost = await world.call("mcp__t__twice", n=3)
        assert lost.error == "MCP"
        assert list((await world.registry()).names) == ["a", "mcp__t__twice", "z"], "it is known meanwhile"
        far.start()
        assert (await world.call("mcp__t__twice", n=4)).text == "4 4"
