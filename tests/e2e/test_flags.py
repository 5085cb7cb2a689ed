"""The flags of a send with the real programs, killed in between."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import Any

from tests.e2e.harness import Home, eventually, texts
from tests.e2e.model import Model, bash, script

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done"
LONG = "".join(f"line {n} of many\n" for n in range(100_000))  # 1.8 MB: goes in pieces


def kill(home: Home, daemon: Any) -> None:
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    eventually(lambda: not home.answers(), what="it is dead")


def go(home: Home) -> None:
    (home.work / "go").touch()


def test_what_is_due_while_the_daemon_is_dead_runs_when_it_is_back(home: Home, model: Model) -> None:
    daemon = home.start()
    (soon,) = home.json("followup", "--in", "4s", "soon")
    (later,) = home.json("followup", "--at", "tomorrow 06:00", "later")
    (held,) = home.json("followup", "--hold", "for a person")
    (gone,) = home.json("followup", "--hold", "--expires", "4s", "gone")
    assert {r["state"] for r in (soon, later, held, gone)} == {"held"}
    assert soon["warning"] in ("no-unit", "no-linger", None)
    kill(home, daemon)
    time.sleep(max(0.0, gone["expires_at"] / 1000 - time.time()))
    home.start()
    assert home.ok("wait", soon["message"]) == ""
    assert home.ctl("wait", gone["message"]).returncode == 17
    assert home.ctl("wait", held["message"]).returncode == 18
    assert texts(home.said()) == ["soon"]
    assert re.match(r"Held until \w+ \d+ 06:00 \(in ", home.ok("why", later["message"]))
    home.ok("wake", held["message"])
    home.ok("wait", held["message"])
    assert texts(home.said()) == ["soon", "for a person"]
    assert [m["id"] for m in home.json("queue")] == [later["message"]]


def test_a_time_in_the_past_is_an_error_of_usage(home: Home, model: Model) -> None:
    for flags in (["--at", "2020-01-01"], ["--at", "@1"], ["--at", "tea time"], ["--in", "soon"],
                  ["--in", "1m", "--at", "18:00"], ["--supersede"]):  # fmt: skip
        assert home.ctl("followup", *flags, "x").returncode == 2
    assert home.sessions() == []


def test_the_last_of_a_tag_is_what_is_done_and_undo_brings_the_others_back(home: Home, model: Model) -> None:
    daemon = home.start()
    home.ok("followup", script(bash(WAIT_FOR_GO), {"text": "done"}))
    home.wait_event("tool/call")
    first = home.ok("followup", "--tag", "t", "--supersede", "one")
    (second,) = home.json("followup", "--tag", "t", "--supersede", "two")
    assert second["superseded"] == [first]
    assert home.json("message", first)[0]["state"] == "superseded"
    kill(home, daemon)
    home.start()
    (undone,) = home.json("queue", "undo")
    assert (undone["type"], undone["cause"], [m["id"] for m in undone["messages"]]) == (
        "undone", "supersede", [first],
    )  # fmt: skip
    assert home.ctl("queue", "undo").returncode == 4
    go(home)
    home.ok("wait")
    assert sorted(texts(home.said())[1:]) == ["one", "two"]


def test_a_dry_run_makes_nothing_not_even_a_session(home: Home, model: Model) -> None:
    (new,) = home.json("followup", "--dry-run", "x")
    assert (new["would"], new["created"]) == ("start-turn", True)
    assert home.sessions() == []
    home.ok("followup", "--key", "k", "--wait", "x")
    before = home.log()
    assert home.json("followup", "--dry-run", "x")[0]["turn"] == 2
    assert home.json("followup", "--dry-run", "--key", "k", "x")[0]["would"] == "duplicate"
    assert home.json("followup", "--dry-run", "--key", "k", "y", exit=5)[0]["would"] == "refused"
    assert home.ctl("followup", "--dry-run", "--if-turn", "7", "y").returncode == 5
    assert home.log() == before


def test_who_waits_for_room_gets_it_and_who_leaves_has_sent_nothing(model: Model) -> None:
    config = f"""
        model = "mock"
        [routes.mock]
        adapter = "openai"
        base_url = "{model.url}"
        model = "mock"
        [inbox]
        max_pending = 1
    """
    with Home(config) as home:
        home.start()
        home.ok("followup", script(bash(WAIT_FOR_GO), {"text": "done"}))
        home.wait_event("tool/call")
        home.ok("followup", "one")
        assert home.ctl("followup", "refused").returncode == 6
        leaves = home.popen("followup", "--when-full", "wait", "gone")
        stays = home.popen("followup", "--when-full", "wait", "two")
        time.sleep(1)
        assert (leaves.poll(), stays.poll()) == (None, None)
        os.kill(leaves.pid, signal.SIGKILL)
        leaves.wait()
        time.sleep(0.3)
        go(home)
        assert stays.wait(30) == 0
        home.ok("wait")
        assert texts(home.said())[1:] == ["one", "two"]


def test_a_long_text_is_kept_whole_and_the_agent_can_read_it(home: Home, model: Model) -> None:
    daemon = home.start()
    id = home.ok("followup", "--key", "k", "--wait", "--json", "-", input=LONG).splitlines()
    receipt = json.loads(id[0])
    place = home.state / "sessions" / receipt["session"] / "attachments"
    (file,) = place.iterdir()
    assert file.read_text() == LONG
    assert file.stat().st_mode & 0o777 == 0o600
    asked = next(m for m in model.requests[0]["messages"] if m["role"] == "user")
    assert str(file) in json.dumps(asked)
    assert len(json.dumps(asked)) < 20_000
    kill(home, daemon)
    home.start()
    again = home.json("followup", "--key", "k", "-", input=LONG)[0]
    assert (again["message"], again["duplicate"]) == (receipt["message"], True)
    assert home.ctl("followup", "--key", "k", "-", input=LONG + "x").returncode == 5
    home.ok("followup", "--wait", script(bash(f"tail -n 1 {file}"), {"text": "read"}))
    (result,) = home.log(type="tool/result")
    assert "line 99999 of many" in json.dumps(result["data"]["content"])
    assert len(list(place.iterdir())) == 1
    assert home.ctl("followup", "-", input="x" * (8 * 1024 * 1024 + 1)).returncode == 6
    assert home.ctl("fsck").returncode == 0


def test_a_snapshot_is_what_the_file_was(home: Home, model: Model) -> None:
    path = home.work / "notes.txt"
    path.write_text("".join(f"note {n}\n" for n in range(1, 10)))
    home.ok("followup", "--wait", "--file", "notes.txt:3-4", "--ref", "notes.txt", "look")
    path.unlink()
    (event,) = home.said()
    (said,) = texts([event])
    assert "note 3\nnote 4" in said
    assert "note 5" not in said
    assert str(path) in said


def test_any_process_may_wait_at_any_later_time(home: Home, model: Model) -> None:
    daemon = home.start()
    done = home.ok("followup", "--wait", "--json", "x")
    id = json.loads(done.splitlines()[0])["message"]
    removed = home.ok("followup", "--hold", "y")
    home.ok("queue", "rm", removed)
    kill(home, daemon)
    assert home.ok("answer", id) == "echo: x"
    waiting = home.json("wait", id, removed, exit=17)
    assert [r["outcome"] for r in waiting] == ["completed", "removed"]
