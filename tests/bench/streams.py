"""Followers and streams: ``python -m tests.bench --only streams``."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.bench.figures import Figure, p50, quantile
from tests.e2e.harness import Home

FOLLOWERS = 100


@contextlib.contextmanager
def program(*args: object) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", *map(str, args)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


@contextlib.contextmanager
def following(home: Home, session: str, count: int, stopped: int = 0) -> Iterator[subprocess.Popen[str]]:
    with program("tests.bench.readers", home.socket, count, session, stopped) as readers:
        assert line(readers) == "ready\n"
        yield readers


def streams(bench: Any) -> Iterator[Figure]:
    yield from _paced(bench, 1000)
    yield from _paced(bench, 10_000)
    yield from _followed(bench)


def _paced(bench: Any, rate: int) -> Iterator[Figure]:
    """How old chunks are when they reach a follower; how long after the last one the turn has ended."""
    from tests.bench.__main__ import CONFIG

    seconds = 2 if bench.quick else 10
    with program("tests.bench.pace", rate, seconds) as model:
        url = f"http://127.0.0.1:{int(line(model))}/v1"
        with Home(CONFIG.format(url=url)) as home:
            home.start()
            session = home.ok("new", "--name", "paced")
            with following(home, session, 1) as readers:
                _send(home, session)
                seen = json.loads(line(readers))
                assert seen["latencies"], "nothing was streamed"
                last = int(line(model))
    assert seen["in_order"]
    assert len(seen["latencies"]) > rate * seconds * 0.9
    late = quantile(seen["latencies"], 0.99) * 1000
    yield Figure(f"chunk to follower, p99, {rate}/s", late, "ms", None, 5 if rate == 1000 else None)
    behind = max(0.0, (seen["ended"] - last) / 1e6)
    yield Figure(f"the end behind the last of {rate}/s", behind, "ms", None, 100)


def _followed(bench: Any) -> Iterator[Figure]:
    """A turn's steps with a hundred followers, and one more that reads nothing, against without."""
    from tests.bench.__main__ import CONFIG

    steps = bench.scale(200)
    with Home(CONFIG.format(url=bench.url)) as home:
        home.start()
        session = home.ok("new", "--name", "followed")
        alone = _steps(bench, home, session, steps)
        with following(home, session, FOLLOWERS) as readers:
            watched = _steps(bench, home, session, steps)
            seen = json.loads(line(readers))
        assert seen["in_order"], "a follower missed an event"
        yield Figure(f"a step with {FOLLOWERS} followers", watched * 1e3, "ms", alone * 1e3, 1.2)
        with following(home, session, 1, stopped=1) as readers:
            stopped = _steps(bench, home, session, steps)
        yield Figure("a step with a stopped follower", stopped * 1e3, "ms", alone * 1e3, 1.2)


def _steps(bench: Any, home: Home, session: str, steps: int) -> float:
    """The median of a turn's steps, in s."""
    bench.ask_model(f"/plan/{steps}")
    with home.rpc(timeout=600) as rpc:
        rpc.result(_send(home, session))
    times = bench.ask_model("/times")
    assert len(times) == steps + 1
    return p50([(after - before) / 1e9 for before, after in itertools.pairwise(times)])


def _send(home: Home, session: str) -> str:
    """The message's id."""
    with home.rpc() as rpc:
        return str(rpc.call("session.send", session=session, verb="followup", text="go")["message"])
