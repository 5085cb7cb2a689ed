"""`dshctl acp` as an editor uses it, with the real daemon; with the SDK's own client, where it is there."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from tests.e2e.harness import TIMEOUT, Home, eventually, texts
from tests.e2e.model import Model, bash, script

Json = dict[str, Any]
RULE = '[[rules]]\naction = "ask"\ntool = "bash"\ncommand = "touch *"\n'


class Editor:
    """One that answers permissions with ``option``."""

    def __init__(self, home: Home, option: str = "once") -> None:
        self.process = home.popen("acp", stdin=subprocess.PIPE)
        self.updates: list[Json] = []
        self._option = option
        self._number = 0

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> int:
        self._number += 1
        self.send(id=self._number, method=method, params=params)
        return self._number

    def prompt(self, session: str, text: str) -> int:
        return self.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def take(self, number: int) -> Json:
        """The answer to a request; updates before it are kept."""
        while True:
            got = self.next()
            if got.get("id") == number and "method" not in got:
                return got

    def next(self) -> Json:
        assert self.process.stdout is not None
        got: Json = json.loads(self.process.stdout.readline())
        if got.get("method") == "session/update":
            self.updates.append(got["params"]["update"])
        elif got.get("method") == "session/request_permission":
            chosen = {"outcome": {"outcome": "selected", "optionId": self._option}}
            self.send(id=got["id"], result=chosen)
        return got

    def sees(self, kind: str) -> None:
        while not any(update["sessionUpdate"] == kind for update in self.updates):
            self.next()

    def begin(self, home: Home) -> str:
        assert self.take(self.ask("initialize", protocolVersion=1))["result"]["protocolVersion"] == 1
        new = self.take(self.ask("session/new", cwd=str(home.work), mcpServers=[]))
        return str(new["result"]["sessionId"])

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None
        return self.process.wait(TIMEOUT)


def test_an_editor_prompts_permits_loads_and_leaves(home: Home, model: Model) -> None:
    with (home.path / "config.toml").open("a") as config:
        config.write(RULE)
    editor = Editor(home)
    session = editor.begin(home)
    write = {"name": "write", "arguments": {"path": "a.txt", "content": "hi\n"}}
    todo = {"name": "todo", "arguments": {"items": [{"text": "t", "state": "active"}]}}
    asked = script(bash("touch made"), {"tools": [write, todo]}, {"text": "all done"})
    assert editor.take(editor.prompt(session, asked))["result"] == {"stopReason": "end_turn"}
    assert (home.work / "made").exists()
    kinds = [update["sessionUpdate"] for update in editor.updates]
    assert kinds.count("tool_call") == 3
    assert kinds.index("plan") < kinds.index("agent_message_chunk")
    said = [u["content"]["text"] for u in editor.updates if u["sessionUpdate"] == "agent_message_chunk"]
    assert "".join(said) == "all done"
    assert editor.take(editor.ask("session/set_mode", sessionId=session, modeId="read-only"))["result"] == {}
    assert editor.take(editor.ask("session/nonsense"))["error"]["code"] == -32601
    assert editor.close() == 0

    editor = Editor(home)
    editor.take(editor.ask("initialize", protocolVersion=1))
    assert "error" in editor.take(editor.prompt(session, "too early"))
    loaded = editor.take(editor.ask("session/load", sessionId=session, cwd=str(home.work), mcpServers=[]))
    assert loaded["result"]["modes"]["currentModeId"] == "read-only"
    told = [u["content"]["text"] for u in editor.updates if u["sessionUpdate"].endswith("message_chunk")]
    assert told == [asked, "all done"]
    assert editor.take(editor.prompt(session, "and more"))["result"]["stopReason"] == "end_turn"
    assert editor.close() == 0


def test_a_second_prompt_steers_a_cancel_stops_both_and_a_killed_daemon_costs_nothing(
    home: Home, model: Model
) -> None:
    daemon = home.start()
    editor = Editor(home)
    session = editor.begin(home)
    first = editor.prompt(session, script(bash("sleep 60")))
    editor.sees("tool_call_update")
    second = editor.prompt(session, "no, this")
    eventually(lambda: len(home.log(type="inbox/spliced")) >= 3)
    editor.send(method="session/cancel", params={"sessionId": session})
    stops = [editor.take(number)["result"]["stopReason"] for number in (first, second)]
    assert stops == ["cancelled", "cancelled"]
    assert home.ok("queue", "-s", session).endswith("idle, nothing queued.")

    model.gate("hold")
    third = editor.prompt(session, script({"gate": "hold", "text": "late"}))
    model.wait_requests(2)
    daemon.kill()
    daemon.wait(TIMEOUT)
    model.open("hold")
    assert "was interrupted" in editor.take(third)["error"]["message"]
    fourth = editor.prompt(session, "still there?")
    assert editor.take(fourth)["result"]["stopReason"] == "end_turn"
    assert editor.close() == 0
    assert texts(home.said())[-1] == "still there?"
    assert len(home.said()) == 3


SDK = """
import asyncio, os, sys
import acp
from acp.schema import AllowedOutcome, RequestPermissionResponse, TextContentBlock

class Client:
    said = ""
    async def request_permission(self, session_id, tool_call, options, **more):
        chosen = AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return RequestPermissionResponse(outcome=chosen)
    async def session_update(self, session_id, update, **more):
        if update.session_update == "agent_message_chunk":
            self.said += update.content.text
    def on_connect(self, conn):
        pass

async def main():
    client = Client()
    async with acp.spawn_agent_process(client, *sys.argv[1:], env=dict(os.environ)) as (agent, process):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = await agent.new_session(cwd=os.getcwd(), mcp_servers=[])
        prompt = [TextContentBlock(type="text", text="hello there")]
        done = await agent.prompt(session_id=session.session_id, prompt=prompt)
        print(done.stop_reason, client.said)

asyncio.run(main())
"""


@pytest.mark.skipif(find_spec("acp") is None, reason="agent-client-protocol is not installed")
def test_the_protocols_own_client_understands_us(home: Home, model: Model) -> None:
    home.start()
    program = str(home.path / "sdk.py")
    (home.path / "sdk.py").write_text(SDK)
    dshctl = f"{sys.executable.rsplit('/', 1)[0]}/dshctl"
    done = subprocess.run(
        [sys.executable, program, dshctl, "acp"],
        env=home.env,
        cwd=home.work,
        capture_output=True,
        timeout=TIMEOUT,
    )
    assert done.stdout.decode().strip() == "end_turn echo: hello there", done.stderr.decode()
