"""Hooks and notices with the real programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.conftest import CONFIG
from tests.e2e.harness import Home, alive, eventually
from tests.e2e.model import Model, bash, script


def configure(home: Home, model: Model, more: str) -> None:
    (home.path / "config.toml").write_text(CONFIG.format(url=model.url) + more)


def lines(path: Path) -> list[dict[str, Any]]:
    """What a hook appended to a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_what_needs_a_person_is_told_once(home: Home, model: Model) -> None:
    told = home.work / "told"
    configure(home, model, f"""
        [notify]
        command = "echo $DSHD_KIND $DSHD_SESSION_NAME $DSHD_AUTOSTART >>{told}.env; cat >>{told}"
        [[hooks]]
        event = "attention"
        matcher = "approval"
        command = "touch {told}.no"
        [routes.broken]
        adapter = "openai"
        base_url = "{model.url}"
        model = "mock"
        api_key_env = "NO_SUCH_KEY"
    """)  # fmt: skip
    home.start()
    assert home.ctl("run", "--name", "one", "--model", "broken", "hello").returncode == 9
    eventually(lambda: lines(told), what="the notice")
    (notice,) = lines(told)
    assert (notice["event"], notice["kind"], notice["hook_event_name"]) == (
        "attention", "credential", "Notification",
    )  # fmt: skip
    assert "NO_SUCH_KEY" in notice["text"]
    assert (told.parent / "told.env").read_text() == "credential one 0\n"
    home.ctl("run", "--name", "two", "--model", "broken", "hello")
    home.ok("daemon", "stop")
    assert len(lines(told)) == 1
    assert not Path(f"{told}.no").exists()


# What existing agents' hooks look like: they grep in their own names.
AROUND = """
[[hooks]]
event = "pre_tool"
name = "no removals"
matcher = "Bash"
command = '''grep -q '"tool_input": {"command": "rm ' || exit 0; echo "rm is mine" >&2; exit 2'''
[[hooks]]
event = "post_tool"
command = '''echo '{"hookSpecificOutput": {"hookEventName": "PostToolUse",
"additionalContext": "look again"}}''''
[[hooks]]
event = "turn_stopping"
name = "last words"
command = '''
env >stopped; dshctl set net=on; echo $? >>stopped
[ -e once ] || dshctl inject noted; touch once; exit 7'''
[[hooks]]
event = "pre_step"
command = ["no-such-hook"]
"""


def test_hooks_around_a_turn(home: Home, model: Model) -> None:
    configure(home, model, AROUND)
    home.start()
    home.ok("new", "--name", "one", "--mode", "full", "--env", "MY_TOKEN=secret", "--env", "MY_VAR=plain")
    home.ok(
        "followup", "-s", "one", script(bash("echo hello"), bash("rm -rf /w"), {"text": "well"}), "--wait"
    )

    results = [line["data"] for line in home.log(type="tool/result")]
    assert "hello" in results[0]["content"][0]["text"]
    assert (
        results[1]["content"][0]["text"] == "bash was not run: hook no removals does not allow it: rm is mine"
    )
    sources = [(m["data"]["source"]["kind"], m["data"]["content"][0]["text"]) for m in home.said()[1:]]
    assert sources == [("hook", "look again"), ("hook", "noted")]

    found = [line["data"] for line in home.log(type="hook/ran")]
    ran = {(data["event"], data["hook"], data["outcome"]) for data in found}
    assert ran == {
        ("pre_tool", "no removals", "passed"), ("pre_tool", "no removals", "blocked"),
        ("post_tool", "echo", "passed"), ("turn_stopping", "last words", "failed"),
        ("pre_step", "no-such-hook", "failed"),
    }  # fmt: skip
    stderr = (home.path / "stderr").read_text()
    assert "hook no-such-hook (pre_step) failed: no-such-hook could not be started" in stderr
    stopped = (home.work / "stopped").read_text()
    assert stopped.endswith("8\n")  # a hook may not change settings
    assert "MY_VAR=plain\n" in stopped
    assert "secret" not in stopped


def test_a_hook_that_hangs_is_ended_by_an_abort_and_by_a_stop(home: Home, model: Model) -> None:
    configure(home, model, """
        [[hooks]]
        event = "pre_step"
        command = "trap '' TERM; echo $$ >>pids; setsid sh -c 'echo $$ >>pids; sleep 1000' & sleep 1000"
        timeout = "10m"
        [daemon]
        shutdown_grace = 0.2
    """)  # fmt: skip
    home.start()

    def hanging(n: int) -> list[int]:
        there = home.work / "pids"
        found = list(map(int, there.read_text().split())) if there.exists() else []
        return found if len(found) == n else []

    home.ok("followup", "one")
    first = eventually(lambda: hanging(2), what="the hook runs")
    home.ok("abort")
    assert not any(map(alive, first))
    home.ok("followup", "two")
    eventually(lambda: hanging(4), what="the hook runs again")
    home.ok("daemon", "stop")
    assert not any(map(alive, hanging(4)))
    assert [line["data"]["reason"] for line in home.log(type="turn/end")] == ["aborted", "interrupted"]


def test_a_turns_end_is_told_across_kill_9(home: Home, model: Model) -> None:
    configure(home, model, """
        [[hooks]]
        event = "turn_end"
        command = "cat >>ends; echo $$ >pid; [ -e go ] || exec sleep 1000"
        timeout = "10m"
        [[hooks]]
        event = "turn_end"
        command = ["/no/such/program"]
    """)  # fmt: skip
    assert "hooks[1].command runs /no/such/program" in home.ok("config", "check")
    daemon = home.start()
    home.ok("run", "--name", "one", "hello")  # has its answer although the hook hangs
    pid = int(eventually(lambda: (home.work / "pid").exists() and (home.work / "pid").read_text()))
    daemon.kill()
    daemon.wait()
    eventually(lambda: not alive(pid), what="the hook ends with its daemon")
    (home.work / "go").touch()
    home.start()
    home.wait_event("hook/done")
    told = [(end["turn"], end["reason"], end["again"]) for end in lines(home.work / "ends")]
    assert told == [(1, "completed", False), (1, "completed", True)]
    kinds = [event["type"] for event in home.log() if event["type"] in ("turn/end", "hook/due", "hook/done")]
    assert kinds == ["hook/due", "turn/end", "hook/done"]
    assert "(hook program (turn_end) failed: /no/such/program could not be started" in home.ok(
        "log", "-s", "one"
    )
