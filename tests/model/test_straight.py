"""Straight to a server: which addresses are plain, who may be talked to, and which connections wait."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import trio

from dshd.model import straight
from dshd.model.errors import ModelError
from dshd.model.http import Http
from dshd.model.straight import Address, plain
from tests.model.server import Server, answer


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8080/v1/x", Address("http", "127.0.0.1", 8080, "/v1/x")),
        ("HTTPS://Example.com", Address("https", "example.com", 443, "/")),
        ("https://example.com?a=b&c", Address("https", "example.com", 443, "/?a=b&c")),
        ("http://[::1]:1/", Address("http", "[::1]", 1, "/")),
    ],
)
def test_a_plain_address_has_four_parts(url: str, address: Address) -> None:
    assert plain(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "http://user@example.com/", "ftp://example.com/", "http:///x", "http://ex ample.com/", "http://bücher.de/",
        "http://example.com/ü", "http://example.com/a b", "http://example.com/a\r\nb", "http://example.com/x#y",
        "http://a\\b.c/", "http://example.com:x/", "http://example.com/\n", "",
    ],
)  # fmt: skip
def test_an_address_that_could_be_read_in_two_ways_is_not_plain(url: str) -> None:
    assert plain(url) is None


def test_the_usual_port_is_not_named() -> None:
    assert Address("https", "a", 443, "/").named == "a"
    assert Address("http", "a", 443, "/").named == "a:443"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For 127.0.0.1, with its key."""
    program = shutil.which("openssl") or pytest.skip("there is no openssl here")
    folder = tmp_path_factory.mktemp("tls")
    (folder / "config").write_text("[req]\ndistinguished_name = name\n[name]\n")
    subprocess.run(
        [program, "req", "-x509", "-config", "config", "-newkey", "ec", "-nodes",
         "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", "key", "-out", "cert",
         "-days", "2", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder, check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    both = folder / "both"
    both.write_bytes((folder / "key").read_bytes() + (folder / "cert").read_bytes())
    return both


@pytest.fixture
async def secured(certificate: Path, nursery: trio.Nursery) -> Server:
    server = Server()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    await nursery.start(server.run, context)
    return server


async def test_a_server_that_proves_who_it_is_is_talked_to_and_its_connection_used_again(
    secured: Server, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    http = Http()
    for _ in range(2):
        secured.plays.append(answer(200, b"{}"))
        with trio.fail_after(5):
            assert await http.get_json(secured.url, headers={}, timeout=4) == {}
    await http.aclose()
    assert secured.connections == 1


async def test_a_server_that_cannot_prove_it_is_not(secured: Server) -> None:
    http = Http()
    with trio.fail_after(5), pytest.raises(ModelError) as caught:
        await http.post(secured.url, {"authorization": "Bearer key"}, b"{}", Nobody(), idle_timeout=4)
    await http.aclose()
    assert caught.value.code == "TRANSPORT"
    assert "CERTIFICATE_VERIFY_FAILED" in caught.value.message
    assert not secured.requests


async def test_no_more_connections_wait_than_are_worth_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(straight, "KEPT", 2)
    http, begun = Http(), trio.Event()

    async def together(connection: object) -> None:
        if server.connections == 3:
            begun.set()
        await begun.wait()
        await answer(200, b"{}")(connection)  # type: ignore[arg-type]

    server.plays += [together] * 3 + [answer(200, b"{}")] * 2
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(get, http, server.url)
        for _ in range(2):
            await get(http, server.url)
    assert http._straight is not None
    assert [len(waiting) for waiting in http._straight._waiting.values()] == [2]
    await http.aclose()
    assert server.connections == 3


async def test_a_connection_that_has_waited_too_long_is_not_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(straight, "KEEP", 0.0)
    http = Http()
    server.plays += [answer(200, b"{}")] * 2
    for _ in range(2):
        with trio.fail_after(5):
            await get(http, server.url)
    await http.aclose()
    assert server.connections == 2


async def get(http: Http, url: str) -> None:
    assert await http.get_json(url, headers={}, timeout=4) == {}


class Nobody:
    def head(self, head: object) -> None:
        raise AssertionError("an answer")

    async def data(self, data: bytes) -> bool:
        raise AssertionError("an answer")
