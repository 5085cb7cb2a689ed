"""What the log costs over its floor: ``python -m tests.log.bench [DIR]`` prints JSON.

Times in µs. The floor is a bare write + fdatasync of the same bytes on the same disk; `ratio` is
what one append of one event through codec, thread and checks costs over it, `batch` the same for
64 events that share a sync, per event.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

import trio

from dshd.log.codec import Event, decode, encode
from dshd.log.disk import RealDisk
from dshd.log.recovery import open_log
from dshd.log.threads import Threads
from dshd.log.writer import LogWriter
from tests.log.kit import KNOWN, header, note

T = TypeVar("T")
TEXT = "a message of the usual length, " * 8


def floor(path: Path, data: bytes, count: int) -> list[float]:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        return [timed(lambda: bare(fd, data)) for _ in range(count)]
    finally:
        os.close(fd)


def bare(fd: int, data: bytes) -> None:
    os.write(fd, data)
    os.fdatasync(fd)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e6


async def appends(writer: LogWriter, events: int, count: int) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await append(writer, events)
        times.append((time.perf_counter() - began) * 1e6)
    return times


async def append(writer: LogWriter, events: int) -> None:
    last = writer.next_seq + events - 1
    first = note(writer.next_seq, TEXT, synced=writer.synced)
    batch = [first, *(note(seq, TEXT) for seq in range(first.seq + 1, last + 1))]
    await writer.append(b"".join(map(encode, batch)), last, sync=True)


async def measure(directory: Path, count: int = 500) -> dict[str, float]:
    """All numbers, measured in a directory of its own."""
    path = directory / "log.jsonl"
    path.write_bytes(encode(header()))
    alone = floor(directory / "bare", encode(note(1, TEXT)), count)
    await trio.lowlevel.checkpoint()
    file, found = open_log(RealDisk(), path, KNOWN)
    assert file is not None
    writer = LogWriter(
        file, next_seq=found.next_seq, synced=found.synced, size=found.size, threads=Threads(32)
    )
    one = await appends(writer, 1, count)
    many = await appends(writer, 64, count // 10)
    writer.close()
    return {
        "floor": median(alone),
        "append": median(one),
        "ratio": median(one) / median(alone),
        "batch": median(many) / 64,
        **codec_times(),
        **opening(directory),
    }


def codec_times(count: int = 20_000) -> dict[str, float]:
    event = Event(7, 1, "note", {"turn": 1, "step": 2, "text": TEXT}, synced=6)
    line = encode(event)
    return {"encode": per(encode, event, count), "decode": per(decode, line, count)}


def per(work: Callable[[T], object], value: T, count: int) -> float:
    return timed(lambda: [work(value) for _ in range(count)]) / count


def opening(directory: Path, count: int = 100_000) -> dict[str, float]:
    path = directory / "long.jsonl"
    with path.open("wb") as out:
        out.write(encode(header()))
        out.writelines(encode(note(seq, TEXT, synced=seq - 1)) for seq in range(1, count))

    def work() -> None:
        file, _found = open_log(RealDisk(), path, KNOWN, each=lambda _event: None)
        assert file is not None
        file.close()

    return {"open_ms": timed(work) / 1000, "open_mb": path.stat().st_size / 1e6}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else "/var/tmp") as place:
        numbers = trio.run(measure, Path(place))
    print(json.dumps({name: round(value, 2) for name, value in numbers.items()}, indent=1))
