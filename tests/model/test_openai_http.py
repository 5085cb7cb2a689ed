"""The openai adapter over a real connection: refusals, drops, silence, leaving early."""

from __future__ import annotations

import gc
import logging
import math
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dshd.model.blocks import Assembled, Assembler
from dshd.model.chunks import Chunk
from dshd.model.errors import ModelError
from dshd.model.http import Http
from dshd.model.models import Models
from dshd.model.request import ModelRequest, text_of
from dshd.model.transport import Head, place
from tests.model.server import DONE, END, HEAD, Connection, Play, Server, answer, event, streamed

REQUEST = ModelRequest("system", ({"role": "user", "content": [{"type": "text", "text": "hi"}]},))
HELLO = event({"content": "Hel"}, {"content": "lo"}, finish="stop") + DONE
KEY = "sk-secret-0123456789"


async def ask(models: Models, assembler: Assembler | None = None) -> Assembled:
    assembler = assembler or Assembler()
    call = models.prepare_call("mock")

    async def emit(chunk: Chunk) -> None:
        await trio.lowlevel.checkpoint()
        assembler.feed(chunk)

    with trio.fail_after(10):
        await call.adapter.stream(call, call.adapter.encode(call, REQUEST), emit)
    return assembler.result()


async def fails(server: Server, *plays: Play, **route: Any) -> ModelError:
    server.plays.extend(plays)
    models = server.models(**route)
    with pytest.raises(ModelError) as caught:
        await ask(models)
    await models.aclose()
    return caught.value


async def hellos(server: Server, *plays: Play) -> list[str]:
    server.plays.extend(plays)
    models = server.models()
    got = [text_of((await ask(models)).content) for _ in plays]
    await models.aclose()
    return got


async def test_an_answer_streams_and_the_connection_is_used_again(server: Server) -> None:
    assert await hellos(server, streamed(HELLO), streamed(HELLO), streamed(HELLO)) == ["Hello"] * 3
    assert server.connections == 1
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["user-agent"].startswith("dshd/")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_borders_of_chunks_do_not_matter(server: Server, size: int) -> None:
    raw = HELLO.replace(b"\n", b"\r\n").replace(b"lo", "l\u2028\u00f6".encode())
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert await hellos(server, streamed(*pieces)) == ["Hell\u2028\u00f6"]


async def test_a_key_goes_into_the_header_and_nowhere_else(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.plays.append(streamed(HELLO))
    models = server.models(api_key_env="MOCK_KEY")
    await ask(models)
    await models.aclose()
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY.encode() not in server.requests[0].body
    assert KEY not in repr(models.prepare_call("mock")) + repr(models.rows()) + caplog.text


async def test_a_keyless_call_has_no_authorization(server: Server) -> None:
    await hellos(server, streamed(HELLO))
    assert "authorization" not in server.requests[0].headers


async def test_a_key_that_the_provider_quotes_is_not_repeated(server: Server) -> None:
    quoted = answer(401, b'{"error":{"message":"Incorrect key: ' + KEY.encode() + b'"}}')
    error = await fails(server, quoted, api_key_env="MOCK_KEY")
    assert error.code == "AUTH"
    assert KEY not in f"{error} {error!r} {error.to_json()}"
    assert "Incorrect key: [the key]" in error.message


# -- refusals


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, b'{"error":{"message":"bad field"}}', "INVALID_REQUEST"),
        (400, b'{"error":{"message":"maximum context length is 8192 tokens"}}', "CONTEXT_WINDOW_EXCEEDED"),
        (401, b"", "AUTH"),
        (402, b'{"error":{"message":"Insufficient Balance"}}', "QUOTA"),
        (403, b"no", "AUTH"),
        (404, b"<html>", "INVALID_REQUEST"),
        (408, b"", "TIMEOUT"),
        (413, b"", "INVALID_REQUEST"),
        (429, b'{"error":{"message":"slow down"}}', "RATE_LIMIT"),
        (429, b'{"error":{"code":"insufficient_quota","message":"x"}}', "QUOTA"),
        (500, b"", "SERVER"),
        (503, b"\xff\xfe", "SERVER"),
        (529, b'[{"error":{"message":"x"}}]', "SERVER"),
        (301, b"", "INVALID_REQUEST"),
    ],
)
async def test_a_refusal_has_a_code(server: Server, status: int, body: bytes, code: str) -> None:
    error = await fails(server, answer(status, body))
    assert (error.code, error.http_status) == (code, status)
    assert str(status) in error.message


async def test_a_named_time_comes_with_the_refusal(server: Server) -> None:
    error = await fails(server, answer(429, b"", retry_after="7"))
    assert error.retry_after == 7.0
    later = formatdate(time.time() + 3600, usegmt=True)
    error = await fails(server, answer(503, b"", retry_after=later))
    assert error.retry_at is not None
    assert math.isclose(error.retry_at / 1000, time.time() + 3600, abs_tol=5)


