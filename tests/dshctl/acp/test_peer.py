"""Lines from an editor that are none of its protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dshctl.acp.peer import INVALID_REQUEST, PARSE_ERROR, Peer

GOOD = b'{"jsonrpc":"2.0","id":7,"method":"initialize"}\n'


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{half", PARSE_ERROR),
        (b"\xff\xfe", PARSE_ERROR),
        (b"[" * 100_000, PARSE_ERROR),
        (b'{"a":' * 100_000, PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b"1", INVALID_REQUEST),
    ],
)
def test_a_line_that_is_no_request_is_answered_with_an_error_and_the_next_one_is_taken(
    line: bytes, code: int
) -> None:
    written: list[str] = []
    peer = Peer(written.append)
    assert list(peer.feed(line + b"\n" + GOOD)) == [(7, "initialize", {})]
    answer: dict[str, Any] = json.loads(written[0])
    assert (answer["id"], answer["error"]["code"]) == (None, code)
