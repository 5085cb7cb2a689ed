from __future__ import annotations

import contextlib
import json
import math
import time
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.errors import Invalid
from dshd.log.codec import MAX_DEPTH, MAX_INTEGER, BadLine, Event, crc_of, decode, encode, lossless

# Characters that have hurt somebody: line ends of every kind, nulls, escapes, C1, astral planes.
TEXT = st.text(
    st.one_of(
        st.sampled_from('\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\x9b\u2028\u2029\ufeff\ufffd"\\/😀'),
        st.characters(exclude_categories=["Cs"]),
    )
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-MAX_INTEGER, MAX_INTEGER),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
SEQS = st.integers(0, MAX_INTEGER)
EVENTS = st.builds(
    Event,
    seq=st.integers(1, MAX_INTEGER),
    time=st.integers(-MAX_INTEGER, MAX_INTEGER),
    type=TEXT,
    data=st.dictionaries(TEXT, VALUES, max_size=4),
    surface=st.one_of(
        st.none(), st.just("append"), st.lists(SEQS, min_size=2, max_size=2).map(lambda r: {"replace": r})
    ),
    sources=st.one_of(st.none(), st.lists(SEQS, max_size=4).map(tuple)),
    ignorable=st.booleans(),
    synced=st.one_of(st.none(), st.just(0)),
)


