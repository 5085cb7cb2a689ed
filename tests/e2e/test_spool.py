"""`--spool` with the real programs: kept while the daemon is away, taken up once and in order."""

from __future__ import annotations

import json
import signal

from tests.e2e.harness import Home, eventually, texts
from tests.e2e.model import Model
from tests.e2e.test_full_disk import full, small

__all__ = ["small"]  # a fixture


def spooled(home: Home, *args: str) -> str:
    receipt = home.json("followup", "--no-autostart", "--spool", *args)[-1]
    assert (receipt["spooled"], receipt["state"]) == (True, "spooled")
    return str(receipt["message"])


def waiting(home: Home) -> list[str]:
    return sorted(path.name for path in (home.state / "spool").glob("*.json"))


def test_three_sends_kept_by_processes_of_their_own_are_one_conversation(home: Home, model: Model) -> None:
    names = [spooled(home, f"m{n}") for n in range(3)]
    assert len(waiting(home)) == 3
    home.start()
    home.ok("followup", "--wait", "direct")
    assert texts(home.said()) == ["m0", "m1", "m2", "direct"]
    assert waiting(home) == []
    for name, text in zip(names, ("m0", "m1", "m2"), strict=True):
        found = home.json("message", name)[-1]
        assert (found["text"], found["state"], found["source"]["via"]) == (text, "settled", "spool")
        assert home.json("wait", name)[-1]["message"] == found["id"]
        assert home.ok("answer", name)
        home.ok("why", name)
    home.ok("daemon", "stop")
    assert home.json("message", names[0])[-1]["text"] == "m0"


def test_sends_that_come_at_once_are_all_kept_each_under_a_place_of_its_own(home: Home, model: Model) -> None:
    running = [
        home.popen("followup", "--no-autostart", "--no-wake", "--spool", "-s", "x", "--create", f"m{n}")
        for n in range(8)
    ]
    assert [child.wait(60) for child in running] == [0] * 8
    numbers = [name.partition("-")[0] for name in waiting(home)]
    assert numbers == [f"{n:012}" for n in range(1, 9)]
    in_order = [json.loads(path.read_text())["send"]["text"]
                for path in sorted((home.state / "spool").glob("*.json"))]  # fmt: skip
    home.start()
    eventually(lambda: not waiting(home))
    (inbox,) = [home.json("queue", "-s", "x")]
    assert [item["text"] for item in inbox if item["type"] == "message"] == in_order


def test_a_daemon_killed_while_it_takes_up_sends_nothing_twice(home: Home, model: Model) -> None:
    for n in range(40):
        if n < 3:
            spooled(home, "--no-wake", "-s", "x", "--create", f"m{n}")
        else:
            _copy(home, n)
    daemon = home.start()
    eventually(lambda: len(waiting(home)) < 38)
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    left = len(waiting(home))
    home.start()
    eventually(lambda: not waiting(home))
    (session,) = home.sessions()
    keys = [op["insert"][0]["key"] for event in home.log(session, "inbox/spliced")
            for op in event["data"]["ops"] if op.get("insert")]  # fmt: skip
    assert len(keys) == len(set(keys)) == 40, left


def _copy(home: Home, n: int) -> None:
    """One more like those that dshctl has written, without the time that starting it takes."""
    from dshd import spool
    from dshd.log.disk import RealDisk

    place = spool.Spool(RealDisk(), home.state)
    first = place.read(place.waiting()[0])
    place.put(first._replace(id=spool.new_id(), send={**first.send, "text": f"m{n}"}))


def test_on_a_disk_that_is_full_it_waits_for_room_and_senders_are_told(small: Home, model: Model) -> None:
    small.ok("followup", "--wait", "before")
    small.ok("daemon", "stop")
    name = spooled(small, "x" * 9000)
    with full(small):
        small.start()
        error = small.json("followup", "y", exit=75)[-1]
        assert (error["code"], error["outcome"]) == ("NO_SPACE", "not-written")
        status = small.json("status")[-1]["spool"]
        assert (status["waiting"], status["refused"]) == (1, 0)
    eventually(lambda: not waiting(small))
    small.ok("wait", name)
    assert texts(small.said()) == ["before", "x" * 9000]


def test_refused_ones_are_kept_and_status_says_where(home: Home, model: Model) -> None:
    name = spooled(home, "-s", "nowhere", "x")
    home.start()
    eventually(lambda: not waiting(home))
    status = home.json("status")[-1]["spool"]
    assert (status["waiting"], status["refused"]) == (0, 1)
    shown = home.ok("status")
    assert "1 spooled send refused:" in shown
    assert home.ctl("message", name).returncode == 4
    (kept,) = (home.state / "spool" / "refused").iterdir()
    assert json.loads(kept.read_text())["reason"].startswith('no session "nowhere"')
