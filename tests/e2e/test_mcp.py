"""A server of tools, from outside: offered, called, named when it can't be started, gone with its daemon."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import TIMEOUT, Home, eventually
from tests.e2e.model import Model, script

SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "light.py"
CONFIG = f"""
[mcp.t]
command = ["{sys.executable}", "{SERVER}"]
[mcp.broken]
command = ["{sys.executable}", "-c", "raise SystemExit('it has no licence')"]
"""

pytest.importorskip("mcp", reason="NOTHING OF MCP IS TESTED: pip install 'dshd[mcp]'")


def servers() -> list[int]:
    """Those that run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [sys.executable.encode(), str(SERVER).encode()]:
            found.append(int(entry.name))
    return found


def call(name: str, **arguments: object) -> str:
    return script({"tools": [{"name": name, "arguments": arguments}]})


def results(home: Home) -> list[str]:
    return [event["data"]["content"][0]["text"] for event in home.log(type="tool/result")]


def test_a_servers_tools_are_the_sessions_and_it_ends_with_the_daemon(home: Home, model: Model) -> None:
    with (home.path / "config.toml").open("a") as config:
        config.write(CONFIG)
    daemon = home.start()
    home.ok(
        "followup", "-s", "m", "--create", "--mode", "full", "--wait", call("mcp__t__add", a=2, b=3)
    )
    assert results(home) == ["5"]
    names = [tool["function"]["name"] for tool in model.requests[-1]["tools"]]
    assert "mcp__t__add" in names
    assert names == sorted(names)
    rows = {row["name"]: row for row in home.json("tools", "-s", "m", exit=0) if row.get("type") == "tool"}
    assert (rows["mcp__t__add"]["action"], rows["mcp__t__add"]["read_only"]) == ("allow", True)
    assert rows["mcp__broken__*"]["by"] == "it ended with exit 1: it has no licence"

    daemon.send_signal(signal.SIGKILL)
    daemon.wait(TIMEOUT)
    eventually(lambda: not servers(), what="the servers end with the daemon")
    home.start()
    home.ok("followup", "-s", "m", call("mcp__t__add", a=4, b=5), "--wait")
    assert results(home)[1:] == ["9"]
    home.ok("daemon", "stop")
    eventually(lambda: not servers(), what="the servers end with a daemon that is stopped")
    home.start()
    home.ok("run", "--name", "once", "--mode", "full", call("mcp__t__add", a=1, b=1))
    eventually(lambda: not servers(), what="those of a run end with it")
    home.ok("followup", "-s", "m", call("mcp__t__add", a=4, b=5), "--wait")
    assert servers()
    home.ok("rm", "--yes", "m")
    eventually(lambda: not servers(), what="those of a session that is removed end")
