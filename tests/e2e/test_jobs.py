"""Commands in the background: begun, read along, kept, stopped; and what is left of them if anything dies."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.e2e.harness import Home, alive, eventually, not_running, running, texts
from tests.e2e.model import Model, bash, script

Json = dict[str, Any]


def job(command: str, **more: Any) -> Json:
    """An item that asks for a command in the background."""
    return {"tools": [{"name": "bash", "arguments": {"command": command, "background": True}}], **more}


def ticking(mark: str) -> str:
    """A job that goes on, with a descendant that tries to get away."""
    return f"(setsid sleep {mark} &) ; echo begun; while :; do echo tick; sleep 0.05; done"


def begun(home: Home, mark: str, *args: str) -> str:
    """Have a session start such a job; its id."""
    home.ok("followup", "--wait", *args, script(job(ticking(mark)), {"text": "it runs"}))
    (row,) = [row for row in home.json("jobs") if "exit" not in row or row["type"] == "job"][-1:]
    eventually(lambda: running(mark), what="the job runs")
    return str(row["id"])


def test_a_job_goes_on_behind_its_turn_and_its_end_is_told_with_the_next_one(
    home: Home, model: Model
) -> None:
    home.start()
    command = "while [ ! -e go ]; do sleep 0.02; done; echo made it; exit 3"
    home.ok("followup", "--wait", script(job(command), {"text": "started"}))
    (row,) = home.json("jobs")
    assert (row["id"], row["state"], row["command"], row["kept"]) == ("j1", "running", command, False)
    assert "j1" in home.ok("show")
    assert "j1" in home.ok("status")
    assert home.ctl("close").returncode == 5
    result = home.log(type="tool/result")[0]["data"]
    assert "j1 runs in the background" in result["content"][0]["text"]
    (home.work / "go").touch()
    home.wait_event("job/ended")
    assert home.log(type="turn/start")[-1]["data"]["turn"] == 1, "an end wakes nobody"
    assert home.ok("jobs") == "No job runs."
    assert home.ok("jobs", "output", "j1", "-f") == "made it"
    home.ok("followup", "--wait", "and?")
    (notice,) = [e for e in home.log(type="user/message") if e["data"]["source"]["kind"] == "job"]
    assert notice["data"]["source"] == {"kind": "job", "via": "j1"}
    assert "exit 3" in texts([notice])[0]
    assert "made it" in texts([notice])[0]
    assert "running job: j1" in str(model.requests[1]["messages"]), "the runtime context says what runs"


def test_the_agent_lists_its_jobs_reads_along_and_stops_them(home: Home, model: Model) -> None:
    home.start()
    call = {"name": "job", "arguments": {"action": "list"}}
    home.ok(
        "followup", "--wait",
        script(
            job(ticking("61.5")),
            {"tools": [call, {"name": "job", "arguments": {"action": "output", "job": "j1"}}]},
            {"tools": [{"name": "job", "arguments": {"action": "stop", "job": "j1"}}]},
            {"tools": [{"name": "job", "arguments": {"action": "stop", "job": "j1"}}]},
            {"text": "done"},
        ),
    )  # fmt: skip
    said = [e["data"]["content"][0]["text"] for e in home.log(type="tool/result")]
    assert said[1].startswith("j1  running: (setsid")
    assert "[j1 running]" in said[2]
    assert "[j1 is stopped]" in said[3]
    assert "j1 has ended" in said[4]
    assert home.log(type="job/ended")[0]["data"]["cause"] == "agent"
    assert not [e for e in home.log(type="inbox/spliced") if e["data"]["by"].get("kind") == "job"]
    assert not_running("61.5")


def test_an_abort_ends_the_jobs_of_its_turn_and_a_person_ends_any(home: Home, model: Model) -> None:
    home.start()
    first = begun(home, "62.5")
    home.ok("followup", script(job(ticking("63.5")), bash("sleep 60"), {"text": "x"}))
    eventually(lambda: running("63.5") and home.log(type="tool/call")[2:], what="the second job runs")
    home.ok("abort")
    assert not_running("63.5")
    assert running("62.5"), "that of an earlier turn stays"
    assert home.log(type="job/ended")[0]["data"]["cause"] == "abort"
    home.ok("jobs", "stop", first)
    assert not_running("62.5")
    assert home.ctl("jobs", "stop", first).returncode == 5
    assert home.ctl("jobs", "stop", "j99").returncode == 4


def test_a_daemon_that_is_killed_leaves_no_job_but_those_that_are_kept(home: Home, model: Model) -> None:
    daemon = home.start()
    kept, lost = begun(home, "64.5"), begun(home, "65.5")
    assert "kept" in home.ok("jobs", "keep", kept)
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    eventually(lambda: not_running("65.5"), what="the job that is not kept is gone")
    assert running("64.5")
    size = (home.state / "sessions" / home.sessions()[0] / "spill")
    home.start()
    home.wait_event("job/ended")
    assert home.log(type="job/ended")[0]["data"] == {"id": lost, "how": "lost", "cause": "crash"}
    (row,) = home.json("jobs")
    assert (row["id"], row["kept"], row["state"]) == (kept, True, "running")
    assert running("64.5")
    text = home.ok("jobs", "output", kept)
    assert text.startswith("begun")
    eventually(lambda: len(home.ok("jobs", "output", kept)) > len(text), what="its output goes on")
    assert alive(row["pid"])
    assert size.is_dir()

    home.ok("daemon", "stop")
    assert running("64.5")
    home.start()
    assert home.json("jobs")[0]["id"] == kept
    os.kill(running("64.5")[0], signal.SIGKILL)
    home.ok("jobs", "stop", kept)
    assert home.log(type="job/ended")[1]["data"]["cause"] == "user"
    eventually(lambda: not alive(row["pid"]))
    assert not list((home.state / "jobs").iterdir())


def test_how_a_kept_job_ended_while_no_daemon_was_there_is_known_at_the_next_start(
    home: Home, model: Model
) -> None:
    daemon = home.start()
    command = "while [ ! -e go ]; do sleep 0.02; done; echo bye; exit 7"
    home.ok("followup", "--wait", script(job(command), {"text": "x"}))
    home.ok("jobs", "keep", "j1")
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    (home.work / "go").touch()
    eventually(lambda: (home.state / "jobs" / "j1.end").exists())
    home.start()
    ended = home.wait_event("job/ended")["data"]
    assert (ended["how"], ended["code"]) == ("exit", 7)
    assert home.ok("jobs", "output", "j1") == "bye"


def test_what_a_session_has_running_is_ended_with_it_and_not_without_a_word(home: Home, model: Model) -> None:
    home.start()
    one, two = begun(home, "66.5", "-s", "one", "--create"), begun(home, "67.5", "-s", "two", "--create")
    home.ok("jobs", "keep", one)
    refused = home.ctl("close", "one")
    assert refused.returncode == 5
    assert f"runs 1 job ({one})" in refused.stderr
    home.ok("close", "--clear", "one")
    assert not_running("66.5")
    assert home.ctl("rm", "--yes", "two").returncode == 5
    home.ok("rm", "--yes", "--force", "two")
    assert not_running("67.5")
    assert home.ctl("jobs", "stop", two).returncode == 4
    home.ok("run", script(job(ticking("68.5")), {"text": "x"}))
    eventually(lambda: not_running("68.5"), what="a run's job ends with the run")


def test_a_hasty_steer_lets_the_running_command_go_on_as_a_job(home: Home, model: Model) -> None:
    daemon = home.start()
    command = "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo and through"
    first = home.ok("followup", script(bash(command), bash("echo second"), {"text": "turned"}))
    home.wait_event("tool/call")
    eventually(lambda: running(command), what="the command runs")
    steer = home.ok("steer", "--now", "look at this first")
    home.ok("wait", first)
    calls = home.log(type="tool/result")
    assert "goes on in the background, as j1" in calls[0]["data"]["content"][0]["text"]
    assert [(e["data"]["turn"], e["data"]["step"]) for e in home.said()] == [(1, 1), (1, 2)]
    assert home.json("message", steer)[0]["state"] == "settled"
    eventually(lambda: home.ok("jobs", "output", "j1") == "begun")
    home.ok("jobs", "keep", "j1")
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    home.start()
    (home.work / "go").touch()
    assert home.ok("jobs", "output", "-f", "j1") == "begun\nand through"
    assert home.wait_event("job/ended")["data"]["code"] == 0


def test_what_a_kept_job_leaves_is_ended_if_its_supervisor_is_killed(home: Home, model: Model) -> None:
    daemon = home.start()
    kept = begun(home, "69.5")
    home.ok("jobs", "keep", kept)
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    home.start()
    (row,) = home.json("jobs")
    os.kill(row["pid"], signal.SIGKILL)
    eventually(lambda: not_running("69.5"), what="nothing of it is left")
    ended = home.wait_event("job/ended")["data"]
    assert (ended["how"], ended["cause"]) == ("lost", "killed")
