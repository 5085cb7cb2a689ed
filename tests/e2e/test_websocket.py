"""The websocket of the real daemon: a person's program is the person, a tool's with the same token is not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

from tests.e2e.harness import TIMEOUT, Home, eventually
from tests.e2e.model import Model, bash, script

CLIENT = """
import json, os, sys, trio
from trio_websocket import open_websocket_url

async def main():
    token = open(sys.argv[2]).read().strip()
    bearer = [(b"Authorization", b"Bearer " + token.encode())]
    async with open_websocket_url(sys.argv[1], extra_headers=bearer) as ws:
        await ws.send_message('{"jsonrpc":"2.0","id":1,"method":"daemon.hello","params":{"protocol":1}}')
        kind = json.loads(await ws.get_message())["result"]["permissions"]["kind"]
        await ws.send_message('{"jsonrpc":"2.0","id":2,"method":"daemon.reload"}')
        done = json.loads(await ws.get_message())
        print(kind, done.get("error", {}).get("data", {}).get("code"), flush=True)
        os._exit(0)

trio.run(main)
"""


def test_with_the_token_a_program_is_the_person_and_a_tool_is_a_tool(home: Home, model: Model) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with (home.path / "config.toml").open("a") as config:
        config.write(f'[daemon]\nwebsocket = "127.0.0.1:{port}"\n')
    home.start()
    program, token = home.work / "client.py", home.state / "websocket.token"
    program.write_text(CLIENT)
    eventually(token.exists)
    words = [sys.executable, str(program), f"ws://127.0.0.1:{port}/", str(token)]

    def person() -> str:
        return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT).stdout.strip()

    assert eventually(person) == "user None"
    home.ok("run", "--mode", "full", "--name", "tool", script(bash(" ".join(words))))
    (result,) = [event["data"] for event in home.log(type="tool/result")]
    assert "agent DENIED" in json.dumps(result["content"])
    if os.getuid() == 0:  # may look into everything
        return
    hidden = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"  # lets nobody look into it
    program.write_text(hidden + CLIENT)
    home.ok("followup", "-s", "tool", "--wait", script(bash(" ".join(words))))
    last = home.log(type="tool/result")[-1]["data"]
    assert "agent DENIED" in json.dumps(last["content"])
