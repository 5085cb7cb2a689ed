"""What clients do to the daemon, and where they look for it: slow ones, gone ones, ones from elsewhere."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.harness import PROGRAMS, TIMEOUT, Home, eventually
from tests.e2e.model import Model, bash, script
from tests.e2e.rpc import Rpc, RpcError

BIG = "x" * 60_000


def few_descriptors() -> None:
    """In the child that is to be the daemon: clients get 48 places."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))


def follower(home: Home, session: str) -> Rpc:
    rpc = home.rpc()
    try:
        rpc.call("log.follow", session=session, turns=0)
    except RpcError:
        rpc.close()
        raise
    return rpc


def fill(followers: list[Rpc], home: Home, session: str) -> None:
    """One follower more, again and again."""
    while True:
        followers.append(follower(home, session))


def test_status_and_stop_are_served_when_followers_that_read_nothing_hold_every_place(
    home: Home, model: Model
) -> None:
    daemon = home.start(preexec_fn=few_descriptors)
    session = home.ok("new", "--name", "watched")
    followers: list[Rpc] = []
    with home.rpc() as sender:
        with pytest.raises(RpcError) as refused:
            fill(followers, home, session)
        for _ in range(20):  # more than their sockets hold
            sender.call("session.send", session=session, verb="inject", text=BIG)
        assert refused.value.code == "UNAVAILABLE"
        assert home.ctl("followup", "-s", "watched", "x").returncode == 75
        assert home.ok("ping").startswith("dshd ")
        home.ok("status")
        home.ok("daemon", "stop")
        assert daemon.wait(TIMEOUT) == 0
    for one in followers:
        one.close()


def test_a_follower_that_leaves_with_unread_events_hurts_neither_the_daemon_nor_the_other(
    home: Home, model: Model
) -> None:
    daemon = home.start()
    session = home.ok("new", "--name", "watched")
    stays = follower(home, session)
    first = len(home.log(session))
    for _ in range(20):
        leaves = follower(home, session)
        stays.call("session.send", session=session, verb="inject", text=BIG)
        leaves.close()  # with what it has not read: the daemon's next write fails
    seqs = []
    for event in stays.events():
        seqs.append(event["params"]["event"]["seq"])
        if len(seqs) == 20:
            break
    assert seqs == list(range(first, first + 20))
    assert home.ok("followup", "-s", "watched", "--wait", "hello") == "echo: hello"
    assert daemon.poll() is None
    stays.close()


def test_who_follows_the_list_knows_at_any_time_what_listing_would_say(home: Home, model: Model) -> None:
    home.start()
    old = home.ok("new", "--name", "old")
    home.ok("daemon", "stop")
    home.start()
    with home.rpc(mode="read") as rpc, home.rpc() as other:
        known = {row["id"]: row for row in rpc.call("session.follow_list")["sessions"]}
        assert set(known) == {old}
        events = rpc.events()

        def until(holds: Callable[[], bool]) -> None:
            """Told of what makes it so, and then it is what a list says."""
            while not holds():
                heard = next(events)
                if heard["method"] == "session.gone":
                    del known[heard["params"]["session"]]
                else:
                    known[heard["params"]["id"]] = heard["params"]

        def is_so() -> bool:
            now = {row["id"]: row for row in other.call("session.list")["sessions"]}
            grows = {"bytes": 0, "active_at": 0}
            return {id: {**row, **grows} for id, row in known.items()} == {
                id: {**row, **grows} for id, row in now.items()
            }

        new = other.call("session.create", dir=str(home.work), name="new")["session"]["id"]
        until(lambda: new in known)
        sent = other.call("session.send", session=old, verb="followup", text="hello")
        other.result(sent["message"])
        until(lambda: known[old]["turn"] == 1 and known[old]["state"] == "idle" and is_so())
        assert known[old]["tokens"]
        other.call("session.close", session=new)
        until(lambda: new not in known)
        other.call("session.delete", session="old")
        until(lambda: not known)
        assert is_so()