async def test_a_long_refusal_is_cut(server: Server) -> None:
    assert len((await fails(server, answer(400, b"x" * 100_000))).message) < 700


# -- answers that are no stream


async def test_a_server_that_does_not_stream_is_understood(server: Server) -> None:
    whole = b'{"choices":[{"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}'
    assert await hellos(server, answer(200, whole, content_type="application/json")) == ["Hello"]


async def test_a_stream_under_a_wrong_content_type_is_understood(server: Server) -> None:
    assert await hellos(server, answer(200, HELLO, content_type="application/json")) == ["Hello"]
    assert await hellos(server, answer(200, HELLO)) == ["Hello"]


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b'{"error":{"message":"no","code":429}}', "application/json", "RATE_LIMIT"),
        (b"<html>login</html>", "text/html", "MALFORMED_RESPONSE"),
        (b"[]", "application/json", "MALFORMED_RESPONSE"),
        (b"", "application/json", "EMPTY_RESPONSE"),
        (b"", "text/event-stream", "EMPTY_RESPONSE"),
        (b'{"choices":[]}', "application/json", "EMPTY_RESPONSE"),
    ],
)
async def test_a_200_that_is_no_answer_is_an_error(server: Server, body: bytes, kind: str, code: str) -> None:
    assert (await fails(server, answer(200, body, content_type=kind))).code == code


# -- drops


def sent_then(*pieces: bytes, how: str) -> Play:
    async def play(connection: Connection) -> None:
        for piece in pieces:
            await connection.send(piece)
        await getattr(connection, how)()

    return play


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_connection_dropped_in_the_middle_is_a_closed_stream(server: Server, how: str) -> None:
    piece = event({"content": "Hel"})
    chunk = b"%x\r\n%s\r\n" % (len(piece), piece)
    error = await fails(server, sent_then(HEAD, chunk, how=how))
    assert error.code == "STREAM_CLOSED"
    assert error.retryable


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\ncontent-ty", b"\x16\x03\x01 what\r\n\r\n"])
async def test_a_connection_dropped_before_the_answer_is_transport(server: Server, sent: bytes) -> None:
    error = await fails(server, sent_then(sent, how="close"))
    assert error.code == "TRANSPORT"
    assert error.retryable


async def test_a_drop_after_the_end_mark_is_none(server: Server) -> None:
    assert await hellos(server, streamed(HELLO, end=None), streamed(HELLO)) == ["Hello"] * 2


async def test_a_server_that_leaves_the_response_open_after_the_end_mark_costs_little(server: Server) -> None:
    async def play(connection: Connection) -> None:
        await connection.send(HEAD)
        await connection.chunk(HELLO)
        await connection.until_gone()

    began = trio.current_time()
    assert await hellos(server, play, streamed(HELLO)) == ["Hello"] * 2
    assert trio.current_time() - began < 10


async def test_nobody_there_is_transport(server: Server) -> None:
    with socket_taken() as port:
        models = Models({"mock": {"adapter": "openai", "base_url": f"http://127.0.0.1:{port}", "model": "m"}})
        with pytest.raises(ModelError) as caught:
            await ask(models)
        await models.aclose()
    assert caught.value.code == "TRANSPORT"
    assert f"127.0.0.1:{port}" in caught.value.message


@pytest.mark.parametrize("url", ["ftp://x/v1", "http://", "not a url", "http://[::1/v1"])
async def test_an_impossible_address_is_an_invalid_request(url: str) -> None:
    models = Models({"mock": {"adapter": "openai", "base_url": url, "model": "m"}})
    with pytest.raises(ModelError) as caught:
        await ask(models)
    await models.aclose()
    assert caught.value.code in {"INVALID_REQUEST", "TRANSPORT"}


def test_messages_name_the_place_without_its_password() -> None:
    assert place("https://me:secret@host.example:8443/v1/chat?key=secret") == "host.example:8443"


