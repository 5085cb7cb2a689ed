"""The disk's threads: results, errors, limits, cancels, and their end."""

from __future__ import annotations

import errno
import os
import threading
from functools import partial

import pytest
import trio
import trio.testing

from dshd.log import threads
from dshd.log.threads import Threads


async def test_a_call_gives_what_it_returned_and_runs_in_another_thread() -> None:
    pool = Threads(2)
    with trio.fail_after(30):
        assert await pool.run(lambda: 5) == 5
        assert await pool.run(threading.current_thread) is not threading.main_thread()


async def test_one_after_the_other_share_a_thread() -> None:
    pool = Threads(4)
    with trio.fail_after(30):
        assert len({await pool.run(threading.get_ident) for _ in range(5)}) == 1


async def test_what_a_call_raises_is_raised_and_its_thread_serves_on() -> None:
    pool = Threads(1)

    def fails() -> None:
        raise OSError(errno.EIO, "as asked")

    with trio.fail_after(30):
        for _ in range(2):
            with pytest.raises(OSError, match="as asked"):
                await pool.run(fails)
        assert await pool.run(lambda: 5) == 5


async def test_no_more_than_so_many_run_at_once_and_the_others_follow() -> None:
    pool, gate, arrived = Threads(2), threading.Event(), threading.Semaphore(0)
    begun: list[int] = []

    def work(n: int) -> None:
        begun.append(n)
        arrived.release()
        gate.wait(30)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for n in range(5):
                nursery.start_soon(pool.run, partial(work, n))
                await trio.testing.wait_all_tasks_blocked()
            for _ in range(2):
                await trio.to_thread.run_sync(arrived.acquire)
            assert sorted(begun) == [0, 1], "threads that begin at once do so in any order"
            gate.set()
    assert sorted(begun) == [0, 1, 2, 3, 4]


async def test_a_cancel_waits_for_the_call_and_loses_nothing() -> None:
    pool, gate = Threads(1), threading.Event()
    with trio.fail_after(30), trio.CancelScope() as scope:
        scope.cancel()
        assert await pool.run(lambda: gate.set() or 7) == 7  # type: ignore[func-returns-value]
    assert gate.is_set()


async def test_a_cancel_while_a_call_runs_is_heard_at_the_next_checkpoint() -> None:
    pool, begun, gate = Threads(1), threading.Event(), threading.Event()
    results: list[bool] = []

    async def ask() -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            results.append(await pool.run(lambda: begun.set() or gate.wait(30)))  # type: ignore[func-returns-value]
            await trio.lowlevel.checkpoint()
            results.append(False)

    scopes: list[trio.CancelScope] = []
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            scopes[0].cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert results == []
            gate.set()
    assert results == [True]


async def test_an_idle_thread_ends_and_a_later_call_gets_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_S", 0.001)
    pool = Threads(1)
    with trio.fail_after(30):
        thread = await pool.run(threading.current_thread)
        await trio.to_thread.run_sync(thread.join)
        assert await pool.run(lambda: 5) == 5


async def test_calls_given_as_threads_end_are_all_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_S", 0.0)
    pool, seen = Threads(1), list[int]()
    with trio.fail_after(30):
        for n in range(300):
            await pool.run(partial(seen.append, n))
    assert seen == list(range(300))


async def test_without_a_descriptor_left_a_call_is_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "eventfd", none_left)
    with trio.fail_after(30):
        assert await Threads(1).run(threading.current_thread) is not threading.main_thread()


async def test_descriptors_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_S", 0.001)
    await ended(Threads(1))
    before = os.listdir("/proc/self/fd")
    for _ in range(5):
        await ended(Threads(1))
    assert len(os.listdir("/proc/self/fd")) <= len(before)


async def ended(pool: Threads) -> None:
    with trio.fail_after(30):
        thread = await pool.run(threading.current_thread)
        await trio.to_thread.run_sync(thread.join)
