"""A turn that waits, as people see it."""

from __future__ import annotations

from typing import Any

from dshctl import fates, sentences
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, Fake
from tests.dshctl.test_views import MIN, NOW, STATUS, _noon, session

Json = dict[str, Any]
__all__ = ["_noon"]  # a fixture: it is noon

RATE_LIMIT: Json = {
    "state": "waiting", "phase": "running", "turn": 12, "step": 4, "doing": "waiting (rate limit)",
    "since_at": NOW - 4 * MIN, "waits": "provider", "until_at": NOW + 30 * MIN,
}  # fmt: skip


def test_a_wait_for_the_provider_says_until_when_wherever_it_is_seen(dshctl: Dshctl, fake: Fake) -> None:
    waits = {**session("web", "waiting"), **RATE_LIMIT}
    until = sentences.when(NOW + 30 * MIN, NOW)
    fake.answers["daemon.status"] = {**STATUS, "sessions": [waits]}
    assert f"rate limit, tries again {until}" in dshctl("status").out
    fake.answers["session.show"] = waits
    assert f"waiting until {until} (rate limit)" in dshctl("show", "web").out
    fake.answers["queue.ls"] = {"session": waits, "messages": []}
    assert f"waiting until {until} (rate limit)" in dshctl("queue").out


def test_why_without_a_message_leaves_the_choice_to_the_daemon(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["message.why"] = {
        "type": "why", "message": "s4h8w2c1.1", "reason": "inside", "state": "entered", "turn": 12, "at": NOW,
        "until_at": NOW + 30 * MIN, "what": "named", "hint": "dshctl wake -s web", "label": "sooner",
    }  # fmt: skip
    said = dshctl("why", "-s", "web").out
    assert "which waits: the provider asked to wait until" in said
    assert said.endswith("sooner: dshctl wake -s web\n")


def test_an_error_says_from_when_it_can_be_tried_again() -> None:
    result = {"name": "web", "turn": 3, "outcome": "error", "error": {"message": "429"}, "exit": 75}
    at = NOW + 30 * MIN
    said, when = sentences.ended({**result, "retry_at": at}), sentences.when(at, NOW)
    assert said == f"web: turn 3 ended in an error: 429. It can be tried again from {when}."


def test_a_send_says_what_its_turn_waits_for() -> None:
    steer = {**RECEIPT, "verb": "steer", "phase": "running", "turn": 12, "waits_for": "waiting (rate limit)"}
    joins = "steer     -> api, joins turn 12 at its next step; it is waiting (rate limit)."
    assert fates.receipt(steer) == joins
    idle = {**RECEIPT, "verb": "followup", "queue": "next-turn", "phase": "idle", "position": 1, "turn": 13}
    said = fates.receipt({**idle, "waits_for": "waiting (8 sessions run already)"})
    assert said == "followup  -> api, is next in its session; 8 sessions run already."


def test_an_abort_of_a_wait_kills_nothing() -> None:
    ran = {"started_at": NOW, "ended_at": NOW + MIN}
    got = {"name": "web", "turn": 12, "doing": "waiting (rate limit)", **ran}
    assert sentences.abort(got)[0] == "web: stopped turn 12 after 1 min (it was waiting (rate limit))."


def test_a_wake_of_a_waiting_turn_says_that_it_asks_again() -> None:
    got = {"name": "web", "runs": True, "tries": True, "turn": 12, "pending": {"next-turn": 1}}
    assert sentences.woken(got) == "web: turn 12 asks its provider again; 1 queued."
