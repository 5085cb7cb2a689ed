"""Where a conversation may be cut, and what may stand for its older part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.driver.history import History
from dshd.model.checker import NO_RESULT, check
from dshd.model.errors import ModelError
from dshd.model.request import ModelRequest, tool_calls
from dshd.prompt import compaction as core
from dshd.prompt.compaction import Measure, Refused
from dshd.prompt.tokens import estimate_message
from dshd.session.fold.layer import Rows
from dshd.session.fold.surface import Entry, place

Json = dict[str, Any]


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def user(words: str = "do it") -> Json:
    return {"type": "user/message", "content": [text(words)], "source": {"kind": "user"}}


def asks(*calls: str) -> Json:
    blocks = [{"type": "tool-call", "id": id, "name": "bash", "arguments": "{}"} for id in calls]
    return {"type": "assistant/message", "content": [text("I look"), *blocks]}


def result(call: str, words: str = "done") -> Json:
    return {"type": "tool/result", "call": call, "content": [text(words)]}


def entries(*events: Json) -> list[Entry]:
    return [Entry(seq, event["type"], {**event, "id": f"s.{seq}"}) for seq, event in enumerate(events, 10)]


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """What a log may hold, and a little more: calls that never had a result, what was said between a call and
    its result, several calls at once, a summary of something older."""
    events: list[Json] = []
    for number in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["say", "say", "work", "work", "answer"]))
        if kind == "say":
            events.append(user("x" * draw(st.integers(1, 400))))
        elif kind == "answer":
            events.append({"type": "assistant/message", "content": [text("so it is")]})
        else:
            calls = [f"t{number}_{n}" for n in range(draw(st.integers(1, 3)))]
            events.append(asks(*calls))
            for call in calls[: draw(st.integers(0, 3))]:
                if draw(st.integers(0, 4)) == 0:
                    events.append(user("by the way"))
                events.append(result(call, "y" * draw(st.integers(0, 20_000))))
    return entries(*events)


def messages(surface: Sequence[Entry]) -> list[Json]:
    return list(History().of(Rows.of(list(surface))))


def sent(surface: Sequence[Entry]) -> tuple[Json, ...]:
    """What goes out, as every provider wants it."""
    checked = tuple(check(ModelRequest("", messages(surface), ())).messages)
    open_calls: list[str] = []
    assert checked[0]["role"] == "user"
    assert checked[-1]["role"] != "assistant"
    for message in checked:
        assert message["content"]
        if message["role"] == "tool":
            assert message["call"] == open_calls.pop(0), "a result that stands by itself, or out of order"
            continue
        assert not open_calls, "a call without its result"
        open_calls = [call["id"] for call in tool_calls(message)] if message["role"] == "assistant" else []
    assert not open_calls
    return checked


def compacted(surface: Sequence[Entry], at: int) -> list[Entry]:
    rows = Rows.of(list(surface))
    stands = {"type": "user/message", "id": "s.99", "content": core.framed("a summary")}
    place(rows, Entry(99, "user/message", stands), {"replace": [surface[0].seq, surface[at - 1].seq]})
    return list(rows)


def pairs(checked: Sequence[Json]) -> list[str]:
    """Results that a tool gave, not we."""
    given = [m for m in checked if m["role"] == "tool" and m["content"] != [text(NO_RESULT)]]
    return [m["call"] for m in given]


# --- cuts ------------------------------------------------------------------------------------------


@given(histories(), st.data())
def test_any_history_and_any_cut_make_a_valid_request(surface: list[Entry], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(surface)))
    sent(compacted(surface, at))


@given(histories())
def test_where_it_may_be_cut_no_call_is_parted_from_its_result(surface: list[Entry]) -> None:
    before = pairs(sent(surface))
    for at in core.balanced(surface):
        kept = [entry.data["call"] for entry in surface[at:] if entry.type == "tool/result"]
        assert pairs(sent(compacted(surface, at))) == [call for call in before if call in kept]


@given(histories())
def test_a_conversation_may_be_compacted_again_and_again(surface: list[Entry]) -> None:
    while places := [at for at in core.balanced(surface) if at > 1]:
        surface = compacted(surface, places[len(places) // 2])
        sent(surface)


def test_what_was_said_between_a_call_and_its_result_is_no_place_to_cut() -> None:
    """A summary that stood there, too."""
    surface = entries(user(), asks("a", "b"), result("a"), user("a summary"), result("b"), user(), asks("c"))
    assert core.balanced(surface) == [1, 5, 6]


def test_a_call_whose_result_never_came_keeps_nothing_after_it_from_being_cut() -> None:
    surface = entries(user(), asks("lost"), user(), asks("b"), result("b"), user())
    assert core.balanced(surface) == [1, 5]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=30), st.integers(0, 4000), st.data())
def test_a_cut_keeps_what_must_stay_and_the_newest_always(
    sizes: list[int], keep: int, data: st.DataObject
) -> None:
    places = sorted(data.draw(st.sets(st.integers(1, max(1, len(sizes) - 1)))))
    most = data.draw(st.none() | st.integers(0, 8000))
    at = core.cut(sizes, places, keep, most)
    fitting = [p for p in places if sum(sizes[p:]) >= keep and p < len(sizes)]
    fitting = [p for p in fitting if most is None or sum(sizes[:p]) <= most]
    assert at == (max(fitting) if fitting else None)


# --- old results -----------------------------------------------------------------------------------


@given(histories())
def test_pruning_keeps_head_and_tail_makes_smaller_and_is_done_once(surface: list[Entry]) -> None:
    for pruning in core.pruned(surface, len(surface)):
        before, after = pruning.entry.data["content"][0]["text"], pruning.data["content"][0]["text"]
        assert len(after) < len(before)
        assert after.startswith(before[: core.HEAD])
        assert after.endswith(before[-core.TAIL :])
        assert pruning.data["call"] == pruning.entry.data["call"]
        again = [Entry(1, "tool/result", pruning.data)]
        assert core.pruned(again, 1) == []


def test_no_code_point_is_split_and_other_blocks_stay_where_they_are() -> None:
    image = {"type": "image", "hash": "h"}
    event = {"type": "tool/result", "call": "a", "content": [text("ü😀" * 3_000), image, text("short")]}
    (pruning,) = core.pruned(entries(event), 1)
    cut, kept, short = pruning.data["content"]
    assert "\ufffd" not in cut["text"]
    assert "12927 bytes were left out" in cut["text"] or "bytes were left out" in cut["text"]
    assert (kept, short) == (image, text("short"))


# --- the summary -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "finish", "says"),
    [
        ([], "stop", "empty"),
        ([{"type": "reasoning", "text": "hm"}], "stop", "empty"),
        ([{"type": "tool-call", "id": "c", "name": "bash", "arguments": "{}"}], "tool-calls", "called tools"),
        ([text("half a")], "max-tokens", "longer than"),
    ],
)
def test_what_is_no_summary_is_refused(content: list[Json], finish: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        core.summary_of(content, finish)


def test_a_filtered_summary_is_the_models_error_and_a_good_one_is_its_text_alone() -> None:
    with pytest.raises(ModelError):
        core.summary_of([text("x")], "content-filter")
    assert core.summary_of([{"type": "reasoning", "text": "hm"}, text(" a "), text("b")], "stop") == "a\nb"


def test_a_summary_as_large_as_what_it_stands_for_is_refused() -> None:
    content = core.framed("x" * 400)
    core.check_smaller(content, core.size_of(content) + 1)
    with pytest.raises(Refused, match="not smaller"):
        core.check_smaller(content, core.size_of(content))


# --- how much --------------------------------------------------------------------------------------


def test_from_four_fifths_of_the_window_on_it_is_too_large() -> None:
    assert not Measure([700], 99, 1000, 100).over
    assert Measure([700], 100, 1000, 100).over
    assert Measure([350], 50, 1000, 100, factor=2.0).over
    assert not Measure([10**6], 0, None, 0).over


def test_who_asks_below_the_threshold_keeps_at_most_half() -> None:
    small = Measure([100] * 4, 0, 10_000, 100)
    assert small.keep(surely=False) == 400
    assert small.keep(surely=True) == 200
    assert Measure([2000] * 4, 1000, 10_000, 100).keep(surely=True) == 1600


@given(st.integers(500, 200_000), st.integers(0, 8_000), st.floats(0.5, 2.0), histories())
def test_a_request_for_a_summary_of_what_there_is_room_for_fits_the_window(
    window: int, answer: int, factor: float, surface: list[Entry]
) -> None:
    sizes = [estimate_message(message) for message in messages(surface)]
    measure = Measure(sizes, 100, window, answer, factor)
    at = core.cut(sizes, core.balanced(surface), 0, measure.room())
    if at is None:
        return
    asked = estimate_message(core.asking(core.INSTRUCTION))
    size = round((measure.around + sum(sizes[:at]) + asked) * factor)
    assert size + min(answer, window // 4) <= window + round(16 * factor)
