"""What a receipt keeps, and what it tells of it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from dshd.session.fold.events import Message, text_block
from dshd.session.fold.receipts import first_receipt

ME = {"kind": "user", "uid": 1000}
SENT = Message("s0000000.1", (text_block("x"),), ME, 5, True, "followup")
BEGAN: dict[str, Any] = {"state": "pending", "at": 5, "seq": 3, "by": ME}


@pytest.mark.parametrize(("at", "by"), [(5, ME), (6, ME), (5, None), (5, {**ME, "uid": 0})])
def test_a_way_begins_with_who_put_the_message_there_and_when(at: int, by: Any) -> None:
    receipt = first_receipt(SENT, "next-turn", at=at, seq=3, by=by)
    assert [dict(stop) for stop in receipt.way] == [{**BEGAN, "at": at, "by": by}]


def test_a_way_begins_as_it_did_whatever_the_message_says_later() -> None:
    receipt = first_receipt(SENT, "next-turn", at=5, seq=3, by=ME)
    other = attrs.evolve(SENT, source={"kind": "agent"}, created=9)
    later = receipt.to("pending", at=7, seq=4, message=other).to("claimed", at=8, seq=5)
    assert [dict(stop) for stop in later.way] == [
        BEGAN,
        {"state": "pending", "at": 7, "seq": 4, "by": None},
        {"state": "claimed", "at": 8, "seq": 5, "by": None},
    ]


@pytest.mark.parametrize(
    "content",
    [
        (),
        ({"type": "text", "text": "ü"},),
        ({"type": "text", "text": ""},),
        ({"type": "text", "text": "a"}, {"type": "text", "text": "b"}),
        ({"type": "file", "sha256": "0", "bytes": 9, "lines": 1, "head": "", "tail": ""},),
        ({"type": "text", "text": "a", "more": 1},),
        ({"type": "text", "text": None},),
    ],
)
def test_a_message_holds_what_it_was_given(content: Any) -> None:
    message = attrs.evolve(SENT, content=content)
    assert message.content == content
    assert Message.from_json(dict(message.to_json())) == message
    assert attrs.evolve(message, key="k").content == content
