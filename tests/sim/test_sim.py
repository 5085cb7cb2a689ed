"""Histories for `DSHD_SIM_SECONDS` (20), small plans that once failed, planted bugs."""

from __future__ import annotations

import os
import time
from typing import Any, Final

import attrs
import pytest

from dshd.log.codec import Event, encode
from dshd.log.memory import MemoryDisk
from tests.sim import bugs
from tests.sim.plan import Action, Pause, Plan, make
from tests.sim.play import play
from tests.sim.shrink import shrink
from tests.sim.world import STATE, Life, Past

SECONDS = float(os.environ.get("DSHD_SIM_SECONDS", "20"))
START = int(os.environ.get("DSHD_SIM_START", "0"))


def act(kind: str, pause: Pause = -1, **args: object) -> Action:
    return Action(kind, pause, args)


SEND: Final[dict[str, Any]] = {
    "verb": "followup", "no_wake": False, "first": False, "key": None, "as_": None, "only": None,
}  # fmt: skip
CREATE = act("create", text=False, key=None, run=False)


def waits_and_does_not_fit(death: str, ticks: int) -> Plan:
    """A step waits for its provider; the next daemon's model has a smaller window, and compacts."""
    how: dict[str, Any] = {"grace": 3.0} if death == "stop" else {"calls": 0}
    return Plan(
        seed=2,
        actions=(
            CREATE,
            act("send", **SEND),
            act("stop", ("llm/retry", 3), grace=1.0),
            act("wake", 0),
            act(death, ("compaction/start", ticks), **how),
            act("look", 60.0),
            act("wake"),
        ),
        answers=(
            ("call", tuple(("work", 0, f"{n}") for n in range(6)), False),
            ("error", "RATE_LIMIT", False, 900.0),
        ),
        windows=(450, 2000, 450),
        summaries=(("slow", 30.0, ("say", 20, "stop")),),
    )


PLANS = {
    "a stop without grace meets a turn that is just opening": Plan(
        seed=563,
        actions=(CREATE, act("send", **SEND), act("stop", grace=0.0)),
        answers=(("call", (("work", 0, "a"), ("work", 60.0, "b"), ("work", 0, "c")), False),),
    ),
    "what a tool adds is said once": Plan(
        seed=606, actions=(CREATE, act("send", **SEND)), answers=(("call", (("tell", 0, "a"),), False),)
    ),
    "a kill at each of the first calls, and a power cut after the next start": Plan(
        seed=1082,
        actions=(
            CREATE,
            act("send", **SEND),
            *(a for n in range(12) for a in (act("kill", 0, calls=n), act("send", 1.1, **SEND))),
            act("cut", calls=0, survivor="nothing", chance=0),
            act("look", 1.1),
        ),
    ),
    **{
        f"an abort {ticks} ticks behind the wake of a step that waits": Plan(
            seed=18,
            actions=(
                CREATE,
                act("send", **SEND),
                act("kill", ("llm/retry", 2), calls=0),
                act("wake", 0),
                act("abort", ticks, disposition="keep", turn=None, gives_up=None),
            ),
            answers=(("error", "STREAM_CLOSED", False, 900.0),),
        )
        for ticks in range(6)
    },
    **{
        f"a {death} {ticks} ticks into a compaction in a step that waited": waits_and_does_not_fit(
            death, ticks
        )
        for death in ("stop", "kill")
        for ticks in (0, 2)
    },
}


@pytest.mark.parametrize("name", PLANS)
def test_a_small_history_holds(name: str) -> None:
    assert play(PLANS[name]).finds == []


def test_every_history_keeps_every_promise() -> None:
    seed, end, histories = START, time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        past = play(make(seed))
        finds, histories = past.finds, histories + past.counts["histories"]
        if finds:
            small = shrink(make(seed))
            lines = (
                f"seed {seed}: {finds[0]}",
                "",
                f"python -m tests.sim --seed {seed}",
                "",
                "shrunk:",
                str(small),
            )
            pytest.fail("\n".join(lines))
        seed += 1
    print(f"{histories} histories")
    assert seed > START


def line(seq: int, type: str, boot: int) -> bytes:
    return encode(Event(seq, boot, type, {}))


HEADER, DURABLE = line(0, "session/header", 1), line(1, "turn/start", 1)
CHUNK, RETRY = line(2, "assistant/chunk", 1), line(3, "llm/retry", 1)
OPENED, ENDED = line(2, "session/opened", 2), line(3, "turn/end", 2)  # by a life that died before it told


@pytest.mark.parametrize(
    ("there", "wrong"),
    [
        ([HEADER, DURABLE, CHUNK, RETRY], False),
        ([HEADER, DURABLE, OPENED, ENDED], False),
        ([HEADER, line(1, "turn/start", 2), OPENED, ENDED], True),
        ([HEADER], True),
    ],
    ids=["all stayed", "a power cut took what was told soon", "a durable line is another", "one is missing"],
)
def test_what_was_told_as_durable_must_stay_and_nothing_else(there: list[bytes], wrong: bool) -> None:
    past, disk = Past(), MemoryDisk()
    disk.create_dir_synced(STATE / "sessions" / "s")
    Life(make(0), past, disk, 0, 1)._on_lines("s", 0, [HEADER, DURABLE, CHUNK, RETRY])
    new = line(len(there), "session/opened", 3)
    later = Life(make(0), past, disk, 0, 3)
    disk.write_synced(later.store.log_path("s"), b"".join((*there, new)))
    later._on_lines("s", len(there), [new])
    assert bool(past.finds) == wrong
    assert past.told["s"] == [*there, new]


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_plays_the_same_history_to_the_byte(seed: int) -> None:
    first, second = play(make(seed)), play(make(seed))
    assert first.told == second.told
    assert first.counts == second.counts


QUICK = {
    "ack_before_sync": 100, "fold_before_sync": 600, "tell_before_sync": 200,
    "decision_on_folded_state": 1500, "claim_lost_on_crash": 300, "key_forgotten": 300,
    "parked_forgotten": 600, "synced_ignored": 1500, "move_in_two_events": 1500,
    "requeued_at_the_wrong_end": 1500, "abort_without_parking": 600, "opening_not_synced": 600,
    "second_sync_believed": 1500, "cache_believed": 1500, "wait_closed_by_recovery": 400,
    "wait_told_before_sync": 400, "surface_replaced_before_sync": 300,
    "compaction_left_open_by_recovery": 300, "cut_between_call_and_result": 300,
    "compacted_again_and_again": 300, "answered_twice": 300, "allowed_twice_runs_twice": 300,
    "runs_before_allowed": 300, "end_never_told_after_crash": 300, "end_not_owed_by_recovery": 300,
    "end_told_before_sync": 300,
}  # fmt: skip


@pytest.mark.parametrize("bug", QUICK)
def test_a_planted_bug_is_found_soon(bug: str) -> None:
    _, found = bugs.find(bug, QUICK[bug])
    assert found is not None


def test_a_failure_is_shrunk_to_what_it_needs() -> None:
    with bugs.planted("parked_forgotten"):
        plan = next(p for p in map(make, range(100)) if play(p).finds)
        small = shrink(plan, seconds=20)
        assert play(small).finds
    assert len(small.actions) < len(plan.actions)
    assert attrs.evolve(small, actions=()) != small
