"""`fetch` against a server on this machine, which a rule names; and what no rule names stays out of reach."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import trio

from dshd.spawn.client import Spawner, launch
from dshd.tools.fetch import body, tool
from dshd.tools.fetch.tool import Fetch
from dshd.tools.fetch.way import Way, is_own
from dshd.tools.grants import Grant
from dshd.tools.registry import Registry
from dshd.tools.tool import Rule, ToolContext, ToolOutput
from dshd.tools.urls import Url
from tests.tools.doubles import call, context

assert httpx  # imported ahead: the first call would take its time within limits that are short here
HERE = Rule("allow", tool="fetch", host="127.0.0.1")
DISK_IS_FULL = os.statvfs("/tmp").f_bavail * os.statvfs("/tmp").f_frsize < 300 << 20


def answer(content: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


@attrs.define(eq=False)
class Server:
    """Answers with what a test puts under a path; ``seen`` are the requests, whole."""

    port: int = 0
    answers: dict[str, bytes | Sequence[bytes]] = attrs.field(factory=dict)
    seen: list[str] = attrs.field(factory=list)
    asked: trio.Event = attrs.field(factory=trio.Event)
    left: trio.Event = attrs.field(factory=trio.Event)

    async def serve(self, stream: trio.SocketStream) -> None:
        request = b""
        async with stream:
            while b"\r\n\r\n" not in request:
                request += await stream.receive_some()
            self.seen.append(request.decode())
            self.asked.set()
            given = self.answers[request.split()[1].decode()]
            if isinstance(given, bytes):
                return await stream.send_all(given)
            with suppress(trio.BrokenResourceError):
                for piece in given:
                    await stream.send_all(piece)
                await stream.receive_some()  # it goes on, and says no more
        self.left.set()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture
async def server(nursery: trio.Nursery) -> Server:
    made = Server()
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    made.port = listener.socket.getsockname()[1]
    nursery.start_soon(partial(trio.serve_listeners, made.serve, [listener]))
    return made


@pytest.fixture
async def ctx(place: Path) -> AsyncIterator[ToolContext]:
    """A session with a network and a rule that names this machine."""
    spawner = Spawner(launch())
    yield context(place, net=True, rules=(HERE,), spawner=spawner)
    await spawner.aclose()


@attrs.define(eq=False)
class Names(Way):
    """A resolver that says something else each time."""

    says: list[list[str]]
    asked: list[str] = attrs.field(factory=list)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    async def addresses(self, url: Url) -> list[str]:
        self.asked.append(url.host)
        return self.says.pop(0)


async def fetch(ctx: ToolContext, url: str, way: Way | None = None) -> ToolOutput:
    with trio.fail_after(20):
        return await Registry([Fetch(way)]).execute(call("fetch", url=url), ctx)


# --- what is shown


async def test_text_and_json_come_as_they_are_and_nothing_is_sent_but_the_address(
    ctx: ToolContext, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    server.answers["/a?b=1"] = answer(b'{"a": [1]}\n', "Content-Type: application/json", "Set-Cookie: a=b")
    for _ in range(2):
        output = await fetch(ctx, server.url("/a?b=1#c"))
        assert not output.is_error
        assert output.text == (
            f'{{"a": [1]}}\n[200 OK, application/json, 11 bytes, from {server.url("/a?b=1")}]'
        )
    first, second = server.seen
    assert first == second
    assert first.startswith(f"GET /a?b=1 HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n")
    assert {line.partition(":")[0] for line in first.split("\r\n")[1:] if line} == {
        "host", "user-agent", "accept", "accept-encoding", "connection",
    }  # fmt: skip


async def test_a_page_is_made_readable_with_links_that_can_be_followed(
    ctx: ToolContext, server: Server
) -> None:
    html = "<title>Docs</title><script>x</script><h1>Gr\xfc\xdfe</h1><p>See <a href=b>more</a>".encode(
        "latin-1"
    )
    server.answers["/a/"] = answer(html, "Content-Type: text/html; charset=latin1")
    text = (await fetch(ctx, server.url("/a/"))).text
    assert text.startswith(f"Docs\n\n# Gr\xfc\xdfe\n\nSee [more]({server.url('/a/b')})\n[200 OK, text/html,")


async def test_of_a_short_text_in_two_byte_characters_nothing_is_said_to_be_left_out(
    ctx: ToolContext, server: Server
) -> None:
    server.answers["/"] = answer("grün".encode("utf-16"), "Content-Type: text/plain; charset=utf-16")
    assert (await fetch(ctx, server.url())).text.startswith("grün\n[200 OK, text/plain, 10 bytes")


async def test_a_page_that_takes_for_ever_is_shown_as_it_is(
    ctx: ToolContext, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "PROGRAM", "import time; time.sleep(60)")
    monkeypatch.setattr(tool, "READING", 0.2)
    server.answers["/"] = answer(b"<p>words", "Content-Type: text/html")
    text = (await fetch(ctx, server.url())).text
    assert text.startswith("<p>words\n[the page could not be made readable, this is its source]\n[200 OK")


async def test_of_a_long_text_the_head_is_shown_and_a_file_has_all(ctx: ToolContext, server: Server) -> None:
    if DISK_IS_FULL:
        pytest.skip("spill files leave the last of a disk free")
    content = b"".join(b"line %d\n" % n for n in range(50_000))
    server.answers["/"] = answer(content)
    text = (await fetch(ctx, server.url())).text
    (file,) = ctx.spill_dir.iterdir()
    assert file.read_bytes() == content
    assert len(text) < 31_000
    assert f"bytes left out; all of it: {file} ...]" in text
    assert text.endswith(f"[200 OK, of no said type, 539 KB, from {server.url()}]")


async def test_what_is_not_text_goes_to_a_file(ctx: ToolContext, server: Server) -> None:
    if DISK_IS_FULL:
        pytest.skip("spill files leave the last of a disk free")
    content = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(200)
    server.answers["/"] = answer(content, "Content-Type: image/png")
    text = (await fetch(ctx, server.url())).text
    (file,) = ctx.spill_dir.iterdir()
    assert file.read_bytes() == content
    assert text.startswith("it is a PNG image, 216 bytes; not text.")
    assert f"[all of it: {file}]" in text


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_what_comes_compressed_is_bounded_all_the_same(
    ctx: ToolContext, server: Server, monkeypatch: pytest.MonkeyPatch, name: str, pack: Any
) -> None:
    monkeypatch.setattr(body, "MOST", 100_000)
    server.answers["/small"] = answer(pack(b"hello"), f"Content-Encoding: {name}")
    server.answers["/bomb"] = answer(pack(bytes(b"ab" * 10_000_000)), f"Content-Encoding: {name}")
    server.answers["/broken"] = answer(b"\xff\xff\xff\xff\xff", f"Content-Encoding: {name}")
    assert (await fetch(ctx, server.url("/small"))).text.startswith("hello\n[200")
    assert "it goes on: no more than 100 KB was read" in (await fetch(ctx, server.url("/bomb"))).text
    assert (await fetch(ctx, server.url("/broken"))).error == "NETWORK"


async def test_a_body_without_end_is_left_where_it_is_enough(
    ctx: ToolContext, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "MOST", 50_000)
    server.answers["/"] = [b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 60_000]
    assert "it goes on: no more than 50 KB was read" in (await fetch(ctx, server.url())).text
    with trio.fail_after(5):
        await server.left.wait()


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oh", "301 Moved"])
async def test_an_answer_that_is_a_no_is_shown_and_marked(
    ctx: ToolContext, server: Server, status: str
) -> None:
    server.answers["/"] = answer(b"nothing here", status=status)
    output = await fetch(ctx, server.url())
    assert (output.is_error, f"nothing here\n[{status}, " in output.text) == (status[0] != "3", True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "gave no whole answer"),
        (b"nonsense\r\n\r\n", "gave no whole answer"),
        (b"", "gave no whole answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n", "gave no whole answer"),
    ],
)
async def test_a_server_that_breaks_off_costs_the_call(
    ctx: ToolContext, server: Server, given: bytes, says: str
) -> None:
    server.answers["/"] = given
    output = await fetch(ctx, server.url())
    assert (output.error, says in output.text) == ("NETWORK", True), output.text
    assert not list(ctx.spill_dir.glob("*"))


async def test_nobody_there_and_no_such_name_are_said(ctx: ToolContext) -> None:
    output = await fetch(ctx, "http://127.0.0.1:1/")
    assert (output.error, "can't connect to 127.0.0.1:1" in output.text) == ("NETWORK", True)
    output = await fetch(ctx, "http://no-such-host.invalid/")
    assert (output.error, "no-such-host.invalid is not known" in output.text) == ("NETWORK", True)


async def test_silence_ends_with_the_time_limit_and_an_abort_at_once_and_nothing_stays(
    ctx: ToolContext, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "LIMIT", 0.5)
    server.answers["/"] = [b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 600_000]
    output = await fetch(ctx, server.url())
    assert (output.error, "was not done within 0.5 s" in output.text) == ("TIMEOUT", True)
    with trio.fail_after(5):
        await server.left.wait()
    server.left, server.asked = trio.Event(), trio.Event()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch, ctx, server.url())
            await server.asked.wait()
            nursery.cancel_scope.cancel()
        await server.left.wait()
    assert not list(ctx.spill_dir.glob("*"))


# --- where it may lead


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"net": False}, "network is off here. A person can change that: dshctl set net=on"),
        ({"net": False, "mode": "read-only"}, "network is off"),
        ({"net": False, "mode": "full"}, ""),
        ({"mode": "read-only"}, ""),
        ({"rules": ()}, "127.0.0.1 is this machine"),
        ({"rules": (Rule("allow"),)}, 'host = "127.0.0.1"'),
        ({"rules": (Rule("allow", host="*"),)}, "this machine"),
        ({"rules": (Rule("allow", host="127.*"),)}, ""),
        ({"rules": (HERE, Rule("deny", tool="fetch"))}, "denied: the rule"),
        ({"rules": (HERE, Rule("ask", host="127.*"))}, "denied: nobody to ask"),
        ({"rules": (Rule("ask", host="127.*"),), "grants": (Grant(tool="fetch", host="127.0.0.1"),)}, ""),
    ],
)
async def test_net_mode_rules_and_a_persons_answer_decide(
    ctx: ToolContext, server: Server, changes: dict[str, Any], says: str
) -> None:
    server.answers["/"] = answer(b"here")
    output = await fetch(attrs.evolve(ctx, **changes), server.url())
    assert (output.error, len(server.seen)) == (("DENIED", 0) if says else (None, 1)), output.text
    assert says in output.text


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "0", "[::ffff:7f00:1]"])
async def test_this_machine_is_this_machine_under_any_name(
    ctx: ToolContext, server: Server, host: str
) -> None:
    output = await fetch(ctx, server.url(host=host))
    assert output.error in ("DENIED", "NETWORK"), output.text  # not every resolver reads numbers
    assert server.seen == []


async def test_a_name_that_changes_its_mind_is_held_to_what_was_checked(
    ctx: ToolContext, server: Server
) -> None:
    """Once looked up, connected to that: the second answer is never asked for."""
    named = attrs.evolve(ctx, rules=(Rule("allow", host="rebind.example"),))
    server.answers["/"] = answer(b"here")
    way = Names([["127.0.0.1"], ["127.0.0.2"]])
    assert (await fetch(named, server.url(host="rebind.example"), way)).text.startswith("here")
    assert way.asked == ["rebind.example"]
    assert f"\r\nhost: rebind.example:{server.port}\r\n" in server.seen[0]


async def test_a_name_for_two_machines_needs_both_to_be_reachable(ctx: ToolContext, server: Server) -> None:
    way = Names([["93.184.216.34", "169.254.169.254"]])
    output = await fetch(ctx, server.url(host="two.example"), way)
    assert "two.example (169.254.169.254) is link-local" in output.text
    assert server.seen == []


async def test_redirects_are_followed_and_each_hop_is_checked_again(ctx: ToolContext, server: Server) -> None:
    server.answers |= {
        "/": answer(b"", "Location: /b", status="302 Found"),
        "/b": answer(b"x" * 100, "Location: c", status="301 Moved Permanently"),
        "/c": answer(b"at last"),
        "/away": answer(b"", f"Location: {server.url('/c', 'localhost')}", status="307 Away"),
        "/round": answer(b"", "Location: /round", status="302 Found"),
        "/file": answer(b"", "Location: file:///etc/passwd", status="302 Found"),
    }
    output = await fetch(ctx, server.url())
    assert output.text == f"at last\n[200 OK, of no said type, 7 bytes, from {server.url('/c')}]"
    output = await fetch(ctx, server.url("/away"))
    assert (output.error, "localhost" in output.text, "is this machine" in output.text) == (
        "DENIED",
        True,
        True,
    )
    for action, says in (("deny", "denied: the rule"), ("ask", "fetch that address itself")):
        rules = (HERE, Rule("allow", host="localhost"), Rule(action, host="local*"))
        output = await fetch(attrs.evolve(ctx, rules=rules), server.url("/away"))
        assert (output.error, says in output.text) == ("DENIED", True), output.text
    assert "redirects more than 10 times" in (await fetch(ctx, server.url("/round"))).text
    assert "only http:// and https:// are fetched" in (await fetch(ctx, server.url("/file"))).text


async def test_this_machine_is_known_by_any_of_its_addresses() -> None:
    assert is_own("127.0.0.1", 80)
    assert not is_own("192.0.2.1", 80)


async def test_an_address_that_is_none_is_the_models_mistake(ctx: ToolContext) -> None:
    output = await fetch(ctx, "file:///etc/passwd")
    assert (output.error, "only http:// and https:// are fetched" in output.text) == ("INVALID_ARGS", True)
