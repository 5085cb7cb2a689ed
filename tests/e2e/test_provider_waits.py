"""A turn that waits for its provider, with the real programs: what kills, stops and wakes make of it."""

from __future__ import annotations

import signal
from typing import Any

from tests.e2e.harness import Home, eventually
from tests.e2e.model import Model, script


def limited(*after: str, say: str = "work") -> str:
    """A message that the provider refuses so often, each time until later, and then answers."""
    refusals = [{"status": 429, "headers": {"retry-after": seconds}} for seconds in after]
    return script({"attempts": [*refusals, {"text": "there you are"}]}, say=say)


def waits(home: Home, n: int) -> Any:
    """The ``n``-th wait, once it has begun."""

    def look() -> Any:
        found = [e for e in home.log(type="llm/retry") if e["data"].get("waits")]
        return found[n - 1] if len(found) >= n else None

    return eventually(look, what=f"{n} waits")


def test_a_wait_outlives_a_kill_and_a_restart_and_is_seen_wherever_one_looks(
    home: Home, model: Model
) -> None:
    daemon = home.start()
    id = home.ok("followup", limited("3600", "3600", "3600"))
    first = waits(home, 1)
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    eventually(lambda: not home.answers(), what="it is dead")
    (offline,) = [one for one in home.json("ls") if one["type"] == "session"]
    assert (offline["state"], offline["until_at"]) == ("waiting", first["data"]["until"])
    daemon = home.start()
    assert "which waits: the provider asked to wait until" in home.ok("why")
    assert home.ctl("wait", id, "--timeout", "0.2").returncode == 124
    assert "asks its provider again" in home.ok("wake", "--all")
    waits(home, 2)
    assert "rate limit, tries again" in home.ok("status")
    waiting = home.popen("wait", id)
    home.ok("steer", "left")
    home.ok("daemon", "restart")
    assert home.log(type="turn/end") == []
    home.ok("daemon", "reload")
    waits(home, 3)
    home.ok("wake")
    assert waiting.wait(30) == 0
    sent = [(e["data"]["step"], e["data"]["attempt"]) for e in home.log(type="request/sent")]
    assert sent == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1)]
    assert [e["data"]["reason"] for e in home.log(type="turn/end")] == ["completed"]
    (checked,) = home.json("fsck", "--requests")
    assert checked["requests"] == {"compared": 5, "different": 0, "first": None, "not_comparable": 0}
    assert "(waits until" in home.ok("log")


def test_what_patience_does_not_reach_ends_at_once_and_says_when(home: Home, model: Model) -> None:
    home.start()
    last = home.json("run", "--patience", "1m", limited("3600"), exit=75)[-1]
    assert (last["outcome"], last["error"]["code"]) == ("error", "RATE_LIMIT")
    assert last["retry_at"] > last["ended_at"] + 3_000_000


def test_an_abort_ends_a_wait(home: Home, model: Model) -> None:
    home.start()
    id = home.ok("followup", limited("3600"))
    waits(home, 1)
    assert "it was waiting (rate limit)" in home.ok("abort")
    assert home.ctl("wait", id).returncode == 12
