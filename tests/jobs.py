"""Programs side by side: begun in their order, each as soon as a processor is free, none in another's way.

Each writes into a file of its own, which is read when it has ended: what is left behind by a program and
still holds the file open delays nobody.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import IO

import attrs


@attrs.frozen
class Job:
    """``argv[0]`` may be missing on this machine. ``tells``: its last line says how it went."""

    name: str
    argv: Sequence[str]
    tells: bool = False


@attrs.frozen
class Result:
    """``told`` is a few words. ``missing``: there is no such program here; that counts as good."""

    name: str
    good: bool
    told: str
    output: str = ""
    missing: bool = False


_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)")


def run(
    jobs: Sequence[Job], processors: int, told: Callable[[Result], object], limit_s: float
) -> Iterator[Result]:
    """The results, in the order in which they come; ``told`` is called with each. What takes longer than
    ``limit_s`` has failed."""
    with ThreadPoolExecutor(processors) as pool:
        for ended in as_completed([pool.submit(_run_one, job, limit_s) for job in jobs]):
            result = ended.result()
            told(result)
            yield result


def _run_one(job: Job, limit_s: float) -> Result:
    if shutil.which(job.argv[0]) is None:
        return Result(job.name, True, f"{job.argv[0]} is not installed here", missing=True)
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        status = _status(job.argv, file, limit_s)
        file.seek(0)
        output = file.read()
    took = f"{time.monotonic() - started:.1f} s"
    last = output.rstrip().rpartition("\n")[2]
    return Result(job.name, status == 0, last if job.tells and last else took, output)


def _status(argv: Sequence[str], file: IO[str], limit_s: float) -> int | None:
    """Its exit status; None if it took too long."""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT) as program:
        try:
            return program.wait(limit_s)
        except subprocess.TimeoutExpired:
            program.kill()
    return None


def counted(lines: Iterable[str]) -> str:
    """pytest's closing lines added up: ``4669 passed, 2 skipped``."""
    counts: Counter[str] = Counter()
    for line in lines:
        for count, word in _COUNT.findall(line.partition(" in ")[0]):
            counts[word] += int(count)
    return ", ".join(f"{count} {word}" for word, count in counts.items()) or "no tests"