def identical(left: Any, right: Any) -> bool:
    """Equal, and of equal types all the way down; -0.0 is not 0.0, True is not 1."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(identical(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)


@given(EVENTS)
def test_every_lossless_event_comes_back_identical_from_one_line(event: Event) -> None:
    line = encode(event)
    back = decode(line)
    assert back == event
    assert identical(back.data, event.data)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


@given(EVENTS)
def test_any_other_json_reader_sees_the_same(event: Event) -> None:
    record = json.loads(encode(event))
    assert identical(record["data"], event.data)
    assert list(record)[:4] == ["seq", "time", "type", "data"]
    assert list(record)[-1] == "crc"


@given(VALUES)
def test_a_lossless_value_is_left_as_it_is(value: Any) -> None:
    assert identical(lossless(value), value)


def test_a_line_has_its_keys_in_the_order_of_the_format() -> None:
    event = Event(
        7, 1, "x", {"a": 1}, surface={"replace": [2, 4]}, sources=(2, 3, 4), ignorable=True, synced=6
    )
    line = encode(event)
    body = (
        b'{"seq":7,"time":1,"type":"x","data":{"a":1},"surface":{"replace":[2,4]},"sources":[2,3,4],'
        b'"ignorable":true,"synced":6'
    )
    assert line == b'%b,"crc":"%08x"}\n' % (body, crc32(body))
    assert crc_of(line) == f"{crc32(body):08x}"
    assert decode(line) == event


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\u0085", "\n", "\r\n", "\x0b", "\x0c", "\x1c"])
def test_line_ends_in_a_text_do_not_end_the_line(end: str) -> None:
    event = Event(1, 1, "x", {"text": f"one{end}two", end: end})
    line = encode(event)
    assert line.split(b"\n") == [line[:-1], b""]
    assert decode(line) == event


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {"b": math.nan}]}, "$.a[1].b"),
        ({"a": math.inf}, "$.a"),
        ({"a": -math.inf}, "$.a"),
        ({"a": 2**53 + 1}, "$.a"),
        ({"a": -(2**53) - 1}, "$.a"),
        ({"a": 2**60}, "$.a"),
        ({"a": {1: 2}}, "$.a.1"),
        ({"a": {None: 2}}, "$.a.None"),
        ({"a": b"bytes"}, "$.a"),
        ({"a": (1, 2)}, "$.a"),
        ({"a": {1, 2}}, "$.a"),
        ({"a": object()}, "$.a"),
    ],
)
def test_what_would_not_come_back_equal_is_refused_with_its_path(value: dict[str, Any], path: str) -> None:
    with pytest.raises(Invalid, match=r" @ \$") as lossless_error:
        lossless(value)
    assert lossless_error.value.message.endswith(f"@ {path}")
    with pytest.raises(Invalid):
        encode(Event(1, 1, "x", value))


@pytest.mark.parametrize("value", [2**53, -(2**53), 1e308, 5e-324, -0.0, 2.0**60, True, "", {}, []])
def test_values_at_the_edge_are_taken(value: Any) -> None:
    assert identical(decode(encode(Event(1, 1, "x", {"v": value}))).data, {"v": value})


class Shade(str):
    pass


@pytest.mark.parametrize("value", [Shade("red"), type("N", (int,), {})(1), type("D", (dict,), {})()])
def test_subclasses_are_refused_because_plain_values_would_come_back(value: Any) -> None:
    with pytest.raises(Invalid, match="is not JSON @"):
        lossless({"v": value})


ODD = st.recursive(
    SCALARS
    | st.floats()
    | st.integers()
    | st.sampled_from([Shade("red"), b"bytes", (1, 2), 2**53 + 1, -(2**53) - 1, type("N", (int,), {})(1)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT | st.sampled_from([1, None, Shade("k")]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(ODD)
def test_a_line_is_refused_exactly_where_its_data_would_not_come_back(value: Any) -> None:
    """The quick look before a line is written knows what the walk knows."""
    try:
        lossless({"v": value})
    except Invalid:
        with pytest.raises(Invalid):
            encode(Event(1, 1, "x", {"v": value}))
    else:
        assert identical(decode(encode(Event(1, 1, "x", {"v": value}))).data, {"v": value})


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_a_hundred_levels_are_taken_and_one_more_is_refused() -> None:
    deepest = nested(MAX_DEPTH)
    assert decode(encode(Event(1, 1, "x", deepest))).data == deepest
    with pytest.raises(Invalid, match="100 levels"):
        lossless(nested(MAX_DEPTH + 1))
    with pytest.raises(Invalid, match="100 levels"):
        lossless(nested(100_000))


@given(st.text(st.characters(categories=["Cs", "L"]), min_size=1))
def test_lone_surrogates_become_replacement_characters(text: str) -> None:
    value = lossless({"v": text, "w": [text]})
    assert isinstance(value, dict)
    assert value["v"] == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert decode(encode(Event(1, 1, "x", value))).data == value


@pytest.mark.parametrize("data", [{"v": "a\ud83d"}, {"\udc80": 1}, {"v": [{"w": "\udfff"}]}])
def test_an_event_that_still_holds_a_lone_surrogate_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="surrogate"):
        encode(Event(1, 1, "x", data))


def test_keys_that_become_equal_are_refused_not_merged() -> None:
    with pytest.raises(Invalid, match="two keys"):
        lossless(dict.fromkeys(["\ud800", "\udfff"], 1))


# -- bad lines --------------------------------------------------------------------------------------


def line(**more: Any) -> bytes:
    record = {"seq": 3, "time": 1, "type": "x", "data": {"text": "hello"}, **more}
    return sealed(json.dumps({key: value for key, value in record.items() if value is not ...}).encode())


def sealed(record: bytes) -> bytes:
    body = record[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, crc32(body))


def test_every_single_byte_that_is_changed_makes_a_line_bad() -> None:
    good = encode(Event(3, 1, "x", {"text": "hello"}, synced=2))
    for at in range(len(good)):
        for other in (0, good[at] ^ 1, good[at] ^ 0x20, ord("\n")):
            if other != good[at]:
                with pytest.raises(BadLine):
                    decode(good[:at] + bytes([other]) + good[at + 1 :])


def test_every_part_of_a_line_is_bad() -> None:
    good = encode(Event(3, 1, "x", {"text": "hello"}, synced=2))
    for cut in range(len(good)):
        with pytest.raises(BadLine):
            decode(good[:cut])
        with pytest.raises(BadLine):
            decode(good[cut + 1 :])


@given(st.binary(max_size=200))
def test_no_bytes_make_the_decoder_fail_in_another_way(data: bytes) -> None:
    for raw in (data, data + b"\n", sealed(data or b"{}")):
        with contextlib.suppress(BadLine):
            decode(raw)


@pytest.mark.parametrize(
    "more",
    [
        {"seq": -1},
        {"seq": 1.0},
        {"seq": True},
        {"seq": ...},
        {"time": "1"},
        {"type": None},
        {"data": []},
        {"data": ...},
        {"surface": "replace"},
        {"surface": {"replace": [1]}},
        {"surface": {"replace": [1, "2"]}},
        {"surface": {"replace": [1, 2], "x": 1}},
        {"sources": 1},
        {"sources": [1.5]},
        {"synced": 3},
        {"synced": -2},
        {"synced": "2"},
    ],
)
def test_a_sealed_record_of_another_shape_is_bad(more: dict[str, Any]) -> None:
    with pytest.raises(BadLine):
        decode(line(**more))


@pytest.mark.parametrize("record", [b"[]", b"null", b"3", b'{"seq":1,"time":1,"type":"x","data":{"a":NaN}}'])
def test_sealed_json_that_is_no_event_is_bad(record: bytes) -> None:
    with pytest.raises(BadLine):
        decode(sealed(record))


def test_keys_of_a_later_version_are_ignored() -> None:
    assert decode(line(colour="red", synced=2)) == Event(3, 1, "x", {"text": "hello"}, synced=2)


def test_a_foreign_line_with_an_escaped_surrogate_is_read_and_made_lossless() -> None:
    event = decode(sealed(b'{"seq":3,"time":1,"type":"x","data":{"text":"a\\ud83d"}}'))
    assert event.data == {"text": "a\ufffd"}


def test_a_line_of_uppercase_checksum_is_bad() -> None:
    good = encode(Event(3, 1, "x", {"text": "hello"}))
    upper = good[:-11] + good[-11:-3].upper() + good[-3:]
    assert upper != good
    with pytest.raises(BadLine, match="checksum"):
        decode(upper)


def test_ten_thousand_events_a_second_are_encoded_and_decoded() -> None:
    event = Event(
        9, 1, "assistant/chunk", {"turn": 1, "step": 2, "chunks": [{"text": "word " * 8}]}, synced=8
    )
    began = time.process_time()
    for _ in range(2000):
        decode(encode(event))
    assert time.process_time() - began < 2.0  # ten times what it takes: machines are shared
