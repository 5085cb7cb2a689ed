"""``python -m tests.bench [--quick] [--only NAME,...]``: JSON on stdout, a table on stderr.

Starts the real daemon in a home of its own and measures it from outside. Machines differ, so a figure is held
as a ratio to a floor measured in the same run, where there is one. Exit 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.bench import floors
from tests.bench.figures import Figure, in_turn, p50, quantile, timed
from tests.bench.logs import logs
from tests.bench.streams import streams
from tests.e2e.harness import PROGRAMS, Home

CONFIG = """
model = "instant"
[routes.instant]
adapter = "openai"
base_url = "{url}"
model = "instant"
context_window = 100000000
[sessions]
mode = "full"
[inbox]
max_pending = 10000000
[budget]
turn_steps = 0
turn_time = 0
"""


class Bench:
    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.url = ""

    def scale(self, n: int) -> int:
        return max(3, n // 5) if self.quick else n

    @contextlib.contextmanager
    def model(self) -> Iterator[None]:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.instant"], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout
        self.url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        try:
            yield
        finally:
            server.kill()
            server.wait()

    def ask_model(self, path: str) -> Any:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + path) as answer:
            return json.load(answer)

    @contextlib.contextmanager
    def daemon(self) -> Iterator[Home]:
        with Home(CONFIG.format(url=self.url)) as home:
            daemon = home.start()
            try:
                yield home
            finally:
                daemon.terminate()
                daemon.wait(30)

    # -- sends

    def sends(self) -> Iterator[Figure]:
        seconds = 1.0 if self.quick else 4.0
        with self.daemon() as home:
            sessions = [home.ok("new", "--name", f"bench-{n}") for n in range(17)]
            log = home.state / "sessions" / sessions[0] / "log.jsonl"
            before = log.stat().st_size
            rate, sent = self.rate(home, 1, seconds, sessions[:1])
            size = (log.stat().st_size - before) // sent
            floor = p50(floors.append_sync(home.state, size, self.scale(2000)))
            yield Figure("a followup, one client", 1000 / rate, "ms", floor * 1000, 3)
            many, _ = self.rate(home, 64, seconds, sessions[:1])
            yield Figure("followups, 64 clients, one session", many, "1/s", rate, 10, at_least=True)
            spread, _ = self.rate(home, 64, seconds, sessions[1:])
            yield Figure("followups, 64 clients, 16 sessions", spread, "1/s", rate, 2, at_least=True)

    def rate(self, home: Home, clients: int, seconds: float, sessions: list[str]) -> tuple[float, int]:
        """(sends a second, sends)"""
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.senders", home.socket, str(clients), str(seconds), *sessions],
            stdout=subprocess.PIPE,
            check=True,
        )
        result = json.loads(done.stdout)
        return result["sent"] / result["seconds"], int(result["sent"])

    # -- steps

    def steps(self) -> Iterator[Figure]:
        with self.daemon() as home:
            floor = p50(self.floor_steps(home.state))
            with home.rpc() as rpc:
                pid = rpc.hello["pid"]
            self.turn(home, "full", 3)
            before = cpu(pid)
            taken = self.turn(home, "full", 1000)
            spent = (cpu(pid) - before) / len(taken)
            yield Figure("a step, p50", p50(taken) * 1000, "ms", floor * 1000, 9 / 5.3)
            yield Figure("a step, p95", quantile(taken, 0.95) * 1000, "ms", floor * 1000, 14 / 5.3)
            early, late = p50(taken[4:24]), p50(taken[-40:])
            yield Figure(f"step {len(taken)} against step 10", late * 1000, "ms", early * 1000, 1.5)
            yield Figure("CPU time of the daemon for a step", spent * 1000, "ms")
            boxed = self.turn(home, "workspace", self.scale(200))
            yield Figure("a step in the sandbox, p50", p50(boxed) * 1000, "ms", floor * 1000)

    def floor_steps(self, directory: Path) -> list[float]:
        self.ask_model("/plan/0")
        return floors.steps(self.url, directory, self.scale(200))

    def turn(self, home: Home, mode: str, n: int) -> list[float]:
        """Seconds of each of ``n`` steps, by when the model got their requests."""
        self.ask_model(f"/plan/{n}")
        home.ok("run", "--mode", mode, "go", timeout=600)
        times = self.ask_model("/times")
        assert len(times) == n + 1, f"{len(times)} requests for {n} steps"
        return [(after - before) / 1e9 for before, after in itertools.pairwise(times)]

    # -- the command line

    def commands(self) -> Iterator[Figure]:
        with self.daemon() as home:
            self.ask_model("/plan/0")
            home.ok("run", "warm up")
            python = [sys.executable, "-c", "import click"]
            took = in_turn(
                {
                    "click": lambda: subprocess.run(python, env=home.env, check=True),
                    "ping": lambda: self.program(home, "ping"),
                    "help": lambda: self.program(home, "--help"),
                    "run": lambda: self.program(home, "run", "hello"),
                },
                self.scale(25),
            )
            yield Figure("dshctl ping", took["ping"] * 1000, "ms", took["click"] * 1000, 1.5)
            yield Figure("dshctl --help", took["help"] * 1000, "ms", took["click"] * 1000, 1.5)
            yield Figure("dshctl run, warm", took["run"] * 1000, "ms", None, 150)
            yield Figure("the same over an open connection", self.prompt(home) * 1000, "ms", None, 10)

    def program(self, home: Home, *args: str) -> None:
        subprocess.run(
            [PROGRAMS / "dshctl", *args],
            env=home.env,
            cwd=home.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )

    def prompt(self, home: Home) -> float:
        session = home.ok("new", "--name", "open")
        with home.rpc() as rpc:

            def once() -> None:
                sent = rpc.call("session.send", session=session, verb="followup", text="hello")
                rpc.result(sent["message"])

            timed(once, 3)
            return p50(timed(once, self.scale(50)))

    # -- the daemon

    def ready(self) -> Iterator[Figure]:
        yield Figure("ready", p50([self.start_once(0) for _ in range(3)]), "s", None, 0.4)
        if not self.quick:
            yield Figure("ready, 10,000 sessions on disk", self.start_once(10_000), "s", None, 1)
        with self.daemon() as home:
            time.sleep(1)
            with home.rpc() as rpc:
                pid = rpc.hello["pid"]
            yield Figure("idle RSS of the daemon", rss(pid), "MB", None, 60)
            yield Figure("idle memory with its spawner (PSS)", sum(map(pss, home.processes())), "MB")
            before, span = cpu(pid), 2 if self.quick else 10
            time.sleep(span)
            yield Figure("idle CPU", (cpu(pid) - before) / span * 100, "%", None, 0.05)

    def start_once(self, sessions: int) -> float:
        with Home(CONFIG.format(url=self.url)) as home:
            if sessions:
                self.fill(home, sessions)
            started = time.perf_counter()
            daemon = subprocess.Popen(
                [PROGRAMS / "dshd"], env=home.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while not home.answers():
                assert daemon.poll() is None
                time.sleep(0.002)
            taken = time.perf_counter() - started
            daemon.terminate()
            daemon.wait(30)
            return taken

    def fill(self, home: Home, n: int) -> None:
        """Copies of one real, idle session."""
        daemon = home.start()
        home.ok("new", "--name", "one")
        daemon.terminate()
        daemon.wait(30)
        (one,) = home.sessions()
        log = (home.state / "sessions" / one / "log.jsonl").read_bytes()
        from dshd.log.codec import decode, encode

        events = [decode(line + b"\n") for line in log.splitlines()]
        from attrs import evolve

        for number in range(n):
            new = "s" + "".join("0123456789abcdefghjkmnpqrstvwxyz"[number >> 5 * i & 31] for i in range(7))
            place = home.state / "sessions" / new
            place.mkdir(mode=0o700)
            data = {**events[0].data, "id": new, "name": f"n{number}"}
            lines = [encode(evolve(events[0], data=data)), *map(encode, events[1:])]
            (place / "log.jsonl").write_bytes(b"".join(lines))


def rss(pid: int) -> float:
    """MB"""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def pss(pid: int) -> float:
    """MB, shared pages counted once"""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def cpu(pid: int) -> float:
    """Seconds used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="in under a minute, less exact")
    parser.add_argument("--only", default="sends,steps,commands,streams,ready,logs", help="which, by comma")
    args = parser.parse_args()
    bench = Bench(args.quick)
    parts: dict[str, Callable[[], Iterator[Figure]]] = {
        "sends": bench.sends,
        "steps": bench.steps,
        "commands": bench.commands,
        "ready": bench.ready,
        "logs": lambda: logs(bench),
        "streams": lambda: streams(bench),
    }
    figures = []
    with bench.model():
        for name in args.only.split(","):
            for figure in parts[name]():
                figures.append(figure)
                print(figure, file=sys.stderr, flush=True)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    print(json.dumps({"machine": machine, "quick": args.quick, "figures": [f.to_json() for f in figures]}))
    return 1 if any(figure.met is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
