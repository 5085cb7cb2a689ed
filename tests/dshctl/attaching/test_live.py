"""Streamed text as lines: each is told once, whatever the pieces."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dshctl.attaching.live import LiveChat

Json = dict[str, Any]


def event(type: str, **data: Any) -> Json:
    return {"type": type, "time": 0, "data": data}


def chunk(text: str, index: int = 0) -> Json:
    return event("assistant/chunk", turn=1, step=1, attempt=1,
                 chunks=[{"type": "text-delta", "index": index, "text": text}])  # fmt: skip


def answer(text: str) -> Json:
    return event("assistant/message", turn=1, step=1, content=[{"type": "text", "text": text}], model="m")


def beginning(chat: LiveChat) -> list[str]:
    said = event("user/message", turn=1, step=1, id="s4h8w2c1.1", verb="followup",
                 content=[{"type": "text", "text": "hello"}], source={"kind": "user"})  # fmt: skip
    events = [event("turn/start", turn=1), event("step/start", turn=1, step=1), said, event("request/sent")]
    return [line for one in events for line in chat.feed(one)]


def test_the_question_stands_before_the_first_word_of_the_answer() -> None:
    chat = LiveChat(80)
    assert "hello" in beginning(chat)
    assert chat.feed(chunk("Yes")) == []
    assert chat.tail == "  Yes"


def test_a_line_is_told_when_it_is_whole_and_not_again_by_its_message() -> None:
    chat = LiveChat(80)
    beginning(chat)
    assert chat.feed(chunk("one\ntw")) == ["  one"]
    assert chat.feed(chunk("o")) == []
    assert chat.feed(answer("one\ntwo")) == ["  two"]
    assert chat.tail == ""


def test_a_message_that_is_not_what_streamed_is_told_whole() -> None:
    chat = LiveChat(80)
    beginning(chat)
    chat.feed(chunk("half"))
    assert chat.feed(answer("something else")) == ["  half", "  something else"]


def test_what_a_failed_attempt_had_said_is_not_taken_for_the_next_ones() -> None:
    chat = LiveChat(80)
    beginning(chat)
    chat.feed(chunk("half"))
    lines = chat.feed(event("llm/retry", turn=1, step=1, attempt=2, code="SERVER", delay_ms=500))
    assert lines[0] == "  half"
    assert chat.feed(chunk("whole")) == []
    assert chat.feed(answer("whole")) == ["  whole"]


def test_the_end_of_a_turn_leaves_nothing_behind() -> None:
    chat = LiveChat(80)
    beginning(chat)
    chat.feed(chunk("half a"))
    assert chat.feed(event("turn/end", turn=1, reason="aborted"))[0] == "  half a"


WORDS = st.lists(
    st.sampled_from(["word", "a", "", "longer-word", "\n", "\n\n", "  x", "日本", "é"]), max_size=60
)


@given(WORDS, st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_however_it_is_cut_the_rows_are_those_of_the_whole(words: list[str], sizes: list[int]) -> None:
    text = " ".join(words)
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    whole = told(40, [text] if text else [])
    assert told(40, pieces) == whole
    assert " ".join(" ".join(whole).split()) == " ".join(text.split())


def told(columns: int, pieces: list[str]) -> list[str]:
    chat = LiveChat(columns)
    beginning(chat)
    lines = [line for piece in pieces for line in chat.feed(chunk(piece))]
    return lines + chat.feed(answer("".join(pieces)))


def test_lines_in_fences_are_never_wrapped() -> None:
    long = "x " * 60
    assert told(40, ["```\n", long.strip() + "\n", "```\n"]) == ["  ```", f"  {long.strip()}", "  ```"]
