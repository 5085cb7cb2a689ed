"""Real processes for tests: who is still there, and a daemon to kill."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from dshd.spawn import kernel
from dshd.spawn.client import Completed, Spawner, is_alive

PATH = "/usr/local/bin:/usr/bin:/bin"


class Tree:
    """Runs shell commands whose processes can be found again, wherever they went."""

    def __init__(self, spawner: Spawner, cwd: Path) -> None:
        self.spawner = spawner
        self.cwd = cwd
        self.mark = secrets.token_hex(8)

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": PATH, "TREE": self.mark}

    async def sh(self, command: str, **options: Any) -> Completed:
        options = {"timeout": 20.0, "head": 4000, "tail": 4000, **options}
        with trio.fail_after(30):
            return await self.spawner.run(["bash", "-c", command], cwd=str(self.cwd), env=self.env, **options)

    def alive(self) -> set[int]:
        """Everything of this tree that is left, found by its environment."""
        return {pid for pid, value in kernel.marked("TREE").items() if value == self.mark and is_alive(pid)}

    async def started(self, count: int = 1) -> set[int]:
        """Wait until at least ``count`` processes of the tree are there."""
        await until(lambda: len(self.alive()) >= count)
        return self.alive()


async def until(condition: Callable[[], bool], within: float = 10.0) -> None:
    """Wait for something that nobody tells us about. Raises TooSlowError after ``within`` s."""
    with trio.fail_after(within):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


async def gone(pids: set[int], within: float) -> set[int]:
    """Who of ``pids`` is still alive after at most ``within`` s."""
    with contextlib.suppress(trio.TooSlowError):
        await until(lambda: not any(map(is_alive, pids)), within)
    return set(filter(is_alive, pids))


def below(pid: int) -> dict[str, list[int]]:
    """{name in ps: pids} of everything below a process, zombies left out."""
    found: dict[str, list[int]] = {}
    for child in kernel.descendants(pid):
        found.setdefault(name_of(child), []).append(child)
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


DAEMON = """
import sys
from dshd import spawn
handle = spawn.start()
import trio
from dshd.spawn.client import Spawner
from pathlib import Path

async def call(spawner, command):
    env = {"PATH": sys.argv[2], "TREE": sys.argv[3]}
    try:
        await spawner.run(["bash", "-c", command], cwd=sys.argv[1], env=env, timeout=None, head=9, tail=9)
    except Exception as error:
        print(type(error).__name__, error, flush=True)

async def main():
    spawner = Spawner(handle, state_dir=Path(sys.argv[1]))
    async with trio.open_nursery() as nursery:
        for command in sys.argv[4:]:
            nursery.start_soon(call, spawner, command)

trio.run(main)
"""


class Daemon:
    """A process of its own that runs commands through a spawner it forked, until it is killed."""

    def __init__(self, tree: Tree, *commands: str) -> None:
        argv = [sys.executable, "-c", DAEMON, str(tree.cwd), PATH, tree.mark, *commands]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE)

    @property
    def pid(self) -> int:
        return self.process.pid

    def everybody(self) -> set[int]:
        return set(kernel.descendants(self.pid))

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
