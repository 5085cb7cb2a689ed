"""The same over WebSocket: who is let in, who they are, and what a client may cost."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream

from dshd.control.websocket import channel, loopback, token
from dshd.control.websocket.door import knock
from dshd.control.websocket.serving import WebSockets
from dshd.errors import Conflict
from dshd.wire import MAX_LINE
from tests.control.rig import PATIENCE, Server

Json = dict[str, Any]
SECRET = "t" * 43
PAGE = "http://localhost:5173"
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer %b\r\n\r\n"
)


# ---------------------------------------------------------------- the door


@pytest.mark.parametrize(
    ("headers", "protocols", "refused", "protocol"),
    [
        ([(b"Authorization", b"Bearer " + SECRET.encode())], [], None, None),
        ([(b"authorization", b"bearer  " + SECRET.encode())], ["dshd"], None, "dshd"),
        ([], ["dshd", f"dshd.token.{SECRET}"], None, "dshd"),
        ([(b"origin", PAGE.encode())], ["dshd", f"dshd.token.{SECRET}"], None, "dshd"),
        ([], [], 401, None),
        ([(b"authorization", b"Bearer " + SECRET[:-1].encode())], [], 401, None),
        ([(b"authorization", SECRET.encode())], [], 401, None),
        ([(b"authorization", b"Bearer \xff\xfe")], [], 401, None),
        ([], [SECRET], 401, None),
        ([(b"origin", b"http://evil.example")], [f"dshd.token.{SECRET}"], 403, None),
        ([(b"origin", b"null")], [f"dshd.token.{SECRET}"], 403, None),
        (
            [(b"origin", PAGE.encode()), (b"Origin", b"http://evil.example")],
            [f"dshd.token.{SECRET}"],
            403,
            None,
        ),
    ],
)
def test_who_knocks_is_let_in_with_the_token_and_from_no_other_page(
    headers: list[tuple[bytes, bytes]], protocols: list[str], refused: int | None, protocol: str | None
) -> None:
    let = knock(headers, protocols, SECRET, (PAGE,))
    assert (let.refused and let.refused[0]) == refused
    assert let.protocol == protocol


def test_the_token_is_made_once_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        first = token.kept(tmp_path)
    finally:
        os.umask(old)
    assert token.kept(tmp_path) == first
    assert len(first) >= 43
    assert [path.name for path in tmp_path.iterdir()] == [token.NAME]
    assert stat.S_IMODE((tmp_path / token.NAME).stat().st_mode) == 0o600


def test_a_token_that_others_can_read_or_that_is_none_is_not_used(tmp_path: Path) -> None:
    token.kept(tmp_path)
    (tmp_path / token.NAME).chmod(0o640)
    with pytest.raises(Conflict):
        token.kept(tmp_path)
    (tmp_path / token.NAME).chmod(0o600)
    (tmp_path / token.NAME).write_text("\n")
    with pytest.raises(Conflict):
        token.kept(tmp_path)


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_process_at_the_other_end_is_found(family: int, host: str) -> None:
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"no {host} here")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        server, _ = listener.accept()
        with server:
            ends = server.getpeername()[:2], server.getsockname()[:2]
            end = loopback.other_end(family, *ends)
            assert end is not None
            assert end.uid == os.getuid()
            assert os.getpid() in end.holders
            client.close()
            server.close()
            assert (
                loopback.other_end(family, ends[0], ("127.0.0.2", 1)) is None
                if family == socket.AF_INET
                else True
            )


# ---------------------------------------------------------------- a client


class Web:
    """A client over WebSocket."""

    def __init__(self, ws: WebSocketConnection) -> None:
        self.ws = ws

    async def line(self) -> Json:
        with trio.fail_after(PATIENCE):
            got: Json = json.loads(await self.ws.get_message())
            return got

    async def say(self, text: str) -> None:
        with trio.fail_after(PATIENCE):
            await self.ws.send_message(text)

    async def call(self, method: str, **params: Any) -> Json:
        await self.say(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, indent=1))
        while "id" not in (got := await self.line()):
            pass
        return got


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@asynccontextmanager
async def listening(tmp_path: Path, tools: dict[int, str] | None = None) -> AsyncIterator[tuple[Server, str]]:
    """A daemon with a websocket, and its address. ``tools``: {pid: the session whose tool it is}."""
    async with Server().serving() as server, trio.open_nursery() as nursery:
        port = free_port()
        found = (tools or {}).get
        web = WebSockets(("127.0.0.1", port), (PAGE,), tmp_path, server.room, server.writes, found)
        nursery.start_soon(web.run)
        with trio.fail_after(PATIENCE):
            while not await there(port):
                await trio.lowlevel.checkpoint()
        yield server, f"ws://127.0.0.1:{port}/"
        nursery.cancel_scope.cancel()


async def there(port: int) -> bool:
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:
        return False
    await stream.aclose()
    return True


@asynccontextmanager
async def knocking(url: str, tmp_path: Path, secret: str | None = None) -> AsyncIterator[Web]:
    word = secret or token.kept(tmp_path)
    stream = await trio.open_tcp_stream("127.0.0.1", port_of(url))
    async with stream, trio.open_nursery() as nursery:
        bearer = [(b"Authorization", f"Bearer {word}".encode())]
        yield Web(await wrap_client_stream(nursery, stream, "127.0.0.1", "/", extra_headers=bearer))
        nursery.cancel_scope.cancel()


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1].strip("/"))


async def test_a_message_is_a_request_and_all_is_as_on_the_socket(tmp_path: Path) -> None:
    async with listening(tmp_path) as (server, url), knocking(url, tmp_path) as web:
        session = await server.named("api")
        assert (await web.call("session.list"))["error"]["data"]["code"] == "INVALID"
        hello = await web.call("daemon.hello", protocol=1)
        assert hello["result"]["permissions"] == {"read": True, "write": True, "kind": "user"}
        sent = await web.call("session.send", session="api", verb="inject", text="one\ntwo\u2028")
        assert sent["result"]["verb"] == "inject"
        assert (await web.call("log.follow", session=session.id))["result"]["type"] == "following"
        assert (await web.line())["method"] == "log.event"
        await web.say('{"jsonrpc":"2.0","id":7,"method":"daemon.status"}\n{"jsonrpc":"2.0","id":8}')
        while "error" not in (got := await web.line()):
            assert got["method"] == "log.event"
        assert got["error"]["code"] == -32700, "a message holds one object"


async def test_without_the_token_nothing_is_said(tmp_path: Path) -> None:
    async with listening(tmp_path) as (_, url):
        with pytest.RaisesGroup(
            pytest.RaisesExc(ConnectionRejected, check=lambda why: why.status_code == 401)
        ):
            async with knocking(url, tmp_path, "x" * 43):
                pass


async def test_what_is_below_a_tool_is_an_agent_with_the_token_too(tmp_path: Path) -> None:
    async with listening(tmp_path, {os.getpid(): "s4h8w2c1"}) as (_, url), knocking(url, tmp_path) as web:
        hello = await web.call("daemon.hello", protocol=1)
        assert hello["result"]["permissions"]["kind"] == "agent"
        assert (await web.call("daemon.stop"))["error"]["data"]["code"] == "DENIED"


async def test_a_message_that_no_line_holds_closes(tmp_path: Path) -> None:
    async with listening(tmp_path) as (_, url), knocking(url, tmp_path) as web:
        await web.say("x" * (MAX_LINE + 1))
        with trio.fail_after(PATIENCE), pytest.raises(ConnectionClosed) as closed:
            await web.ws.get_message()
        assert closed.value.reason is not None
        assert closed.value.reason.code == 1009


async def test_who_answers_no_ping_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PING_S", 0.05)
    async with (
        listening(tmp_path) as (_, url),
        await trio.open_tcp_stream("127.0.0.1", port_of(url)) as stream,
    ):
        await stream.send_all(HANDSHAKE % token.kept(tmp_path).encode())
        with trio.fail_after(PATIENCE):
            while await stream.receive_some(4096):
                pass


async def test_a_client_that_reads_nothing_costs_no_more_than_its_share(tmp_path: Path) -> None:
    async with (
        listening(tmp_path) as (server, url),
        knocking(url, tmp_path) as slow,
        knocking(url, tmp_path) as web,
    ):
        session = await server.named("api")
        for each in (slow, web):
            await each.call("daemon.hello", protocol=1)
        await slow.call("log.follow", session=session.id)
        other = await server.client()
        for _ in range(40):
            await other.call("session.send", session="api", verb="inject", text="x" * 100_000)
        assert (await web.call("daemon.status"))["result"]["type"] == "status"
        seqs: list[int] = []
        with trio.fail_after(PATIENCE):
            while len(seqs) < 41:
                seqs.append((await slow.line())["params"]["event"]["seq"])
        assert seqs == list(range(41)), "and finds all of it when it reads"
