"""What attach makes of a daemon that loses, delays, refuses and withdraws: as a program, against a fake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dshctl.conftest import Dshctl, Ran
from tests.dshctl.fake import RECEIPT, SESSION, Drop, Fake, Refuse

Json = dict[str, Any]
FOLLOWING: Json = {"type": "following", "session": "s4h8w2c1", "head": 0}


@pytest.fixture
def attached(dshctl: Dshctl, fake: Fake, tmp_path: Path) -> Any:
    """Run it with these lines of input."""
    fake.answers = {
        "session.show": SESSION, "log.follow": FOLLOWING, "session.send": RECEIPT,
        "approval.follow": {"type": "following", "approvals": []},
    }  # fmt: skip

    def run(typed: str) -> Ran:
        (tmp_path / "typed").write_text(typed)
        with (tmp_path / "typed").open("rb") as stdin:
            return dshctl.process("attach", "-s", "api", stdin=stdin)

    return run


def event(seq: int, text: str = "") -> Json:
    data = {"turn": seq + 1, "reason": "completed", "steps": 1} if not text else {"turn": 1, "text": text}
    return {
        "session": "s4h8w2c1",
        "event": {"seq": seq, "time": 0, "type": "turn/end", "data": data, "crc": f"c{seq}"},
    }


def test_a_receipt_that_was_lost_is_asked_for_again_by_the_same_key(attached: Any, fake: Fake) -> None:
    fake.answers["session.send"] = [Drop(), {**RECEIPT, "duplicate": True, "state": "pending"}, RECEIPT]
    ran = attached("one\ntwo\n")
    first, again, second = fake.params("session.send")
    assert first == again
    assert (first["text"], second["text"], first["verb"]) == ("one", "two", "say")
    assert first["key"] != second["key"]
    assert ran.code == 0, ran.err
    assert "same key" not in ran.out


def test_what_can_not_be_taken_now_is_sent_again_and_what_is_behind_it_waits(
    attached: Any, fake: Fake
) -> None:
    fake.answers["session.send"] = [
        Refuse("STALLED", "the disk has not answered", outcome="unknown"),
        RECEIPT,
        RECEIPT,
    ]
    assert attached("one\ntwo\n").code == 0
    assert [params["text"] for params in fake.params("session.send")] == ["one", "one", "two"]


def test_what_is_refused_is_told_with_its_text_and_the_rest_goes_on(attached: Any, fake: Fake) -> None:
    fake.answers["session.send"] = [Refuse("FULL", "not sent: api holds 1000 pending messages"), RECEIPT]
    ran = attached("one\ntwo\n")
    assert ran.code == 6
    assert "api holds 1000 pending messages" in ran.err
    assert "not sent: one" in ran.out
    assert [params["text"] for params in fake.params("session.send")] == ["one", "two"]


def test_after_a_lost_connection_the_log_goes_on_behind_the_last_line(attached: Any, fake: Fake) -> None:
    fake.answers["session.send"] = [Drop(), RECEIPT]
    told = iter([[event(0), event(1)], [event(1), event(2)]])

    def history(peer: Any, params: Json) -> None:
        for one in next(told):
            peer.notify("log.event", one)

    fake.during["log.follow"] = history
    ran = attached("one\n")
    first, again = fake.params("log.follow")
    assert (first["turns"], "after" in first) == (3, False)
    assert again["after"] == {"seq": 1, "crc": "c1"}
    assert ran.out.count("-- completed") == 3


def test_a_place_in_the_log_that_is_gone_is_gone_back_from(attached: Any, fake: Fake) -> None:
    fake.answers["session.send"] = [Drop(), RECEIPT]
    fake.during["log.follow"] = lambda peer, params: peer.notify(
        "log.event", event(params.get("after", {}).get("seq", -1) + 1)
    )
    fake.answers["log.follow"] = [FOLLOWING, Refuse("CONFLICT", "gone", reset_to=-1), FOLLOWING]
    ran = attached("one\n")
    assert "was withdrawn" in ran.out
    assert "after" not in fake.params("log.follow")[-1]
