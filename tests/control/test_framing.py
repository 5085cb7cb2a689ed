"""Bytes become the same lines however they were cut."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from dshd.control.framing import Framer

LINE = st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"\r"))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(
    st.lists(LINE), st.binary(max_size=10).filter(lambda rest: b"\n" not in rest), st.lists(st.integers(0))
)
def test_any_cut_of_a_stream_gives_its_lines(lines: list[bytes], rest: bytes, places: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines) + rest
    framer = Framer()
    found = [line for piece in cut(stream, places) for line in framer.feed(piece)]
    assert found == lines
    assert not framer.oversized


def test_single_bytes_make_a_line() -> None:
    framer = Framer()
    found = [line for byte in b'{"a":1}\n' for line in framer.feed(bytes([byte]))]
    assert found == [b'{"a":1}']


def test_two_lines_in_one_piece_are_two() -> None:
    assert Framer().feed(b"one\ntwo\nthr") == [b"one", b"two"]


def test_only_a_newline_ends_a_line() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\r".encode()
    assert Framer().feed(text + b"\n") == [text]


def test_a_line_of_the_limit_fits_and_one_byte_more_does_not() -> None:
    framer = Framer(limit=8)
    assert framer.feed(b"1234567\n") == [b"1234567"]
    assert framer.feed(b"12345678\n") == []
    assert framer.oversized


def test_what_came_whole_before_an_oversized_line_is_still_given() -> None:
    framer = Framer(limit=8)
    assert framer.feed(b"one\ntwo\nmuch too long\nthree\n") == [b"one", b"two"]
    assert framer.oversized
    assert framer.feed(b"four\n") == []


def test_a_line_that_never_ends_is_given_up_at_the_limit() -> None:
    framer = Framer(limit=100)
    for _ in range(10):
        assert framer.feed(b"x" * 9) == []
    assert not framer.oversized
    framer.feed(b"x" * 10)
    assert framer.oversized


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    def seconds(size: int) -> float:
        framer, piece = Framer(), b"x" * 256
        began = time.process_time()
        for _ in range(size // len(piece)):
            framer.feed(piece)
        return time.process_time() - began

    seconds(1 << 20)
    assert seconds(1 << 23) < 8 * 6 * max(seconds(1 << 20), 0.002)
