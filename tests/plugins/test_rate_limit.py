from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from dshd.errors import NotConfigured
from dshd.plugins import Defer, PreStep
from dshd.plugins.rate_limit import MOST_SESSIONS, RateLimit


def step(session: str = "s1", messages: int = 1) -> PreStep:
    return PreStep(session, 1, 1, tuple({"id": f"{session}.{n}"} for n in range(messages)))


async def passes(plugin: RateLimit, proposal: PreStep) -> bool:
    return await plugin.pre_step(proposal) is proposal


async def test_so_many_a_minute_pass_and_the_next_is_deferred_until_there_is_room(
    autojump_clock: MockClock,
) -> None:
    plugin = RateLimit({"per_minute": 2})
    assert await passes(plugin, step())
    await trio.sleep(10)
    assert await passes(plugin, step())
    await trio.sleep(10)
    answer = await plugin.pre_step(step())
    assert isinstance(answer, Defer)
    assert answer.seconds == pytest.approx(40)
    assert "2 a minute" in answer.reason


async def test_what_was_deferred_passes_when_its_time_has_come(autojump_clock: MockClock) -> None:
    plugin = RateLimit({"per_minute": 1})
    assert await passes(plugin, step())
    answer = await plugin.pre_step(step())
    assert isinstance(answer, Defer)
    await trio.sleep(answer.seconds)
    assert await passes(plugin, step())


async def test_a_batch_of_messages_is_one_step(autojump_clock: MockClock) -> None:
    plugin = RateLimit({"per_minute": 1})
    assert await passes(plugin, step(messages=10))


async def test_a_step_with_tool_results_alone_is_never_held_and_counts_for_nothing(
    autojump_clock: MockClock,
) -> None:
    plugin = RateLimit({"per_minute": 1})
    for _ in range(5):
        assert await passes(plugin, step(messages=0))
    assert await passes(plugin, step())
    assert await passes(plugin, step(messages=0))


async def test_sessions_do_not_take_each_others_room(autojump_clock: MockClock) -> None:
    plugin = RateLimit({"per_minute": 1})
    assert await passes(plugin, step("s1"))
    assert await passes(plugin, step("s2"))
    assert not await passes(plugin, step("s1"))


async def test_sessions_that_are_done_are_forgotten(autojump_clock: MockClock) -> None:
    plugin = RateLimit({"per_minute": 1})
    for n in range(MOST_SESSIONS + 1):
        await plugin.pre_step(step(f"s{n}"))
    await trio.sleep(61)
    await plugin.pre_step(step("new"))
    assert len(plugin._taken) == 1


@pytest.mark.parametrize(
    "config", [{}, {"per_minute": 0}, {"per_minute": "5"}, {"per_minute": True}, {"per_minute": 1.5}]
)
def test_a_limit_that_is_none_is_an_error_with_its_path(config: dict[str, object]) -> None:
    with pytest.raises(
        NotConfigured, match=r"expected an integer of at least 1 @ \$\.plugins\.rate_limit\.per_minute"
    ):
        RateLimit(config)
