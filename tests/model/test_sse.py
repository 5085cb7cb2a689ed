"""Server-sent events: lines end at LF, CR, CRLF, and the pieces they come in don't matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.model import sse
from dshd.model.sse import Decoder, Event

# what the alphabet of a stream is made of, line ends and half characters included
PIECES = st.lists(
    st.sampled_from(
        [b"data:", b"data: ", b"event: x", b":", b": ping", b"\n", b"\r", b"\r\n", b"\n\n", b"{}", b" ",
         "\u2028\u0085\u20ac".encode(), b"\xff", b"\xef\xbb\xbf", b"id: 3", b"retry: 9", b"data"]
    ),
    max_size=30,
).map(b"".join)  # fmt: skip


def decode(*pieces: bytes) -> list[Event]:
    decoder = Decoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.close()


@given(PIECES, st.lists(st.integers(0, 200)))
def test_any_splitting_of_the_bytes_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    at = sorted({cut for cut in cuts if cut < len(stream)})
    pieces = [stream[a:b] for a, b in zip([0, *at], [*at, len(stream)], strict=True)]
    assert decode(*pieces) == decode(stream)
    assert decode(*(bytes([byte]) for byte in stream)) == decode(stream)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_ends_a_line(end: bytes) -> None:
    stream = end.join([b"event: x", b"data: 1", b"data: 2", b"", b"data:3", b"", b""])
    assert decode(stream) == [Event("x", "1\n2"), Event("", "3")]


def test_a_cr_at_a_border_ends_its_line_at_once_and_its_lf_is_not_another_end() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: 1\r") == []
    assert decoder.feed(b"\n\r") == [Event("", "1")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: 2\n\n") == [Event("", "2")]


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_nothing_else_ends_a_line(char: str) -> None:
    assert decode(f'data: "a{char}b"\n\n'.encode()) == [Event("", f'"a{char}b"')]


def test_comments_leave_nothing_behind() -> None:
    assert decode(b": PROCESSING\n\n:\n:\n\ndata: 1\n: in between\ndata: 2\n\n") == [Event("", "1\n2")]


def test_only_one_space_after_the_colon_is_taken_off() -> None:
    assert decode(b"data:  two\n\ndata\n\ndata:\n\n") == [Event("", " two"), Event("", ""), Event("", "")]


def test_an_event_without_data_is_none() -> None:
    assert decode(b"event: ping\n\ndata: 1\n\n") == [Event("", "1")]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert decode(b"\xef\xbb\xbfdata: 1\n\n") == [Event("", "1")]


def test_what_is_not_utf_8_is_replaced() -> None:
    assert decode(b"data: a\xff\n\n") == [Event("", "a\ufffd")]


def test_an_event_that_was_not_ended_comes_at_the_close_only() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: [DONE]") == []
    assert decoder.close() == [Event("", "[DONE]")]
    assert decoder.close() == []


def test_an_endless_line_or_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 1000)
    with pytest.raises(sse.TooLong):
        decode(*[b"x" * 100] * 11)
    with pytest.raises(sse.TooLong):
        decode(*[b"data: " + b"x" * 100 + b"\n"] * 11)
    assert len(decode(*[b"data: " + b"x" * 100 + b"\n\n"] * 11)) == 11
