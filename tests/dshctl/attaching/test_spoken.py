"""What a typed line means, what waits to be acknowledged, and what answers a question."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from dshctl.attaching.outbox import Outbox, spoken_receipt
from dshctl.attaching.questions import Questions
from dshctl.attaching.spoken import NAMES, Spoken, help_lines, meant
from dshd import wire
from dshd.errors import Full, Invalid
from tests.dshctl.fake import RECEIPT

Json = dict[str, Any]
ASKED: Json = {"id": "a1", "session": "s4h8w2c1", "name": "api", "tool": "bash", "command": "touch x\x1b[2K",
               "dir": "/src", "turn": 3, "why": None, "asked_at": 0, "expires_at": None}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "spoken"),
    [
        ("use the fixture", Spoken("say", "use the fixture")),
        ("  \t", None),
        ("//abort is a word", Spoken("say", "/abort is a word")),
        ("/steer no, this", Spoken("steer", "no, this")),
        ("/inject  two", Spoken("inject", " two")),
        ("/abort ", Spoken("abort", "")),
        ("/deny a1 not here", Spoken("deny", "a1 not here")),
    ],
)
def test_a_line_is_a_text_or_a_word(line: str, spoken: Spoken | None) -> None:
    assert meant(line) == spoken


@pytest.mark.parametrize("line", ["/abrot", "/etc/passwd is wrong", "/", "/steer", "/followup  ",
                                  "/abort after this step", "/queue clear", "/quit now"])
def test_a_word_that_is_none_is_never_sent(line: str) -> None:
    with pytest.raises(Invalid):
        meant(line)


def test_help_tells_every_word() -> None:
    told = "\n".join(help_lines())
    assert all(f"/{name}" in told for name in NAMES)


def test_letters_keep_their_order_and_their_keys() -> None:
    outbox = Outbox()
    one, two = outbox.add(Spoken("say", "one")), outbox.add(Spoken("interrupt", "two"))
    assert outbox.first is one
    first, again = one.params("s4h8w2c1"), one.params("s4h8w2c1")
    assert isinstance(first, wire.SendParams)
    assert (first, first.verb) == (again, "say")
    assert isinstance(two.params("s4h8w2c1"), wire.InterruptParams)
    assert one.key != two.key
    outbox.settle(one)
    assert outbox.all == [two]
    assert f"--key {two.key} -- two" in two.again("api")
    word, method, params = shlex.split(one.again("api"))[1:]
    assert (word, method, json.loads(params)) == ("rpc", "session.send", one.params("api").to_json())


def test_a_text_that_no_line_holds_is_refused_and_not_kept() -> None:
    outbox = Outbox()
    with pytest.raises(Full):
        outbox.add(Spoken("say", "x" * (wire.MAX_INLINE + 1)))
    assert not outbox


def test_what_was_sent_again_is_no_duplicate_to_who_typed_it_once() -> None:
    letter = Outbox().add(Spoken("say", "x"))
    letter.tries = 2
    assert not spoken_receipt(letter, {**RECEIPT, "duplicate": True})["duplicate"]


def asking(monkeypatch: pytest.MonkeyPatch, at: list[float]) -> Questions:
    monkeypatch.setattr("dshctl.attaching.questions.time.monotonic", lambda: at[0])
    return Questions("s4h8w2c1", True)


def test_a_question_comes_only_when_nothing_is_typed_and_nobody_just_pressed_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = [100.0]
    q = asking(monkeypatch, at)
    q.pressed()
    assert q.know([ASKED]) == []
    assert q.due(True)[0] == []
    assert q.asked is None
    at[0] += 1
    assert q.due(False) == ([], None)
    lines, _ = q.due(True)
    assert q.asked == "a1"
    assert "      touch x^[[2K" in lines
    assert q.due(True)[0] == []


def test_a_subagents_question_is_asked_where_its_session_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    q = asking(monkeypatch, [100.0])
    above = [{"id": "s5h8w2c1", "name": "s5h8w2c1"}, {"id": "s4h8w2c1", "name": "api"}]
    q.know([{**ASKED, "id": "a2", "session": "s0000000", "name": "s0000000", "works_for": above}])
    lines, _ = q.due(True)
    assert lines[0] == "a2  s0000000, a subagent of api wants to run"


def test_only_its_own_words_answer_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    q = asking(monkeypatch, [100.0])
    q.know([ASKED, {**ASKED, "id": "a2", "session": "s0000000"}])
    q.due(True)
    assert [q.answer(text) for text in ("yes please", "what", "ye")] == [None, None, None]
    assert q.answer("s") == wire.ApprovalAnswerParams(id="a1", answer="allow", scope="session")
    assert q.answer("n not here") == wire.ApprovalAnswerParams(id="a1", answer="deny", reason="not here")
    assert "/allow a1" in q.put_aside()[0]
    assert q.due(True)[0] == []
    assert q.named("allow", "always") == wire.ApprovalAnswerParams(id="a1", answer="allow", scope="always")
    assert q.named("deny", "a1 no") == wire.ApprovalAnswerParams(id="a1", answer="deny", reason="no")
    with pytest.raises(Invalid):
        q.named("allow", "a1 forever")
    q.gone("a1")
    with pytest.raises(Invalid):
        q.named("allow", "")
