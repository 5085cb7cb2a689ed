"""What the machine itself can do: the floors that figures are held against, measured in the same run."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import httpx
import trio

from tests.bench.figures import timed


def append_sync(directory: Path, size: int, n: int) -> list[float]:
    """Seconds of each append of ``size`` bytes with its ``fdatasync``, in a file of this directory."""
    data = b"x" * (size - 1) + b"\n"
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        fd = os.open(file.name, os.O_WRONLY | os.O_APPEND)

        def once() -> None:
            os.write(fd, data)
            os.fdatasync(fd)

        try:
            timed(once, 20)
            return timed(once, n)
        finally:
            os.close(fd)


def steps(url: str, directory: Path, n: int) -> list[float]:
    """Seconds of each step of the barest agent there is: a request, ``bash -c true``, two syncs."""
    return trio.run(_steps, url, directory, n)


async def _steps(url: str, directory: Path, n: int) -> list[float]:
    taken = []
    body = {"model": "instant", "messages": [{"role": "user", "content": "x" * 2000}], "stream": True}
    with tempfile.TemporaryFile(dir=directory) as file:
        async with httpx.AsyncClient() as client:
            for _ in range(n + 5):
                started = time.perf_counter()
                response = await client.post(f"{url}/chat/completions", json=body)
                _sync(file.fileno(), response.content)
                await trio.run_process(["bash", "-c", "true"], capture_stdout=True)
                _sync(file.fileno(), b"done\n")
                taken.append(time.perf_counter() - started)
    return taken[5:]


def _sync(fd: int, data: bytes) -> None:
    os.write(fd, data)
    os.fdatasync(fd)
