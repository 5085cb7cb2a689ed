"""`dshctl rpc` with the real daemon: lines in, lines out, and how it ends."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.e2e.harness import TIMEOUT, Home, texts

Json = dict[str, Any]
HELLO: Json = {"method": "daemon.hello", "params": {"protocol": 1}}


def lines(*requests: Json) -> str:
    return "".join(json.dumps({"jsonrpc": "2.0", "id": n, **r}) + "\n" for n, r in enumerate(requests))


def test_lines_go_to_a_daemon_that_is_started_for_them_and_all_are_answered(home: Home) -> None:
    create = {"method": "session.create", "params": {"dir": str(home.work), "name": "api"}}
    send = {"method": "session.send", "params": {"session": "api", "verb": "say", "text": "é\u2028x"}}
    ran = home.ctl("rpc", input=lines(HELLO, create, send, {"method": "nonsense"})[:-1])
    assert ran.returncode == 0, ran.stderr
    answers = {one["id"]: one for one in map(json.loads, ran.stdout.split("\n")[:-1])}
    assert answers[0]["result"]["permissions"]["write"]
    assert answers[2]["result"]["verb"] == "followup"
    assert answers[3]["error"]["code"] == -32601
    home.ok("wait", "-s", "api")
    assert texts(home.said()) == ["é\u2028x"]
    assert home.ctl("rpc", "daemon.stop").returncode == 0


def test_how_it_ends_says_whether_all_was_answered(home: Home) -> None:
    daemon = home.start()
    message = home.ok("followup", "-s", "api", "--create", "--hold", "x")
    status = {"method": "daemon.status"}
    wait = {"method": "session.wait", "params": {"messages": [message], "stay": True}}
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    idle, asking = home.popen("rpc", **streams), home.popen("rpc", **streams)
    for process, asked in ((idle, [HELLO, status]), (asking, [HELLO, status, wait])):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines(*asked))
        process.stdin.flush()
        assert [json.loads(process.stdout.readline())["id"] for _ in range(2)] == [0, 1]
    daemon.kill()
    assert idle.wait(TIMEOUT) == 3
    assert asking.wait(TIMEOUT) == 1
    assert home.ctl("rpc", "--no-autostart", input=lines(HELLO)).returncode == 3
