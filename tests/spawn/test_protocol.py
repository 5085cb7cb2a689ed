"""Frames between daemon and supervisor, however they are cut."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.spawn.protocol import Decoder, encode

messages = st.dictionaries(st.text(max_size=5).filter(lambda key: key != "blobs"), st.text(max_size=20))
frames = st.lists(st.tuples(messages, st.lists(st.binary(max_size=50), max_size=3)), max_size=4)


@given(frames, st.lists(st.integers(1, 40)))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    given_frames: list[tuple[dict[str, Any], list[bytes]]], cuts: list[int]
) -> None:
    data = b"".join(encode(message, blobs) for message, blobs in given_frames)
    decoder, found = Decoder(), []
    for size in cuts:
        found += decoder.feed(data[:size])
        data = data[size:]
    found += decoder.feed(data)
    assert found == given_frames


def test_arguments_that_are_no_text_survive() -> None:
    odd = os.fsdecode(b"\xff\x00\xfe"[:1])
    ((message, _),) = Decoder().feed(encode({"argv": [odd]}))
    assert os.fsencode(message["argv"][0]) == b"\xff"


def test_a_length_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        Decoder().feed(b"\xff\xff\xff\xff")
