"""Real processes for tests: who is still there, and a daemon to kill."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import trio

from dshd.spawn import kernel
from dshd.spawn import tree as proc
from dshd.spawn.client import Completed, Spawner, is_alive

PATH = "/usr/local/bin:/usr/bin:/bin"
# Leaves session, group, pipes, parent and environment behind; `Tree` finds it by its name all the same.
NAMELESS = 'setsid -f env -i bash -c "exec -a $TREE sleep 1000" >/dev/null 2>&1 </dev/null;'


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
        """Everything of this tree that is left, found by its environment or by its name (`$NAMELESS`)."""
        by_environment = {pid for pid, value in proc.marked("TREE").items() if value == self.mark}
        by_name = {pid for pid in proc.processes() if words_of(pid)[0] == self.mark}
        return {pid for pid in by_environment | by_name if is_alive(pid)}

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
    for child in proc.descendants(pid):
        found.setdefault(name_of(child), []).append(child)
    return found


def zombies_below(root: int) -> list[int]:
    """Zombies among all processes that have ``root`` as an ancestor."""
    return [
        pid
        for pid, process in proc.processes().items()
        if process.state == "Z" and root in proc.ancestors(pid) and name_of(pid) != ""
    ]


def words_of(pid: int) -> list[str]:
    """Its command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return [""]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


DAEMON = """
import signal, sys
from dshd import spawn
handle = spawn.start()
import trio
from dshd.spawn import client
from pathlib import Path

client.END_LIMIT = client.SPAWNER_LIMIT = 1.0

async def call(spawner, command):
    env = {"PATH": sys.argv[2], "TREE": sys.argv[3]}
    try:
        await spawner.run(["bash", "-c", command], cwd=sys.argv[1], env=env, timeout=None, head=9, tail=9)
    except Exception as error:
        print(type(error).__name__, error, flush=True)

async def main():
    spawner = client.Spawner(handle, state_dir=Path(sys.argv[1]))
    with trio.open_signal_receiver(signal.SIGCHLD, signal.SIGUSR1) as signals:
        async with trio.open_nursery() as nursery:
            for command in sys.argv[4:]:
                nursery.start_soon(call, spawner, command)
            async for number in signals:
                spawner.reap()
                if number == signal.SIGUSR1:
                    nursery.cancel_scope.cancel()
    print("cancelled", spawner.survivors(""), flush=True)
    await spawner.aclose()

trio.run(main)
"""


class Daemon:
    """A process of its own that runs commands through a spawner it forked, until it is killed."""

    def __init__(self, tree: Tree, *commands: str, before: str = "", within: Sequence[str] = ()) -> None:
        """``before``: shell code that runs first, in the same process; ``within``: a command to run it by."""
        argv = [sys.executable, "-c", DAEMON, str(tree.cwd), PATH, tree.mark, *commands]
        argv = [*within, "bash", "-c", f'{before} exec "$@"', "daemon", *argv]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE)

    @property
    def pid(self) -> int:
        return self.process.pid

    def everybody(self) -> set[int]:
        return set(proc.descendants(self.pid))

    def helpers(self) -> list[int]:
        """The spawner, and its supervisors."""
        names = below(self.pid)
        return names["dshd-spawn"] + names["dshd-call"]

    def send(self, *signums: int) -> None:
        """Signals to all helpers, without a pause."""
        helpers = self.helpers()
        for signum in (signal.SIGSTOP, *signums):
            kernel.send(helpers, signum)

    async def line(self) -> str:
        """The next line it prints: what a call raised, or that all were cancelled."""
        assert self.process.stdout is not None
        with trio.fail_after(15):
            line = await trio.to_thread.run_sync(self.process.stdout.readline, abandon_on_cancel=True)
        return line.decode().strip()

    async def cancel(self) -> str:
        """Have it cancel its calls; what it says then."""
        os.kill(self.pid, signal.SIGUSR1)
        return await self.line()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        proc.kill_below(self.pid)
        self.process.kill()
        self.process.communicate()
