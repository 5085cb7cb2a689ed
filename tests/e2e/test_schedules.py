"""Schedules with the real daemon, its real clock, and `kill -9` where it matters."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from tests.e2e.harness import TIMEOUT, Home, eventually
from tests.e2e.model import Model

Json = dict[str, Any]


def soon(seconds: float) -> str:
    return f"@{time.time() + seconds:.3f}"


def own_log(home: Home) -> list[Json]:
    lines = (home.state / "+schedules" / "log.jsonl").read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def fired(home: Home, id: str, session: str | None = None) -> Json:
    """What became of the one instant of this schedule, as soon as it stands in the log."""

    def look() -> list[Json]:
        events = home.log(session) if session is not None else own_log(home)
        return [e["data"] for e in events if e["type"] == "schedule/fired" and e["data"]["id"] == id]

    (one,) = eventually(look, what=f"{id} fires")
    return one


def kill(daemon: subprocess.Popen[bytes]) -> None:
    daemon.send_signal(signal.SIGKILL)
    daemon.wait(TIMEOUT)


def test_killed_before_it_fires_and_while_it_fires_it_fires_once(home: Home, model: Model) -> None:
    daemon = home.start()
    api = home.ok("new", "--name", "api")
    early = home.ok("schedule", "add", "at", soon(1.0), "-s", "api", "early")
    kill(daemon)  # what was acknowledged is on disk
    daemon = home.start()
    one = fired(home, early, api)
    assert "skipped" not in one
    home.ok("wait", one["message"])
    runs = [home.ok("schedule", "add", "at", soon(0.6 + n / 100), "--run", f"run {n}") for n in range(3)]
    eventually(lambda: len(home.sessions()) > 1, what="a run is made")
    kill(daemon)  # as soon as one is there, whatever is noted of it
    daemon = home.start()
    made = [fired(home, id)["session"] for id in runs]
    assert sorted(made) == sorted(set(home.sessions()) - {api})
    for session in made:
        home.wait_event("turn/end", 1, session)
        assert len(home.said(session)) == 1
    assert [e["data"]["content"][0]["text"] for e in home.said(api)] == ["early"]
    assert home.json("fsck")[-1]["ok"]
    kill(daemon)
    assert [line["session"] for line in home.json("fsck")][-1] == "+schedules"


def test_it_is_told_everywhere(home: Home, model: Model) -> None:
    home.start()
    home.ok("new", "--name", "triage")
    added = home.ctl("schedule", "add", "every 2h", "-s", "triage", "look at the new issues")
    assert (added.returncode, added.stdout) == (0, "c1\n")
    assert "no service keeps dshd running" in added.stderr
    # half a day away at whatever hour this test runs: the other one is always the next
    nightly = f"0 {(datetime.now(ZoneInfo('Europe/Berlin')).hour + 12) % 24} * * *"
    home.ok("schedule", "add", nightly, "--run", "--zone", "Europe/Berlin", "-C", str(home.work), "nightly")
    table = home.ok("schedule")
    assert "every 2h" in table
    assert f"{nightly} (Europe/Berlin)" in table
    assert "Next: triage, " in home.ok("status")
    assert "c1, every 2h, next " in home.ok("show", "triage")
    for code, words in (
        (5, "rm --yes triage"),
        (5, "close triage"),
        (4, "schedule log c7"),
        (2, "schedule add at @1 x"),
    ):
        assert home.ctl(*words.split()).returncode == code, words
    for words in ("followup -s +schedules x", "rm --yes --force +schedules", "show +schedules"):
        assert home.ctl(*words.split()).returncode == 4, words
    assert home.json("fsck", "+schedules")[-1]["ok"]
    wrong = home.ctl("schedule", "add", "61 2 * * *", "x")
    assert (wrong.returncode, wrong.stderr.splitlines()[0]) == (2, 'dshctl: "61" is no minute (0-59).')
    home.ok("schedule", "run", "c1")
    (noted,) = home.log(type="schedule/fired")
    sent = home.log(type="inbox/spliced")[0]
    assert noted["seq"] == sent["seq"] + 1
    assert noted["data"]["message"] == sent["data"]["ops"][0]["insert"][0]["id"]
    assert [event["type"] for event in own_log(home)][1:] == ["session/opened", "schedule/added"]
    home.work.rename(home.work.with_name("moved"))
    moved = home.work.with_name("moved")
    assert home.ctl("schedule", "run", "c2", cwd=moved).returncode == 1
    status = home.ctl("status", "--check", cwd=moved)
    assert status.returncode == 1
    assert "refused" in status.stdout
    assert "dshctl schedule log c2" in status.stdout
    assert "no directory" in home.ok("schedule", "log", "c2", cwd=moved)


def test_a_daemon_that_leaves_when_idle_stays_while_something_is_scheduled(model: Model) -> None:
    config = f'model = "m"\n[routes.m]\nadapter = "openai"\nbase_url = "{model.url}"\nmodel = "m"\n'
    with Home(config + "[daemon]\nidle_exit = 1\n") as home:
        daemon = home.start()
        home.ok("new", "--name", "api")
        id = home.ok("schedule", "add", "at", soon(2.5), "-s", "api", "x")
        fired(home, id, home.sessions()[0])
        assert daemon.wait(TIMEOUT) == 0  # then it leaves
        (row, _) = home.json("schedule", "log", id)
        assert (row["state"], row["last"]["outcome"]) == ("over", "completed")