@contextmanager
def socket_taken() -> Iterator[int]:
    """A port that is bound and not listened on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


# -- silence


class Watcher:
    """A receiver that hands on what it is given."""

    def __init__(self) -> None:
        self.sent, self.got = trio.open_memory_channel[bytes](math.inf)

    def head(self, head: Head) -> None:
        self.sent.send_nowait(b"")

    async def data(self, data: bytes) -> bool:
        self.sent.send_nowait(data)
        return False


async def test_silence_is_a_timeout_and_comments_are_not_silence(
    server: Server, mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    mine, theirs = trio.open_memory_channel[bytes](0)

    async def play(connection: Connection) -> None:
        await connection.send(HEAD)
        async for piece in theirs:
            await connection.chunk(piece)

    server.plays.append(play)
    http, watcher, errors = Http(), Watcher(), list[ModelError]()

    async def post() -> None:
        try:
            await http.post(server.url, {}, b"{}", watcher, idle_timeout=300)
        except ModelError as error:
            errors.append(error)

    nursery.start_soon(post)
    await watcher.got.receive()
    for _ in range(5):
        await wait_all_tasks_blocked()
        mock_clock.jump(290)
        await mine.send(b":\n\n")
        assert await watcher.got.receive() == b":\n\n"
    await wait_all_tasks_blocked()
    assert not errors
    mock_clock.jump(301)
    await wait_all_tasks_blocked()
    assert [error.code for error in errors] == ["TIMEOUT"]
    assert "300 s" in errors[0].message
    await mine.aclose()
    await http.aclose()


@pytest.mark.parametrize("first", [b"", HEAD, HEAD + b"c\r\n: processing\r\n"])
async def test_silence_before_and_after_the_first_byte_is_a_timeout(server: Server, first: bytes) -> None:
    async def play(connection: Connection) -> None:
        await connection.send(first)
        await connection.until_gone()

    server.plays.append(play)
    models = Models({"mock": {"adapter": "openai", "base_url": server.url, "model": "m"}}, idle_timeout=0.1)
    with pytest.raises(ModelError) as caught:
        await ask(models)
    await models.aclose()
    assert caught.value.code == "TIMEOUT"
    assert caught.value.retryable


# -- leaving early


async def stream_until_cancelled(server: Server, models: Models) -> None:
    """One call, cancelled in the middle of its answer."""
    started = trio.Event()

    async def play(connection: Connection) -> None:
        await connection.send(HEAD)
        await connection.chunk(event({"content": "Hel"}))
        await connection.until_gone()

    server.plays.append(play)
    call = models.prepare_call("mock")

    async def emit(chunk: Chunk) -> None:
        started.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.adapter.stream, call, call.adapter.encode(call, REQUEST), emit)
        with trio.fail_after(5):
            await started.wait()
        nursery.cancel_scope.cancel()


async def test_after_fifteen_cancelled_streams_a_request_works(server: Server) -> None:
    models = server.models()
    for _ in range(15):
        await stream_until_cancelled(server, models)
    server.plays.append(streamed(HELLO))
    assert text_of((await ask(models)).content) == "Hello"
    await models.aclose()
    gc.collect()  # a generator left behind would warn now


async def test_a_consumer_that_is_cancelled_or_fails_leaves_no_generator_behind(server: Server) -> None:
    models = server.models()
    call = models.prepare_call("mock")
    body = call.adapter.encode(call, REQUEST)

    async def stuck(chunk: Chunk) -> None:
        await trio.sleep_forever()

    async def broken(chunk: Chunk) -> None:
        raise LookupError("the log is gone")

    server.plays.extend([streamed(HELLO, HELLO), streamed(HELLO, HELLO), streamed(HELLO)])
    with trio.move_on_after(0.1):
        await call.adapter.stream(call, body, stuck)
    with pytest.raises(LookupError):
        await call.adapter.stream(call, body, broken)
    gc.collect()
    await wait_all_tasks_blocked()
    assert text_of((await ask(models)).content) == "Hello"
    await models.aclose()


async def test_closing_with_requests_in_flight_ends_them_as_aborted(server: Server) -> None:
    models = server.models()
    codes: list[str] = []
    arrived = trio.Event()

    async def one() -> None:
        with pytest.raises(ModelError) as caught:
            await ask(models)
        codes.append(caught.value.code)

    async def play(connection: Connection) -> None:
        if len(server.requests) == 3:
            arrived.set()
        await connection.send(HEAD)
        await connection.until_gone()

    server.plays.extend([play] * 3)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(one)
        with trio.fail_after(5):
            await arrived.wait()
        await models.aclose()
    assert codes == ["ABORTED"] * 3
    with pytest.raises(ModelError, match="closed its connections"):
        await ask(models)
    await models.aclose()


async def test_closing_while_a_nursery_with_requests_is_cancelled_raises_nothing(server: Server) -> None:
    models = server.models()
    for _ in range(3):
        await stream_until_cancelled(server, models)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(stream_until_cancelled, server, models)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await models.aclose()


async def test_an_answer_does_not_wait_for_delayed_acknowledgements(server: Server) -> None:
    """A server that writes each event by itself, with Nagle's algorithm on, is not held up by 40 ms."""

    async def play(connection: Connection) -> None:
        connection.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        for piece in (HEAD, *(b"%x\r\n%s\r\n" % (len(raw), raw) for raw in (HELLO[:9], HELLO[9:])), END):
            await connection.send(piece)

    server.plays.extend([play] * 20)
    models, taken = server.models(), []
    for _ in range(20):
        began = time.monotonic()
        assert text_of((await ask(models)).content) == "Hello"
        taken.append(time.monotonic() - began)
    await models.aclose()
    assert min(taken[5:]) < 0.03  # a new connection is not held up yet
