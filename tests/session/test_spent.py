"""What was spent, from logs: by day, by session, by model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dshd.log.codec import Event, encode
from dshd.log.disk import RealDisk
from dshd.session.disk.spent import spent
from dshd.session.shown.usage import Spent, Sums, active, local_day

Json = dict[str, Any]
DAY = 24 * 3600 * 1000
NOON = 1_796_040_000_000


def log_of(path: Path, *events: tuple[str, int, Json]) -> Path:
    lines = (
        encode(Event(seq=seq, time=at, type=type, data=data)) for seq, (type, at, data) in enumerate(events)
    )
    path.write_bytes(b"".join(lines))
    return path


def usage(tokens: int, cost: float | None = None, currency: str = "USD") -> Json:
    money = {"cost": cost, "currency": currency} if cost is not None else {}
    return {"input": tokens, "cached": 0, "output": 1, **money}


def answer(at: int, model: str, used: Json | None) -> tuple[str, int, Json]:
    content = [{"type": "text", "text": 'it says "usage":{ and {"seq":1}'}]
    more = {"usage": used} if used else {}
    return "assistant/message", at, {"turn": 1, "step": 1, "content": content, "model": model, **more}


def test_answers_and_attempts_that_gave_none_count_and_ends_of_turns_do_not(tmp_path: Path) -> None:
    path = log_of(
        tmp_path / "log",
        ("request/context", NOON, {"route": "fast"}),
        ("llm/retry", NOON, {"code": "SERVER", "usage": usage(1)}),
        answer(NOON + 1, "slow", usage(2)),
        ("step/end", NOON + 2, {"turn": 1, "step": 1, "usage": usage(3)}),
        ("turn/end", NOON + 3, {"turn": 1, "reason": "completed", "usage": usage(6)}),
        answer(NOON + 4, "slow", None),
    )
    found = spent(RealDisk(), path)
    assert [(one.time - NOON, one.route, one.usage["input"]) for one in found] == [
        (0, "fast", 1), (1, "slow", 2), (2, "fast", 3),
    ]  # fmt: skip
    assert [one.usage["input"] for one in spent(RealDisk(), path, NOON + 1)] == [2, 3]


def test_what_a_forks_parent_spent_is_the_parents(tmp_path: Path) -> None:
    forked: tuple[str, int, Json] = ("session/forked", NOON, {})
    path = log_of(tmp_path / "log", answer(NOON, "m", usage(1)), forked, answer(NOON, "m", usage(2)))
    assert [one.usage["input"] for one in spent(RealDisk(), path)] == [2]


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    path = log_of(tmp_path / "log", answer(NOON, "m", usage(1)), answer(NOON, "m", usage(2)))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"input":1', b'"input":7') + b"\0\0torn")
    assert [one.usage["input"] for one in spent(RealDisk(), path)] == [2]


def sums(by: Any, *calls: tuple[str, int, str, Json]) -> Sums:
    made = Sums(by, lambda at: f"day {at // DAY}")
    for session, at, route, used in calls:
        made.add({"id": session, "name": f"n-{session}"}, [Spent(at, route, used)])
    return made


CALLS = [
    ("s1", 3 * DAY, "fast", usage(10, 0.5)),
    ("s2", 3 * DAY + 5, "slow", usage(20, 2.0)),
    ("s1", 4 * DAY, "slow", usage(30)),
    ("s1", 5 * DAY, "slow", usage(5, 3.0, "EUR")),
]


def test_days_are_in_their_order_and_others_by_what_they_cost() -> None:
    assert [row["what"] for row in sums("day", *CALLS).rows()] == ["day 3", "day 4", "day 5"]
    assert [row["what"] for row in sums("session", *CALLS).rows()] == ["n-s1", "n-s2"]
    assert [row["what"] for row in sums("model", *CALLS).rows()] == ["slow", "fast"]


def test_currencies_are_kept_apart_and_all_is_in_the_total() -> None:
    total = sums("day", *CALLS).total()
    assert (total["calls"], total["input"], total["tokens"]) == (4, 65, 69)
    assert (total["cost"], total["currency"], total["earlier"]) == (3.0, "EUR", {"USD": 2.5})
    (third,) = [row for row in sums("day", *CALLS).rows() if row["what"] == "day 4"]
    assert (third["cost"], third["currency"]) == (None, None)


def test_a_day_is_the_local_one_and_sessions_that_rest_are_not_read() -> None:
    assert len(local_day(NOON)) == 10
    views: list[Json] = [
        {"id": "a", "active_at": 5},
        {"id": "b", "active_at": 50},
        {"id": "c", "active_at": None},
    ]
    assert [view["id"] for view in active(views, 10)] == ["b", "c"]
