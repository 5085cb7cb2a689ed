"""Approvals as an editor sees them: listed, followed, answered on the same connection."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from dshd.tools.tool import Rule
from tests.control.rig import Client, Refused, Server
from tests.session.rig import call, followup, say, until


async def told(client: Client) -> tuple[str, dict[str, Any]]:
    """The next notification."""
    while "method" not in (line := await client.line()):
        pass
    return line["method"], line["params"]


async def test_an_editor_is_told_of_questions_and_answers_them() -> None:
    server = Server()
    server.rules = [Rule("ask", tool="quick")]
    async with server.serving():
        server.script = [call("quick:x"), say("ok"), call("quick:y"), say("ok")]
        first = await server.named("api", ask="wait")
        await followup(first, "go")
        await until(first, lambda: first.state.asks)
        editor = await server.client()
        following = await editor.call("approval.follow")
        assert [one["id"] for one in following["approvals"]] == ["a1"]
        other = await server.client()
        await other.call("approval.answer", id="a1", answer="allow", scope="once")
        method, answered = await told(editor)
        assert (method, answered["id"], answered["answer"]) == ("approval.answered", "a1", "allow")
        await until(first, lambda: first.quiet)
        await followup(first, "again")
        method, asked = await told(editor)
        assert (method, asked["id"], asked["answer"]) == ("approval.asked", "a2", None)
        listed = await editor.call("approval.list", session="api")
        assert [one["id"] for one in listed["approvals"]] == ["a2"]
        await editor.post("approval.answer", id="a2", answer="deny", reason="no")
        assert (await told(editor))[1]["reason"] == "no"


@pytest.mark.parametrize("method", ["approval.list", "approval.follow", "job.list"])
async def test_nobody_is_told_that_nothing_waits_before_all_that_works_is_open(method: str) -> None:
    server = Server()
    async with server.serving() as server:
        assert server.registry._opened.is_set()
        server.registry._opened = trio.Event()  # as if the start still went on
        client = await server.client()
        asked = await client.post(method)
        with trio.move_on_after(0.05) as early:
            await client.line()
        assert early.cancelled_caught
        server.registry._opened.set()
        await client.take(asked)


async def test_what_makes_no_sense_as_an_answer_is_refused() -> None:
    async with Server().serving() as server:
        client = await server.client()
        for params in (
            {"id": "a1", "answer": "maybe"},
            {"id": "a1", "answer": "deny", "scope": "always"},
            {"answer": "allow"},
            {"id": "a1", "answer": "allow", "scope": "ever"},
        ):
            with pytest.raises(Refused) as caught:
                await client.call("approval.answer", **params)
            assert caught.value.code == "INVALID"
        with pytest.raises(Refused) as caught:
            await client.call("approval.answer", id="a1", answer="allow")
        assert caught.value.code == "NOT_FOUND"