def test_a_hundred_clients_that_ask_and_leave_are_no_reason_to_end(home: Home, model: Model) -> None:
    daemon = home.start()
    session = home.ok("new", "--name", "asked")
    hello = {"jsonrpc": "2.0", "id": 1, "method": "daemon.hello", "params": {"protocol": 1}}
    send = {"session": session, "verb": "inject", "text": "x"}
    for n in range(100):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(home.socket))
            sends = {"jsonrpc": "2.0", "id": 2, "method": "session.send", "params": {**send, "text": f"{n}"}}
            client.sendall(json.dumps(hello).encode() + b"\n" + json.dumps(sends).encode() + b"\n")
    eventually(lambda: len(home.log(session, "inbox/spliced")) == 100, what="what they asked for is done")
    assert daemon.poll() is None


def test_a_request_may_come_in_any_pieces_and_a_huge_one_holds_up_nobody(home: Home, model: Model) -> None:
    home.start()
    session = home.ok("new", "--name", "pieces")
    text = "\u2028é🌍" * 100_000
    params = {"session": session, "verb": "inject", "text": text}
    request = {"jsonrpc": "2.0", "id": 2, "method": "session.send", "params": params}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "daemon.hello", "params": {"protocol": 1}}
    with socket.socket(socket.AF_UNIX) as client, home.rpc() as other:
        client.settimeout(TIMEOUT)
        client.connect(str(home.socket))
        for byte in json.dumps(hello).encode() + b"\n":
            client.send(bytes([byte]))
        answers = client.makefile("rb")
        assert json.loads(answers.readline())["id"] == 1
        line = json.dumps(request, ensure_ascii=False).encode() + b"\n"
        half = len(line) // 2
        client.sendall(line[:half])
        assert other.call("session.list")["sessions"]
        client.sendall(line[half:])
        receipt = json.loads(answers.readline())["result"]
        assert receipt["state"] == "pending"
        flood = threading.Thread(target=_flood, args=(client,))
        flood.start()
        for _ in range(20):
            other.call("daemon.status")
        assert "16777216 bytes" in json.loads(answers.readline())["error"]["message"]
        flood.join(TIMEOUT)
        answers.close()
    (kept,) = (home.state / "sessions" / session / "attachments").iterdir()
    assert kept.read_text() == text


def _flood(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for _ in range(20 * 256):
            client.sendall(b"x" * 4096)


# -- from elsewhere


def test_a_client_without_the_runtime_directory_finds_the_daemon_that_was_started_with_one(
    home: Home, model: Model
) -> None:
    login = {name: value for name, value in home.env.items() if name != "DSHD_HOME"}
    with contextlib.ExitStack() as stack:
        runtime = Path(tempfile.mkdtemp(prefix="dshd-e2e-run-"))
        stack.callback(shutil.rmtree, runtime)
        runtime.chmod(0o700)
        config = Path(login["HOME"]) / ".config" / "dshd" / "config.toml"
        config.parent.mkdir(parents=True)
        shutil.copy(home.path / "config.toml", config)
        login["XDG_RUNTIME_DIR"] = str(runtime)
        daemon = subprocess.Popen([PROGRAMS / "dshd"], env=login, stderr=subprocess.DEVNULL)
        stack.callback(daemon.wait)
        stack.callback(daemon.terminate)
        eventually(lambda: home.ctl("ping", env=login).returncode == 0, what="dshd gets ready")
        cron = {"HOME": login["HOME"], "PATH": "/usr/bin:/bin"}
        status = home.json("status", env=cron, cwd=Path("/"))[-1]
        assert status["pid"] == daemon.pid


def test_a_session_finds_the_programs_of_whoever_made_it_and_not_those_of_the_daemon(
    home: Home, model: Model
) -> None:
    home.start()
    tool = Path(home.env["HOME"]) / ".local" / "bin" / "mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    ask = script(bash("mytool"), {"text": "done"})
    user = {**home.env, "PATH": f"{tool.parent}:{home.env['PATH']}"}
    for name, env in (("user", user), ("cron", home.env)):
        home.ok("new", "--name", name, "--mode", "full", env=env)
        home.ok("followup", "-s", name, "--wait", ask)
    said = [
        home.log(id, "tool/result")[0]["data"]["content"][0]["text"]
        for id in (s["id"] for name in ("user", "cron") for s in home.json("show", name)[:1])
    ]
    assert said[0].startswith("found")
    assert "mytool" in said[1]
    assert "not found" in said[1]
