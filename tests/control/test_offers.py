"""Sends without a task of their own: answered as any other, in order, and whatever becomes of the disk."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import trio
import trio.testing

from dshd.control.answering import MOST, Answering
from dshd.session.disk.ledger import DEADLINE_S
from dshd.session.fold.attachments import MOST_INLINE
from tests.control import rig
from tests.control.rig import Refused, Server

PLAIN: dict[str, Any] = {"verb": "inject"}
NOT_PLAIN: list[dict[str, Any]] = [
    {"verb": "inject", "key": "k"},
    {"verb": "inject", "content": []},
]


def line(number: int, text: str, **params: Any) -> bytes:
    how = {"session": "api", "text": text, **params}
    if "content" in how:
        how |= {"text": None, "content": [{"type": "text", "text": text}]}
        del how["text"]
    asked = {"jsonrpc": "2.0", "id": number, "method": "session.send", "params": how}
    return json.dumps(asked).encode() + b"\n"


async def test_a_plain_send_needs_no_task_and_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_task(*_: Any) -> None:
        raise NotImplementedError

    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        monkeypatch.setattr(Answering, "_do", no_task)
        with trio.fail_after(10):
            for ref in ("api", session.id):
                receipt = await client.call("session.send", session=ref, text="x", **PLAIN)
                assert (receipt["state"], receipt["phase"]) == ("pending", "idle")
    assert session.state.pending == 2


@pytest.mark.parametrize("other", NOT_PLAIN, ids=lambda how: sorted(how)[0])
async def test_plain_sends_and_others_are_ordered_as_they_came(other: dict[str, Any]) -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        kinds = itertools.cycle((PLAIN, other, PLAIN, PLAIN, other))
        sends = [
            line(n, f"{n}", **{**how, **({"key": f"k{n}"} if "key" in how else {})})
            for n, how in zip(range(1, 101), kinds, strict=False)
        ]
        await client.send(b"".join(sends))
        for _ in sends:
            assert "result" in await client.line()
        assert [m["text"] for m in session.queue_ls()["messages"]] == [str(n) for n in range(1, 101)]


async def test_what_comes_behind_a_send_with_an_attachment_stays_behind_it() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        texts = ["a", "b" * (MOST_INLINE + 1), "c", "d" * (MOST_INLINE + 1), "e"]
        await client.send(b"".join(line(n, text, **PLAIN) for n, text in enumerate(texts)))
        for _ in texts:
            assert "result" in await client.line()
        assert [m["text"][0] for m in session.queue_ls()["messages"]] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"text": " "}, "INVALID"),
        ({"text": "x", "supersede": True}, "INVALID"),
        ({"text": "x", "if_turn": 7}, "CONFLICT"),
    ],
)
async def test_a_plain_send_that_is_refused_is_told_so(params: dict[str, Any], code: str) -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        with pytest.raises(Refused) as refused:
            await client.call("session.send", session="api", **params)
        assert (refused.value.code, refused.value.error["data"]["outcome"]) == (code, "not-written")
        assert session.state.pending == 0


async def test_a_tool_of_another_session_is_refused() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client(kind="agent", session="s0000000")
        with pytest.raises(Refused) as refused:
            await client.call("session.send", session="api", text="x")
        assert refused.value.code == "DENIED"
        assert session.state.pending == 0


async def test_a_plain_send_to_a_closed_session_opens_it_again() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        await client.call("session.close", session="api")
        receipt = await client.call("session.send", session=session.id, text="x", **PLAIN)
        assert (receipt["reopened"], session.state.closed) == (True, False)


async def test_a_plain_send_is_answered_after_ten_seconds_though_the_disk_is_not(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig, "PATIENCE", 3 * DEADLINE_S)
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        free = trio.Event()
        server.disk.pause = free.wait
        before = trio.current_time()
        late = [await client.post("session.send", session="api", text=f"{n}", **PLAIN) for n in range(3)]
        for number in late:
            with pytest.raises(Refused) as refused:
                await client.take(number)
            assert (refused.value.code, refused.value.error["data"]["outcome"]) == ("STALLED", "unknown")
        assert trio.current_time() - before == pytest.approx(DEADLINE_S)
        free.set()
        assert (await client.call("session.send", session="api", text="3", **PLAIN))["position"] == 4
        assert [m["text"] for m in session.queue_ls()["messages"]] == ["0", "1", "2", "3"]


async def test_no_more_are_under_way_than_may_be() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        free = trio.Event()
        server.disk.pause = free.wait
        sends = [line(n, f"{n}", **PLAIN) for n in range(MOST + 20)]
        await client.send(b"".join(sends))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert session.ledger is not None
        assert len(session.ledger._unsettled()) == MOST
        free.set()
        for _ in sends:
            assert "result" in await client.line()


async def test_what_a_client_that_is_gone_has_sent_is_written() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        free = trio.Event()
        server.disk.pause = free.wait
        await client.post("session.send", session="api", text="x", **PLAIN)
        await trio.testing.wait_all_tasks_blocked(0.01)
        client.close()
        await trio.testing.wait_all_tasks_blocked(0.01)
        free.set()
        with trio.fail_after(10):
            await server.registry.written()
        assert session.state.pending == 1


async def test_the_end_waits_until_all_that_was_sent_is_answered() -> None:
    async with Server().serving() as server:
        await server.named("api")
        client = await server.client()
        free, written = trio.Event(), trio.Event()
        server.disk.pause = free.wait

        async def end() -> None:
            await server.registry.written()
            written.set()

        number = await client.post("session.send", session="api", text="x", **PLAIN)
        await trio.testing.wait_all_tasks_blocked(0.01)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert not written.is_set()
            free.set()
        assert (await client.take(number))["state"] == "pending"
