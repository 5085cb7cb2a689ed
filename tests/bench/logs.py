"""Long logs and many sessions: opening, listing, memory. ``python -m tests.bench --only logs``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from dshd.log.codec import Event, encode
from dshd.log.disk import RealDisk
from dshd.log.reader import read_lines
from dshd.session.disk import checkpoint, opening
from dshd.session.fold.events import Message, splice
from tests.bench.figures import Figure

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
ME = {"kind": "user", "via": "socket", "uid": 1000, "pid": 4711, "tty": "pts/3", "client": "dshctl"}
SYSTEM = {"kind": "system", "via": "driver"}
UNLOADED_S = 25.0
STEP_MS = 5  # from line to line


class Writer:
    """Lines of a log, as a session would have written them."""

    def __init__(self, number: int) -> None:
        self.id = "s" + "".join(ALPHABET[number >> 5 * i & 31] for i in range(7))
        self.seq, self.time, self.messages = -1, 1_796_040_000_000, 0

    def line(self, type: str, data: dict[str, Any], *, surface: Any = None, first: bool = True) -> bytes:
        self.seq += 1
        self.time += STEP_MS
        synced = self.seq - 1 if first and self.seq else None
        return encode(Event(self.seq, self.time, type, data, surface, synced=synced))

    def header(self, **more: Any) -> bytes:
        data = {"version": 1, "id": self.id, "created": self.time, "dir": "/tmp", "model": "instant", **more}
        return self.line("session/header", data)

    def sent(self, verb: str, text: str, queue: Any, wake: bool) -> tuple[Message, bytes]:
        self.messages += 1
        id = f"{self.id}.{self.messages}"
        message = Message(id, ({"type": "text", "text": text},), ME, self.time + STEP_MS, wake, verb)
        ops = [splice(queue, insert=[message])]
        return message, self.line("inbox/spliced", {"cause": "send", "by": ME, "ops": ops})

    def turn(self, number: int, steps: int = 5) -> Iterator[bytes]:
        """A followup that takes some steps with a tool, and an answer: about 50 KB."""
        message, line = self.sent("followup", f"do thing {number}: " + "x" * 200, "next-turn", True)
        yield line
        yield self.line("turn/start", {"turn": number})
        ops = [splice("next-turn", remove=[message.id])]
        claim = {"cause": "claim", "by": SYSTEM, "turn": number, "ops": ops}
        yield self.line("inbox/spliced", claim, first=False)
        for step in range(1, steps + 1):
            at = {"turn": number, "step": step}
            yield from self.step(at, message if step == 1 else None, step == steps)
        usage = {"input": 5000, "output": 1000}
        yield self.line("turn/end", {"turn": number, "reason": "completed", "usage": usage})

    def step(self, at: dict[str, Any], message: Message | None, last: bool) -> Iterator[bytes]:
        yield self.line("step/start", at)
        if message is not None:
            yield self.line("user/message", {**message.to_json(), **at}, surface="append", first=False)
        sent = {**at, "attempt": 1, "sha256": "0" * 64, "bytes": 100_000, "encoder": "openai/1"}
        yield self.line("request/sent", sent, first=False)
        delta = {"type": "text-delta", "index": 0, "text": "word " * 20}
        for _ in range(4):
            yield self.line("assistant/chunk", {**at, "chunks": [delta] * 8})
        call = {"type": "tool-call", "id": f"c{at['turn']}.{at['step']}", "name": "bash", "arguments": "{}"}
        content = [{"type": "text", "text": "word " * 300}, *([] if last else [call])]
        usage = {"input": 1000, "output": 200}
        answer = {**at, "content": content, "model": "instant", "usage": usage}
        yield self.line("assistant/message", answer, surface="append")
        if not last:
            called = {"call": call["id"], "name": "bash", "arguments": "{}"}
            yield self.line("tool/call", {**at, **called}, first=False)
            result = {"call": call["id"], "content": [{"type": "text", "text": "a line\n" * 250}]}
            yield self.line("tool/result", {**at, **result, "is_error": False}, surface="append")
        yield self.line("step/end", at)


def long_log(path: Path, size: int) -> None:
    writer, number = Writer(1), 0
    with path.open("wb") as file:
        file.write(writer.header(name="long"))
        while file.tell() < size:
            number += 1
            file.writelines(writer.turn(number))


def opening_a_long_log(size: int) -> Iterator[Figure]:
    """Against parsing its lines with orjson and nothing else."""
    name = f"{size >> 20} MB log"
    with tempfile.TemporaryDirectory(prefix="dshd-bench-") as top:
        path, disk = Path(top) / Writer(1).id / "log.jsonl", RealDisk()
        path.parent.mkdir(mode=0o700)
        long_log(path, size)
        floor = best(lambda: [orjson.loads(line) and None for _, line in read_lines(disk, path)])
        yield Figure(f"opening a {name}, no checkpoint", best(lambda: load(path)), "s", floor, 4)
        whole = load(path)
        assert whole.kept is not None
        snapshot = checkpoint.Snapshot.of(whole.state, whole.opened.size)
        began = time.perf_counter()
        checkpoint.write(whole.kept, snapshot)
        yield Figure(f"its first checkpoint ({name})", time.perf_counter() - began, "s", floor)
        quick = load(path)
        assert quick.kept is not None
        assert quick.kept.mark.seq == whole.state.seq
        yield Figure(f"opening a {name}, with it", best(lambda: load(path)), "s", floor, 0.6)
        old = f"{Writer(1).id}.3"
        yield Figure("a receipt of long ago", best(lambda: quick.state.receipts.get(old)) * 1e3, "ms")


def load(path: Path) -> opening.Loaded:
    found = opening.load(RealDisk(), path)
    assert found.broken is None, found.broken
    assert found.file is not None
    found.file.close()
    return found


def best(work: Callable[[], object], n: int = 3) -> float:
    taken = []
    for _ in range(n):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def fill(sessions: Path, count: int, pending: int = 0) -> list[str]:
    """So many sessions, each with this many facts that wait; their ids."""
    ids = []
    for number in range(count):
        writer = Writer(number)
        ids.append(writer.id)
        place = sessions / writer.id
        place.mkdir(mode=0o700)
        lines = [writer.header(name=f"n{number}")]
        for n in range(pending):
            lines.append(writer.sent("inject", f"fact {n} of {number}", "next-step", False)[1])
        (place / "log.jsonl").write_bytes(b"".join(lines))
    return ids


def many_sessions(bench: Any, count: int) -> Iterator[Figure]:
    """A daemon on a state directory with so many sessions."""
    from tests.bench.__main__ import CONFIG, rss
    from tests.e2e.harness import Home

    with Home(CONFIG.format(url=bench.url)) as home:
        (home.state / "sessions").mkdir(parents=True, mode=0o700)
        fill(home.state / "sessions", count)
        for how in ("never seen before", "known"):
            began = time.perf_counter()
            daemon = home.start()
            yield Figure(f"ready, {count} sessions, {how}", time.perf_counter() - began, "s", None, 1)
            with home.rpc() as rpc:
                rpc.call("session.list", all=True, cwd="/")
                yield Figure(f"the first ls, {count} sessions, {how}", time.perf_counter() - began, "s")
                listed = best(lambda: rpc.call("session.list", all=True, cwd="/"))
                yield Figure(f"ls, {count} sessions", listed * 1e3, "ms")
                shown = best(lambda: rpc.call("session.show", session=f"n{count // 2}", cwd="/"))
                yield Figure(f"one by its name, {count} sessions", shown * 1e3, "ms")
                yield Figure(f"RSS, {count} sessions", rss(rpc.hello["pid"]), "MB")
            daemon.terminate()
            daemon.wait(30)


def loaded_sessions(bench: Any, count: int, pending: int) -> Iterator[Figure]:
    from tests.bench.__main__ import CONFIG, rss
    from tests.e2e.harness import Home

    with Home(CONFIG.format(url=bench.url)) as home:
        (home.state / "sessions").mkdir(parents=True, mode=0o700)
        ids = fill(home.state / "sessions", count, pending)
        daemon = home.start()
        with home.rpc() as rpc:
            rpc.call("session.list", all=True, cwd="/")
            rpc.call("session.show", session=ids[0], cwd="/")
            before = rss(rpc.hello["pid"])
            for id in ids:
                rpc.call("session.show", session=id, cwd="/")
            each = (rss(rpc.hello["pid"]) - before) * 1e6 / count / 1024
            yield Figure(f"a loaded idle session, {pending} messages wait", each, "KiB", None, 64)
        if not bench.quick:
            time.sleep(UNLOADED_S)
            left = (rss(daemon.pid) - before) * 1e6 / count / 1024
            yield Figure(f"the same {UNLOADED_S:g} s later", left, "KiB", None, 64)
        daemon.terminate()
        daemon.wait(30)


def logs(bench: Any) -> Iterator[Figure]:
    yield from opening_a_long_log((20 if bench.quick else 100) << 20)
    yield from many_sessions(bench, 1000 if bench.quick else 10_000)
    yield from loaded_sessions(bench, 200 if bench.quick else 1000, 100)
