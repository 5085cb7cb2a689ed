"""A call that a person must allow, from outside: real programs, a real shell, a daemon that is killed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess

from tests.e2e.harness import TIMEOUT, Home, eventually
from tests.e2e.model import Model, bash, script

RULE = '[[rules]]\naction = "ask"\ntool = "bash"\ncommand = "touch *"\n'


def ask(home: Home) -> None:
    with (home.path / "config.toml").open("a") as config:
        config.write(RULE)


def terminal(home: Home, *args: str) -> tuple[subprocess.Popen[str], int]:
    """dshctl on a terminal of its own; the terminal's other end."""
    ours, theirs = pty.openpty()
    process = home.popen(*args, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    return process, ours


def read_until(fd: int, what: str) -> str:
    seen = ""

    def look() -> bool:
        nonlocal seen
        seen += os.read(fd, 65536).decode(errors="replace")
        return what in seen

    eventually(look, what=what)
    return seen


def test_a_question_is_seen_whole_outlives_a_killed_daemon_and_is_answered_once(
    home: Home, model: Model
) -> None:
    ask(home)
    daemon = home.start()
    command = "cd . && touch \x1b[2Kmade; touch " + "x" * 300
    ran = home.ctl("run", "--ask", "wait", "--name", "docs", script(bash(command)))
    assert ran.returncode == 16
    assert "dshctl allow a1" in ran.stderr
    assert not (home.work / "made").exists()
    assert home.ctl("status", "--check").returncode == 1
    assert "wants to run: cd . && touch" in home.ok("status")
    assert "asks a1" in home.ok("ls")

    daemon.send_signal(signal.SIGKILL)
    daemon.wait(TIMEOUT)
    home.start()
    shown = home.ok("approvals")
    assert f"      cd . && touch ^[[2Kmade; touch {'x' * 300}\n" in shown
    message = home.json("queue", "-s", "docs", exit=0)
    assert message[-1]["type"] != "message", "it is in its turn"
    (told,) = home.json("deny", "a1", "--reason", "not here")
    assert (told["type"], told["answer"], told["reason"]) == ("approval", "deny", "not here")
    late = home.ctl("allow", "a1")
    assert late.returncode == 5
    assert "a1 is denied already, by you" in late.stderr
    home.ok("wait", "-s", "docs")
    (result,) = [e["data"] for e in home.log(type="tool/result")]
    assert result["content"][0]["text"] == "Denied by the user: not here. It was not run."
    assert home.log(type="turn/end")[-1]["data"]["reason"] == "completed"
    assert home.ctl("deny", "a9").returncode == 4


def test_who_waits_on_a_terminal_is_asked_in_place(home: Home, model: Model) -> None:
    ask(home)
    home.start()
    first, second = bash("touch one"), bash("touch two")
    process, fd = terminal(home, "run", "--name", "here", script(first, second, first, second))
    try:
        assert "touch one" in read_until(fd, "a1? ")
        os.write(fd, b"what\n")
        read_until(fd, "a1? ")
        os.write(fd, b"s\n")
        read_until(fd, "a2? ")
        home.ok("deny", "a2")
        assert "is answered" in read_until(fd, "a3? ")
        os.write(fd, b"\x04")
        assert "dshctl allow a3" in read_until(fd, "--reason")
        assert (home.work / "one").exists()
        assert not (home.work / "two").exists()
        home.ok("allow", "a3")
        assert process.wait(TIMEOUT) == 0
    finally:
        process.kill()
        os.close(fd)
    assert (home.work / "two").exists()
    assert [e["data"]["scope"] for e in home.log(type="approval/answered")] == ["session", "once", "once"]
    assert "a1 bash in" in home.ok("show", "here")
    home.ok("approvals", "--forget", "a1")
    assert home.ok("approvals") == "Nothing waits for your answer."
