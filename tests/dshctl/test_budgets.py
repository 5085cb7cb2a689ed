"""What is said of budgets, word for word, and the command at its right."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dshctl import sentences
from dshd import budgets
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RESULT, Fake, message
from tests.dshctl.test_schemas import check
from tests.dshctl.test_views import NOW, PARKED_AT, STATUS, session

Json = dict[str, Any]
STOP: Json = {"what": "turn_cost", "limit": 5.0, "spent": 5.02, "currency": "USD", "add": "cost=2"}
DAY: Json = {"what": "day_cost", "limit": 10.0, "spent": 10.0, "currency": "USD", "add": "cost=4"}


def test_a_window_is_counted_as_its_makers_count_it() -> None:
    shown = [budgets.window(size) for size in (65_536, 131_072, 128_000, 200_000, 1_000_000)]
    assert shown == ["64 k", "128 k", "128 k", "200 k", "1.0 M"]
    assert budgets.in_window(41_984, 65_536) == "41 k"


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    for module in ("times", "commands.status", "commands.queue", "commands.show"):
        monkeypatch.setattr(f"dshctl.{module}.now_ms", lambda: NOW)


def parked(stop: Json, count: int = 3) -> Json:
    return {"by": "budget", "what": stop["what"], "at": PARKED_AT, "count": count, "budget": stop}


def nightly(stop: Json, count: int = 3) -> Json:
    pending = {"next-turn": count, "next-step": 0, "held": 0}
    needs = [{"kind": "parked", "id": None}]
    return session("nightly", "parked", parked=parked(stop, count), needs=needs, pending=pending)


@pytest.mark.parametrize(
    ("stop", "count", "line"),
    [
        (STOP, 3, "  nightly   parked 03:12, turn cost $5.00, 3 wait  dshctl wake -s nightly"),
        (STOP, 0, "  nightly   parked 03:12, turn cost $5.00  dshctl wake -s nightly --add cost=2"),
        (DAY, 3, "  nightly   parked 03:12, day cost $10.00, 3 wait  dshctl wake -s nightly --add cost=4"),
    ],
)
def test_status_says_which_budget_and_what_helps(
    dshctl: Dshctl, fake: Fake, stop: Json, count: int, line: str
) -> None:
    today = {"tokens": 1_900_000, "cost": 2.31, "currency": "USD", "limit": 10.0}
    fake.answers["daemon.status"] = {**STATUS, "sessions": [nightly(stop, count)], "today": today}
    said = dshctl("status").out.splitlines()
    assert said[0].endswith("Today 1.9 M tokens, $2.31 of $10.")
    assert line in said


def test_a_queue_says_it_first(dshctl: Dshctl, fake: Fake) -> None:
    rows = [message(1, queue="next-turn")]
    fake.answers["queue.ls"] = {"session": {**nightly(STOP), "name": "api"}, "messages": rows}
    first = dshctl("queue", "-s", "api").out.splitlines()[0]
    assert first == "api: PARKED since 03:12, turn cost $5.00 (dshctl wake -s api)"


def test_a_result_says_what_was_used_up_and_the_command(dshctl: Dshctl, fake: Fake) -> None:
    result = {**RESULT, "name": "nightly", "turn": 7, "outcome": "budget", "exit": 15, "budget": STOP}
    check({"type": "result", **result})
    fake.answers["session.wait"] = {"type": "waited", "results": [result]}
    ran = dshctl("wait", "s4h8w2c1.17")
    assert ran.code == 15
    assert ran.err.splitlines() == [
        "dshctl: nightly: turn 7 used its budget up: turn cost $5.02 of $5.00.",
        "      dshctl wake -s nightly --add cost=2",
    ]


def test_what_waits_behind_a_budget_is_kept(dshctl: Dshctl, fake: Fake) -> None:
    park = parked(STOP)
    result = {**RESULT, "name": "api", "turn": None, "outcome": None, "text": None, "exit": 18,
              "parked": park}  # fmt: skip
    check({"type": "result", **result})
    fake.answers["session.wait"] = {"type": "waited", "results": [result]}
    ran = dshctl("wait", "s4h8w2c1.17")
    assert ran.code == 18
    assert ran.err.splitlines()[-1] == "      dshctl wake -s api --add cost=2"
    assert sentences.parked({"parked": park}, NOW) == "parked since 03:12 (budget: $5.00 a turn)"
    said = " ".join(ran.err.split())
    assert "kept, but api is parked since 03:12 (budget: $5.00 a turn); 3 wait." in said


def test_show_tells_budgets_as_used_and_limit(dshctl: Dshctl, fake: Fake) -> None:
    uses = [{k: v for k, v in stop.items() if k != "add"} for stop in (STOP, DAY)]
    shown = session("api", "idle", budgets=uses, max_cost=5.0)
    check({"type": "session", **shown})
    fake.answers["session.show"] = shown
    lines = dshctl("show", "api").out.splitlines()
    assert "  budgets   turn cost $5.02/$5.00" in lines
    assert "            day cost $10.00/$10.00" in lines


def test_wake_asks_for_what_is_typed(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.wake"] = {
        "type": "woken", "exit": 0, "session": "s4h8w2c1", "name": "nightly", "runs": True, "turn": 8,
        "pending": {"next-turn": 3, "next-step": 0, "held": 0}, "released": [], "unparked": parked(STOP),
    }  # fmt: skip
    ran = dshctl("wake", "-s", "nightly", "--add", "cost=2", "--add", "time=1h")
    assert (ran.code, ran.out) == (0, "nightly: goes on with turn 8; 3 queued.\n")
    assert fake.params("session.wake")[-1]["add"] == {"cost": 2.0, "time": 3600.0}


@pytest.mark.parametrize(
    "args",
    [["--all", "--add", "cost=2"], ["s4h8w2c1.17", "--add", "cost=2"], ["--add", "cost=2", "--add", "cost=3"],
     ["--add", "beer=2"], ["--add", "cost"]],
)  # fmt: skip
def test_what_can_t_be_added_is_an_error_of_usage(dshctl: Dshctl, fake: Fake, args: list[str]) -> None:
    assert dshctl("wake", *args).code == 2


def test_options_of_a_session_are_its_budgets(dshctl: Dshctl, fake: Fake) -> None:
    dshctl("new", "--name", "x", "--max-cost", "2.5", "--max-steps", "50", "--max-time", "1h",
           "--max-tokens", "100k")  # fmt: skip
    made = fake.params("session.create")[-1]
    assert {k: v for k, v in made.items() if k.startswith("max_")} == {
        "max_cost": 2.5, "max_steps": 50, "max_time": 3600.0, "max_tokens": 100_000,
    }  # fmt: skip
    assert dshctl("new", "--name", "y", "--max-steps", "1.5").code == 2
