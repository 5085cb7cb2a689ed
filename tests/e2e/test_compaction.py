"""Making room with the real programs: unasked, because a person asks, and by a daemon that is killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import CONFIG
from tests.e2e.harness import Home, eventually
from tests.e2e.model import Model

LONG = "all work and no play " * 300  # about 1500 tokens; the model repeats it


@pytest.fixture
def small(model: Model) -> Iterator[Home]:
    """A home whose model has a window of 6,500 tokens."""
    with Home(CONFIG.format(url=model.url).replace("1000000", "6500")) as home:
        yield home


def reasons(home: Home) -> list[str]:
    return [event["data"]["reason"] for event in home.log(type="compaction/end")]


def test_a_long_conversation_is_compacted_and_a_daemon_killed_meanwhile_loses_nothing(
    small: Home, model: Model
) -> None:
    home, daemon = small, small.start()
    home.ok("remember", "tests run with make check")
    for part in range(2):
        home.ok("followup", "--wait", f"part {part}: {LONG}")
    assert reasons(home)[:1] == ["done"]
    newest = model.requests[-1]["messages"]
    assert "tests run with make check" in newest[0]["content"]
    assert any("## Task: summed up" in str(message["content"]) for message in newest)
    assert not any("part 0" in str(message["content"]) for message in newest if message["role"] == "user")
    (shown,) = home.json("prompt", "show")
    assert shown["compactions"] == len(reasons(home))
    assert (shown["window"], shown["compacts_at"]) == (6500, 5200)

    done = len(reasons(home))
    model.gate("summary")
    asking = home.popen("compact")
    eventually(lambda: len(home.log(type="compaction/start")) > done, what="it is compacted")
    assert "compacting (" in home.ok("status")
    waits = home.ok("steer", "said meanwhile")
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    assert asking.wait(20) == 1  # nobody knows what became of it
    model.open("summary")
    home.start()
    assert home.ctl("wait", waits, timeout=30).returncode == 0
    assert reasons(home)[done] == "interrupted"
    assert "said meanwhile" in str(model.requests[-1])
    home.ok("fsck", "--requests")
