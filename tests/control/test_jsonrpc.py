"""What is a request, what isn't, and what both are answered with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.control import jsonrpc
from dshd.control.jsonrpc import Refused, Request
from dshd.errors import Conflict


def refused(line: bytes | str) -> Refused:
    got = jsonrpc.parse(line.encode() if isinstance(line, str) else line)
    assert isinstance(got, Refused)
    return got


def test_a_request_is_taken_apart() -> None:
    got = jsonrpc.parse(b'{"jsonrpc":"2.0","id":"a","method":"x.y","params":{"n":1}}')
    assert got == Request("x.y", {"n": 1}, "a")


def test_a_request_without_id_is_not_to_be_answered() -> None:
    got = jsonrpc.parse(b'{"jsonrpc":"2.0","method":"x.y"}')
    assert got == Request("x.y", {}, None, answered=False)


@pytest.mark.parametrize(
    "line", ["", "{", "nonsense", '{"a":NaN}', "[" * 100_000, '{"a":"\x00"}', "\ufeff{}"]
)
def test_what_is_no_json_is_a_parse_error(line: str) -> None:
    assert refused(line).error.to_json()["code"] == jsonrpc.PARSE_ERROR


def test_bad_utf8_is_a_parse_error() -> None:
    assert refused(b'{"jsonrpc":"2.0","id":1,"method":"\xff\\u0041"}').error.to_json()["code"] == -32700


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ([], "one object per line"),
        (5, "not an object"),
        ({"id": 1, "method": "x"}, "$.jsonrpc"),
        ({"jsonrpc": "1.0", "id": 1, "method": "x"}, "$.jsonrpc"),
        ({"jsonrpc": "2.0", "id": 1}, "$.method"),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, "$.method"),
        ({"jsonrpc": "2.0", "id": 1, "method": "x", "params": [1]}, "by name"),
        ({"jsonrpc": "2.0", "id": 1, "method": "x", "params": None}, "by name"),
        ({"jsonrpc": "2.0", "id": [1], "method": "x"}, "$.id"),
        ({"jsonrpc": "2.0", "id": True, "method": "x"}, "$.id"),
        ({"jsonrpc": "2.0", "id": 1, "method": "x", "parms": {}}, "did you mean params?"),
    ],
)
def test_what_is_no_request_is_refused_with_a_reason(message: Any, says: str) -> None:
    error = refused(json.dumps(message)).error.to_json()
    assert error["code"] == jsonrpc.INVALID_REQUEST
    assert says in error["message"]
    assert error["data"]["code"] == "INVALID"


def test_a_refused_request_keeps_its_id() -> None:
    assert refused('{"jsonrpc":"2.0","id":7,"method":5}').id == 7


def test_half_an_emoji_becomes_a_replacement_character() -> None:
    got = jsonrpc.parse(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"text":"a\\ud83d","b":["\\ude00"]}}')
    assert isinstance(got, Request)
    assert got.params == {"text": "a\ufffd", "b": ["\ufffd"]}
    assert got.replaced == 2


def test_a_whole_emoji_in_two_escapes_stays_one() -> None:
    assert jsonrpc.loads(b'["\\ud83d\\ude00", "\\ud800"]') == ["\U0001f600", "\ufffd"]


@given(st.binary(max_size=200))
def test_no_bytes_make_parsing_fail(data: bytes) -> None:
    assert isinstance(jsonrpc.parse(data), Request | Refused)


def test_an_error_carries_its_word_and_its_data() -> None:
    line = jsonrpc.error_line(3, Conflict("no", hint="do", data={"reset_to": 4}))
    assert json.loads(line)["error"]["data"] == {
        "reset_to": 4, "code": "CONFLICT", "hint": "do", "retryable": False,
    }  # fmt: skip
    assert line.endswith(b"\n")


def test_an_answer_that_fits_no_line_becomes_an_error() -> None:
    answer = json.loads(jsonrpc.result_line(1, "x" * (16 << 20)))
    assert answer["error"]["data"]["code"] == "INTERNAL"


def test_a_path_that_is_no_text_can_be_told() -> None:
    path = "/home/me/\udcff"
    said = [
        jsonrpc.result_line(1, {"rows": [{"dir": path}], "pair": ("a", path)}),
        jsonrpc.error_line(1, Conflict(f"{path} is in the way", data={"file": path})),
        jsonrpc.notification_line("log.end", {"why": path}),
    ]
    assert [b"/home/me/\xef\xbf\xbd" in line for line in said] == [True] * 3
    assert json.loads(said[0])["result"]["pair"] == ["a", "/home/me/\ufffd"]


def test_an_event_goes_out_with_the_bytes_of_the_log() -> None:
    raw = '{"seq":1,"time":2,"type":"x","data":{"t":"\\u00fc\u2028"},"crc":"00000000"}\n'.encode()
    line = jsonrpc.event_line("s1234567", raw)
    assert raw.rstrip(b"\n") in line
    assert json.loads(line)["params"]["event"]["seq"] == 1
    assert line.count(b"\n") == 1
