"""The anthropic adapter over a real connection: headers, refusals, drops."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from dshd.model.blocks import Assembled, Assembler
from dshd.model.chunks import Chunk
from dshd.model.errors import ModelError
from dshd.model.models import Models
from dshd.model.request import ModelRequest, text_of
from tests.model.server import Play, Server, answer, streamed
from tests.model.test_anthropic_reader import BEGIN, HELLO, ends

KEY = "sk-secret-0123456789"
ANSWER = streamed(BEGIN, HELLO, ends())
REQUEST = ModelRequest("system", ({"role": "user", "content": [{"type": "text", "text": "hi"}]},))


async def ask(server: Server, *plays: Play, **route: Any) -> Assembled:
    server.plays.extend(plays)
    models: Models = server.models(adapter="anthropic", **route)
    call, assembler = models.prepare_call("mock"), Assembler()

    async def emit(chunk: Chunk) -> None:
        await trio.lowlevel.checkpoint()
        assembler.feed(chunk)

    try:
        with trio.fail_after(10):
            await call.adapter.stream(call, call.adapter.encode(call, REQUEST), emit)
    finally:
        await models.aclose()
    return assembler.result()


async def fails(server: Server, *plays: Play, **route: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(server, *plays, **route)
    return caught.value


async def test_the_key_and_the_version_go_into_headers_and_the_key_nowhere_else(server: Server) -> None:
    got = await ask(server, ANSWER, api_key_env="MOCK_KEY")
    (sent,) = server.requests
    assert text_of(got.content) == "Hello"
    assert (sent.method, sent.path) == ("POST", "/v1/messages")
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in sent.headers
    assert KEY.encode() not in sent.body


async def test_a_profile_moves_the_key_to_authorization(server: Server) -> None:
    await ask(server, ANSWER, api_key_env="MOCK_KEY", profile={"bearer": True})
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("status", "kind", "message", "code"),
    [
        (529, "overloaded_error", "Overloaded", "SERVER"),
        (429, "rate_limit_error", "slow", "RATE_LIMIT"),
        (400, "invalid_request_error", "prompt is too long: 3 tokens > 2 maximum", "CONTEXT_WINDOW_EXCEEDED"),
        (413, "request_too_large", "Request too large", "CONTEXT_WINDOW_EXCEEDED"),
        (401, "authentication_error", f"invalid x-api-key {KEY}", "AUTH"),
        (402, "billing_error", "pay", "QUOTA"),
        (404, "not_found_error", "model: nope", "INVALID_REQUEST"),
        (529, "x_future", "", "SERVER"),
    ],
)
async def test_a_refusal_has_a_code(server: Server, status: int, kind: str, message: str, code: str) -> None:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    error = await fails(server, answer(status, body, retry_after="7"), api_key_env="MOCK_KEY")
    assert (error.code, error.http_status, error.retry_after) == (code, status, 7.0)
    assert KEY not in str(error)


async def test_an_answer_that_does_not_stream_is_understood(server: Server) -> None:
    whole = {"type": "message", "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn"}
    got = await ask(server, answer(200, json.dumps(whole).encode(), content_type="application/json"))
    assert text_of(got.content) == "Hello"


async def test_a_connection_dropped_in_the_middle_is_a_closed_stream(server: Server) -> None:
    assert (await fails(server, streamed(BEGIN, HELLO, end=None))).code == "STREAM_CLOSED"


async def test_a_route_without_a_model_takes_the_first_that_the_server_lists(server: Server) -> None:
    server.plays.append(answer(200, json.dumps({"data": [{"id": "claude-x"}]}).encode()))
    table = {"adapter": "anthropic", "base_url": server.url, "api_key_env": "MOCK_KEY"}
    models = Models({"a": table}, env={"MOCK_KEY": KEY})
    with trio.fail_after(5):
        choice = await models.choose("a", client_is_terminal=False)
    await models.aclose()
    assert choice.ref == "a/claude-x"
    assert (server.requests[0].path, server.requests[0].headers["x-api-key"]) == ("/v1/models", KEY)
