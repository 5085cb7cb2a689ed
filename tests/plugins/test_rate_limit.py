from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from dshd.errors import NotConfigured
from dshd.plugins import Defer, PreStep
from dshd.plugins.rate_limit import RateLimit


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
    await trio.sleep(answer.seconds or 0)
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


async def test_the_limit_is_the_daemon_s_whichever_sessions_ask(autojump_clock: MockClock) -> None:
    plugin = RateLimit({"per_minute": 2})
    assert [await passes(plugin, step(f"s{n}")) for n in range(5)] == [True, True, False, False, False]


async def test_who_waits_has_a_time_of_its_own_and_is_not_overtaken(autojump_clock: MockClock) -> None:
    plugin = RateLimit({"per_minute": 2})
    waits: list[float] = []
    for n in range(7):
        answer = await plugin.pre_step(step(f"s{n}"))
        waits.append((answer.seconds or 0) if isinstance(answer, Defer) else 0)
    assert waits == pytest.approx([0, 0, 60, 60, 120, 120, 180])
    await trio.sleep(60)
    newcomer = await plugin.pre_step(step("late"))
    assert isinstance(newcomer, Defer)
    assert newcomer.seconds == pytest.approx(120)
    assert await passes(plugin, step("s2"))
    assert await passes(plugin, step("s3"))


async def test_asked_too_soon_it_names_the_same_time_again(autojump_clock: MockClock) -> None:
    plugin = RateLimit({"per_minute": 1})
    assert await passes(plugin, step("s0"))
    for left in (60, 50, 40):
        answer = await plugin.pre_step(step("s1"))
        assert isinstance(answer, Defer)
        assert answer.seconds == pytest.approx(left)
        await trio.sleep(10)
    other = await plugin.pre_step(step("s2"))
    assert isinstance(other, Defer)
    assert other.seconds == pytest.approx(90)


async def test_a_promised_time_that_was_not_used_is_over(autojump_clock: MockClock) -> None:
    plugin = RateLimit({"per_minute": 1})
    for n in range(3):
        await plugin.pre_step(step(f"s{n}"))
    await trio.sleep(119)
    assert not await passes(plugin, step("s1")), "its minute was the one before"


async def test_no_minute_ever_holds_more_than_the_limit(autojump_clock: MockClock) -> None:
    plugin, passed = RateLimit({"per_minute": 3}), []

    async def one(n: int) -> None:
        await trio.sleep(n * 7 % 50)
        while isinstance(answer := await plugin.pre_step(step(f"s{n}")), Defer):  # noqa: ASYNC110
            await trio.sleep(max(1, (answer.seconds or 0)))
        passed.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for n in range(20):
            nursery.start_soon(one, n)
    passed.sort()
    assert all(later - sooner >= 59.9 for sooner, later in zip(passed, passed[3:], strict=False))
    assert passed[-1] - passed[0] < 7 * 60


async def test_what_is_over_is_forgotten(autojump_clock: MockClock) -> None:
    plugin = RateLimit({"per_minute": 5})
    for n in range(50):
        await plugin.pre_step(step(f"s{n}"))
    await trio.sleep(15 * 60)
    await plugin.pre_step(step("new"))
    assert (len(plugin._times), len(plugin._promised)) == (1, 0)


@pytest.mark.parametrize(
    "config", [{}, {"per_minute": 0}, {"per_minute": "5"}, {"per_minute": True}, {"per_minute": 1.5}]
)
def test_a_limit_that_is_none_is_an_error_with_its_path(config: dict[str, object]) -> None:
    with pytest.raises(
        NotConfigured, match=r"expected an integer of at least 1 @ \$\.plugins\.rate_limit\.per_minute"
    ):
        RateLimit(config)
