"""One exchange over HTTP: what is sent, what is read, and which connections are used again."""

from __future__ import annotations

import gzip
import socket
import zlib

import pytest
import trio

from dshd.model.errors import ModelError
from dshd.model.http import Http
from dshd.model.transport import Head
from tests.model.server import Connection, Play, Server, answer


class Whole:
    """Takes a response; ``enough`` bytes are all it wants."""

    def __init__(self, enough: int | None = None) -> None:
        self.got, self.enough = b"", enough
        self.it: Head | None = None

    def head(self, head: Head) -> None:
        self.it = head

    async def data(self, data: bytes) -> bool:
        self.got += data
        return self.enough is not None and len(self.got) >= self.enough


async def post(http: Http, server: Server, *plays: Play, enough: int | None = None) -> list[Whole]:
    server.plays.extend(plays)
    got = [Whole(enough) for _ in plays]
    for one in got:
        with trio.fail_after(5):
            await http.post(f"{server.url}/x?y=1", {"a": "b"}, b"{}", one, idle_timeout=2)
    return got


def raw(data: bytes, *, then: str | None = None) -> Play:
    async def play(connection: Connection) -> None:
        await connection.send(data)
        if then is not None:
            await getattr(connection, then)()

    return play


async def test_a_proxy_in_the_environment_is_gone_through(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    http = Http()
    server.plays.append(answer(200, b"{}"))
    assert await http.get_json("http://far.example/v1", headers={}, timeout=5) == {}
    await http.aclose()
    assert server.requests[0].path == "http://far.example/v1"


async def test_a_request_is_whole(server: Server) -> None:
    http = Http()
    (one,) = await post(http, server, answer(200, b"ok", x="1"))
    await http.aclose()
    (request,) = server.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1/x?y=1", b"{}")
    assert request.headers["host"] == server.url.split("/")[2]
    assert request.headers["a"] == "b"
    assert one.it == Head(200, {"content-length": "2", "x": "1"})
    assert one.got == b"ok"


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used(server: Server) -> None:
    http = Http()
    await post(http, server, raw(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", then="close"))
    await trio.testing.wait_all_tasks_blocked(0.01)
    await post(http, server, answer(200, b""))
    await http.aclose()
    assert server.connections == 2


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    ],
)
async def test_a_connection_that_is_over_or_odd_is_not_kept(server: Server, head: bytes) -> None:
    http = Http()
    await post(http, server, raw(head), answer(200, b""))
    await http.aclose()
    assert server.connections == 2


async def test_who_has_enough_leaves_and_the_connection_is_used_again_if_the_end_comes(
    server: Server,
) -> None:
    http = Http()
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"
    first, second = await post(http, server, raw(chunked), raw(chunked), enough=2)
    await http.aclose()
    assert (first.got, second.got) == (b"ab", b"ab")
    assert server.connections == 1


async def test_provisional_responses_and_bodies_without_a_length_are_read(server: Server) -> None:
    http = Http()
    first = raw(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nx: 1\r\nX: 2\r\n\r\nto the end", then="close"
    )
    (one,) = await post(http, server, first)
    await http.aclose()
    assert one.it == Head(200, {"x": "1, 2"})
    assert one.got == b"to the end"


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_body_compressed_unasked_is_read(server: Server, encoding: str, pack: object) -> None:
    assert callable(pack)
    http = Http()
    (one,) = await post(http, server, answer(200, pack(b"hello" * 100), content_encoding=encoding))
    await http.aclose()
    assert one.got == b"hello" * 100


async def test_a_body_that_cannot_be_decoded_is_malformed(server: Server) -> None:
    http = Http()
    with pytest.raises(ModelError) as caught:
        await post(http, server, answer(200, b"not that", content_encoding="gzip"))
    await http.aclose()
    assert caught.value.code == "MALFORMED_RESPONSE"


async def test_a_header_that_cannot_be_sent_is_an_invalid_request(server: Server) -> None:
    http = Http()
    for value in ("a\nb: c", "\u00fc"):
        with pytest.raises(ModelError) as caught:
            await http.post(server.url, {"authorization": value}, b"", Whole(), idle_timeout=2)
        assert caught.value.code == "INVALID_REQUEST"
        assert value not in caught.value.message
    await http.aclose()


async def test_an_answer_that_comes_before_the_request_was_taken_is_read(nursery: trio.Nursery) -> None:
    """Servers refuse what is too long without reading it, and close."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        whole = Whole()

        def refuse() -> None:
            connection, _ = listener.accept()
            connection.recv(10)
            connection.sendall(b"HTTP/1.1 413 Long\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):
                pass
            connection.close()

        nursery.start_soon(trio.to_thread.run_sync, refuse)
        http = Http()
        with trio.fail_after(5):
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            await http.post(url, {}, b"x" * 4_000_000, whole, idle_timeout=2)
        await http.aclose()
    assert whole.it is not None
    assert (whole.it.status, whole.got) == (413, b"no")


async def test_a_request_that_does_not_fit_at_once_is_sent_whole(server: Server) -> None:
    http, body = Http(), bytes(range(256)) * 20_000
    server.plays.append(answer(200, b""))
    with trio.fail_after(5):
        await http.post(server.url, {}, body, Whole(), idle_timeout=2)
    await http.aclose()
    assert server.requests[0].body == body


async def test_a_server_that_takes_no_more_of_the_request_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        http = Http()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with trio.fail_after(5), pytest.raises(ModelError) as caught:
            await http.post(url, {}, b"x" * 20_000_000, Whole(), idle_timeout=0.1)
        await http.aclose()
    assert caught.value.code == "TIMEOUT"
