"""One client against the daemon: well-behaved, strict, slow, rude and gone."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

import pytest
import trio
import trio.testing

from dshd.control import outbox
from dshd.control.life import TABLE
from dshd.session.registry.listing import Listed
from dshd.wire import MAX_LINE, SessionRow
from tests.control.rig import Client, Refused, Server
from tests.session.rig import call, say, until

HELLO = b'{"jsonrpc":"2.0","id":0,"method":"daemon.hello","params":{"protocol":1}}\n'


def request(number: int, method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


async def refusal(client: Client, method: str, **params: object) -> Refused:
    with pytest.raises(Refused) as caught:
        await client.call(method, **params)
    return caught.value


# ---------------------------------------------------------------- states


def test_every_state_is_reached_and_left() -> None:
    reached = {"new"} | {to for exits in TABLE.values() for to in exits.values()}
    assert reached == set(TABLE)
    for state, exits in TABLE.items():
        assert ("gone" in exits) == (state != "closed")


async def test_nothing_is_answered_before_hello() -> None:
    async with Server().serving() as server:
        client = server.connect()
        error = await refusal(client, "session.list")
        assert error.code == "INVALID"
        assert "daemon.hello" in str(error)
        assert (await client.call("daemon.hello", protocol=1))["permissions"]["write"] is True
        assert (await client.call("session.list"))["sessions"] == []


async def test_another_protocol_is_a_conflict_that_names_ours() -> None:
    async with Server().serving() as server:
        client = server.connect()
        error = await refusal(client, "daemon.hello", protocol=2)
        assert error.code == "CONFLICT"
        assert error.error["data"]["protocol"] == 1


async def test_hello_is_said_once() -> None:
    async with Server().serving() as server:
        client = await server.client()
        assert (await refusal(client, "daemon.hello", protocol=1)).code == "CONFLICT"


async def test_hello_and_a_request_in_one_write_are_both_answered() -> None:
    async with Server().serving() as server:
        client = server.connect()
        await client.send(HELLO + request(1, "session.list"))
        assert (await client.line())["id"] == 0
        assert (await client.line())["result"]["sessions"] == []


async def test_a_request_in_single_bytes_is_answered() -> None:
    async with Server().serving() as server:
        client = server.connect()
        for byte in HELLO:
            await client.send(bytes([byte]))
        assert (await client.line())["result"]["protocol"] == 1


async def test_who_says_nothing_is_hung_up_on(autojump_clock: trio.testing.MockClock) -> None:
    async with Server().serving() as server:
        client = server.connect()
        with trio.fail_after(60):
            data = await client.sock.recv(1 << 16)
            assert json.loads(data)["error"]["data"]["code"] == "UNAVAILABLE"
            assert await client.sock.recv(1) == b""


async def test_who_said_hello_may_be_silent_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    async with Server().serving() as server:
        client = await server.client()
        await trio.sleep(80_000)
        assert (await client.call("session.list"))["sessions"] == []


# ---------------------------------------------------------------- strictness


async def test_a_malformed_line_gets_an_error_and_the_connection_goes_on() -> None:
    async with Server().serving() as server:
        client = await server.client()
        await client.send(b"what?\n")
        assert (await client.line())["error"]["code"] == -32700
        await client.send(b'[{"jsonrpc":"2.0","id":1,"method":"session.list"}]\n\n')
        assert "one object per line" in (await client.line())["error"]["message"]
        assert (await client.call("session.list"))["sessions"] == []


@pytest.mark.parametrize(
    ("method", "params", "says"),
    [
        ("session.send", {"text": "x", "if_turn": "5"}, "$.if_turn"),
        ("session.send", {"text": "x", "first": 1}, "$.first"),
        ("session.send", {"text": 5}, "$.text"),
        ("session.send", {"text": "x", "verb": "shout"}, "$.verb"),
        ("session.send", {"text": "x", "expire": "5m"}, "unknown key"),
        ("session.send", {"text": "x", "if_idel": True}, "did you mean if_idle?"),
        ("session.send", {"text": "x", "create": {"dir": "/", "net": "on"}}, "$.create.net"),
        ("session.create", {}, "$.dir"),
        ("session.create", {"dir": "/", "env": {"A": 1}}, "$.env.A"),
        ("session.set", {}, "$.values"),
        ("log.follow", {"after": {"crc": "x"}}, "$.after.seq"),
        ("queue.rm", {"messages": "s1234567.1"}, "$.messages"),
    ],
)
async def test_parameters_are_taken_literally_or_refused(
    method: str, params: dict[str, object], says: str
) -> None:
    async with Server().serving() as server:
        await server.named("api")
        client = await server.client()
        where = {"session": "api"} if not method.startswith(("session.create", "queue.rm")) else {}
        error = await refusal(client, method, **where, **params)
        assert error.code == "INVALID"
        assert says in str(error)


async def test_an_unknown_method_is_refused_and_the_nearest_named() -> None:
    async with Server().serving() as server:
        client = await server.client()
        error = await refusal(client, "session.sned")
        assert error.error["code"] == -32601
        assert "did you mean session.send?" in str(error)


async def test_a_mistake_of_ours_is_told_logged_and_survived(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Server().serving() as server:
        client = await server.client()
        monkeypatch.setattr(server.registry, "listed", lambda: 1 / 0)
        assert (await refusal(client, "session.list")).code == "INTERNAL"
        assert "ZeroDivisionError" in caplog.text
        assert (await refusal(client, "session.show", session="nobody")).code == "NOT_FOUND"


# ---------------------------------------------------------------- size


async def test_a_long_line_is_refused_with_a_reason_and_others_are_answered_meanwhile() -> None:
    async with Server().serving() as server:
        big, other = await server.client(), await server.client()
        slowest = 0.0

        async def pour() -> None:
            for _ in range(20 * 256):
                await big.send(b"x" * 4096)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pour)
            for _ in range(50):
                began = trio.current_time()
                await other.call("session.list")
                slowest = max(slowest, trio.current_time() - began)
        assert (await big.line())["error"]["code"] == -32600
        with pytest.raises(EOFError):
            await big.line()
        assert slowest < 0.5


async def test_a_long_line_within_the_limit_is_taken() -> None:
    async with Server().serving() as server:
        await server.named("api")
        client = await server.client()
        text = "x" * (MAX_LINE // 8)
        receipt = await client.call("session.send", session="api", verb="inject", text=text)
        assert receipt["state"] == "pending"


async def test_a_receipt_counts_the_halves_of_characters_that_were_replaced() -> None:
    async with Server().serving() as server:
        await server.named("api")
        client = await server.client()
        sends = [request(1, "session.send", session="api", verb="inject", text="a\ud800b \udc00"),
                 request(2, "session.create", dir="/", text="\ud83d")]  # fmt: skip
        await client.send(b"".join(sends))
        got = {answer["id"]: answer["result"] for answer in [await client.line(), await client.line()]}
        assert (got[1]["replaced"], got[2]["receipt"]["replaced"]) == (2, 1)


# ---------------------------------------------------------------- order


async def test_pipelined_sends_are_ordered_as_they_came() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        sends = [
            request(i, "session.send", session="api", verb="inject", text=f"text {i}") for i in range(1, 51)
        ]
        await client.send(b"".join(sends))
        receipts: dict[int, str] = {}
        while len(receipts) < 50:
            answer = await client.line()
            receipts[answer["id"]] = answer["result"]["message"]
        texts = [m["text"] for m in session.queue_ls()["messages"]]
        assert texts == [f"text {i}" for i in range(1, 51)]
        assert [receipts[i] for i in range(1, 51)] == [f"{session.id}.{i}" for i in range(1, 51)]


async def test_pipelined_sends_to_a_session_that_must_be_loaded_are_ordered_too() -> None:
    server = Server()
    async with server.serving():
        session = await server.named("api")
    server = Server(server.disk)
    async with server.serving():
        client = await server.client()
        sends = [request(i, "session.send", session="api", verb="inject", text=f"{i}") for i in range(1, 21)]
        await client.send(b"".join(sends))
        for _ in range(20):
            await client.line()
        again = await server.registry.get(session.id)
        assert [m["text"] for m in again.queue_ls()["messages"]] == [str(i) for i in range(1, 21)]


async def test_a_wait_does_not_hold_up_what_comes_behind_it() -> None:
    async with Server().serving() as server:
        server.script = [call("gate"), say("done")]
        session = await server.named("api")
        client = await server.client()
        sent = await client.call("session.send", session="api", verb="followup", text="go")
        waiting = await client.post("session.wait", messages=[sent["message"]])
        assert (await client.call("session.show", session="api"))["state"] == "running"
        await server.gate.began.wait()
        server.gate.opened.set()
        assert (await client.take(waiting))["results"][0]["text"] == "done"
        await until(session, lambda: session.state.turn is None)


async def test_a_request_that_wants_no_answer_gets_none() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        note = {"jsonrpc": "2.0", "method": "session.send"}
        params = {"session": "api", "verb": "inject", "text": "quietly"}
        await client.send(json.dumps({**note, "params": params}).encode() + b"\n")
        await client.send(json.dumps({**note, "params": {}}).encode() + b"\n")
        listed = await client.call("queue.ls", session="api")
        await until(session, lambda: session.state.pending == 1)
        assert listed["type"] == "queue"


# ---------------------------------------------------------------- slow, finished, gone


async def test_a_client_that_does_not_read_is_not_served_further_and_dropped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with Server().serving() as server:
        for i in range(40):
            await server.named(f"session-{i}")
        client = await server.client()
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with trio.move_on_after(5):
            while True:
                await client.send(request(1, "session.list") * 50)
        other = await server.client()
        assert len((await other.call("session.list"))["sessions"]) == 40
        await trio.sleep(outbox.STALL_S * 2)
        with trio.fail_after(100), contextlib.suppress(ConnectionResetError):
            while await client.sock.recv(1 << 20):
                pass


async def test_a_client_that_asks_much_and_reads_nothing_costs_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Server().serving() as server:
        made, answer = 0, [Listed(SessionRow(id="s"), False, {"text": "x" * 1_000_000})]

        async def listed() -> list[Listed]:
            nonlocal made
            await trio.lowlevel.checkpoint()
            made += 1
            return answer

        monkeypatch.setattr(server.registry, "listed", listed)
        client = await server.client()
        await client.send(b"".join(request(i, "session.list") for i in range(1, 200)))
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert made <= 2
        for i in range(1, 200):
            await client.take(i)
        assert made == 199


async def test_a_client_that_only_finished_sending_gets_its_answer() -> None:
    async with Server().serving() as server:
        server.script = [call("gate"), say("done")]
        await server.named("api")
        client = await server.client()
        sent = await client.call("session.send", session="api", verb="followup", text="go")
        waiting = await client.post("session.wait", messages=[sent["message"]])
        client.sock.shutdown(socket.SHUT_WR)
        await server.gate.began.wait()
        server.gate.opened.set()
        assert (await client.take(waiting))["results"][0]["text"] == "done"
        with pytest.raises(EOFError):
            await client.line()


async def test_a_client_that_is_gone_cancels_its_waits() -> None:
    async with Server().serving() as server:
        server.script = [call("gate"), say("done")]
        session = await server.named("api")
        client = await server.client()
        sent = await client.call("session.send", session="api", verb="followup", text="go")
        ended = trio.Event()
        wait = session.wait_message

        async def watched(id: str, **options: Any) -> dict[str, Any]:
            try:
                return await wait(id, **options)
            finally:
                ended.set()

        session.wait_message = watched  # type: ignore[method-assign]
        await client.post("session.wait", messages=[sent["message"]])
        await trio.testing.wait_all_tasks_blocked()
        client.close()
        with trio.fail_after(5):
            await ended.wait()
        assert session.state.turn is not None


async def test_a_client_that_is_gone_does_not_cancel_what_it_sent() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        for i in range(20):
            client = server.connect()
            await client.send(HELLO + request(1, "session.send", session="api", verb="inject", text=f"{i}"))
            client.close()
        with trio.fail_after(5):
            await until(session, lambda: session.state.pending == 20)


async def test_a_hundred_clients_that_leave_without_reading_hurt_nobody() -> None:
    async with Server().serving() as server:
        for _ in range(100):
            client = server.connect()
            await client.send(HELLO + request(1, "session.list") * 20)
            client.close()
        other = await server.client()
        assert (await other.call("session.list"))["sessions"] == []


async def test_a_message_tied_to_its_client_ends_with_it() -> None:
    async with Server().serving() as server:
        server.script = [call("gate")]
        session = await server.named("api")
        client = await server.client()
        first = await client.call("session.send", session="api", verb="followup", text="go", tied=True)
        await server.gate.began.wait()
        second = await client.call("session.send", session="api", verb="followup", text="too", tied=True)
        client.close()
        await until(session, lambda: session.state.turn is None and not session.state.pending)
        assert session.message(first["message"])["outcome"] == "aborted"
        assert session.message(second["message"])["state"] == "removed"


async def test_a_client_too_many_may_ask_about_the_daemon_and_nothing_else() -> None:
    async with Server().serving() as server:
        client = await server.client(brief=True)
        assert (await client.call("daemon.status"))["type"] == "status"
        assert (await refusal(client, "session.list")).code == "UNAVAILABLE"
        await client.call("daemon.stop")
        assert server.process.stopped.is_set()


async def test_at_the_end_nothing_new_is_begun() -> None:
    async with Server().serving() as server:
        client = await server.client()
        server.room.closing.set()
        error = await refusal(client, "session.list")
        assert error.code == "UNAVAILABLE"
        assert error.error["data"]["retryable"] is True
