"""Answers that have to fit a schema: one step to mend them, and an error if that mends nothing."""

from __future__ import annotations

from typing import Any

import pytest

from dshd import wire
from dshd.driver.plugged import shape
from dshd.errors import Invalid
from dshd.session.owner.session import Session
from tests.session.invariants import check_log, quiet
from tests.session.rig import ME, World, followup, say, settled

SCHEMA: dict[str, Any] = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


async def run(world: World, *answers: str, **more: Any) -> tuple[Session, dict[str, Any]]:
    world.script = [say(answer) for answer in answers]
    params = wire.CreateParams(dir="/", run=True, text="work", schema=SCHEMA, **more)
    session, receipt = await world.registry.create(params, ME)
    assert receipt is not None
    return session, await settled(session, receipt["message"])


def told(world: World, session: Session) -> list[str]:
    return [
        e.data["content"][0]["text"] for e in world.events(session)
        if e.type == "user/message" and e.data["source"] == shape.SOURCE
    ]  # fmt: skip


async def test_an_answer_that_fits_is_the_answer_and_the_model_was_told_the_schema() -> None:
    async with World().run() as world:
        session, result = await run(world, '{"n": 5}')
        assert (result["outcome"], result["text"], result["steps"]) == ("completed", '{"n": 5}', 1)
        (header,) = [e.data for e in world.events(session) if e.type == "request/header"]
        assert '"required":["n"]' in header["system"]
        assert told(world, session) == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ('{"n": "x"}', '$.n: expected integer, got string "x"'),
        ("five", "it is not JSON alone"),
        ('```\n{"n": 5}\n```', "it is not JSON alone"),
        ('{"n": NaN}', "NaN is no JSON number"),
        ("{}", '"n" is missing'),
    ],
)
async def test_one_that_does_not_fit_is_asked_for_again_in_one_more_step(answer: str, says: str) -> None:
    async with World().run() as world:
        session, result = await run(world, answer, '{"n": 5}')
        assert (result["outcome"], result["text"], result["steps"]) == ("completed", '{"n": 5}', 2)
        assert says in told(world, session)[0]
        check_log(world.events(session))


async def test_one_that_does_not_fit_then_either_is_an_error_that_a_retry_can_mend() -> None:
    async with World().run() as world:
        session, result = await run(world, "no", "no", mode="full")
        assert (result["outcome"], result["steps"]) == ("error", 2)
        assert result["error"]["code"] == "MALFORMED_RESPONSE"
        assert "does not fit the schema" in result["error"]["message"]
        world.script = [say("no"), say('{"n": 7}')]
        await session.retry(wire.RetryParams(), ME)
        assert (await settled(session, result["message"]))["text"] == '{"n": 7}'
        check_log(world.events(session))


async def test_a_fork_may_answer_as_it_likes() -> None:
    async with World().run() as world:
        session, _ = await run(world, '{"n": 5}')
        made = await world.registry.fork(session, wire.ForkParams(), ME)
        fork = await world.registry.get(made["session"])
        world.script = [say("in words")]
        sent = await followup(fork, "why?")
        assert (await settled(fork, sent["message"]))["steps"] == 1
        await quiet(world, fork)


@pytest.mark.parametrize(
    ("schema", "says"),
    [({"type": "nothing"}, "nothing"), ({"items": {"$ref": "http://example.org/s"}}, "nothing is fetched")],
)
async def test_what_is_no_schema_makes_no_session(schema: dict[str, Any], says: str) -> None:
    async with World().run() as world:
        with pytest.raises(Invalid, match=says):
            await world.registry.create(wire.CreateParams(dir="/", run=True, text="x", schema=schema), ME)
        assert world.store.ids() == []
