"""Whoever is killed, nothing is left, and the daemon goes on if it lives."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from dshd.spawn import kernel
from dshd.spawn import tree as proc
from dshd.spawn.client import Spawner, SpawnerLost, SpawnFailed, completed, is_alive, kill_orphans
from tests.spawn.helpers import NAMELESS, Daemon, Tree, below, gone, name_of, until, words_of, zombies_below

STUBBORN = (
    NAMELESS + "trap '' TERM; (trap '' TERM; setsid bash -c \"trap '' TERM; while :; do sleep 0.1; done\" &);"
    "setsid sleep 1000 & while :; do sleep 0.1; done"
)
WITHIN = 2.0  # s


@pytest.fixture
def daemon(tree: Tree) -> Iterator[Daemon]:
    daemon = Daemon(tree, STUBBORN, "sleep 1000 & sleep 1000")
    yield daemon
    daemon.close()


async def test_when_the_daemon_is_killed_everything_below_it_ends(daemon: Daemon, tree: Tree) -> None:
    await tree.started(7)
    everybody = daemon.everybody()
    assert len(everybody) >= 10  # a spawner, two supervisors and a spare besides
    daemon.kill()
    assert await gone(everybody | tree.alive(), WITHIN) == set()
    assert tree.alive() == set()


async def test_a_stopped_daemon_that_is_killed_leaves_nothing_either(daemon: Daemon, tree: Tree) -> None:
    await tree.started(7)
    everybody = daemon.everybody()
    os.kill(daemon.pid, signal.SIGSTOP)
    daemon.kill()
    assert await gone(everybody, WITHIN) == set()


async def test_daemon_and_spawner_killed_together_leave_nothing(daemon: Daemon, tree: Tree) -> None:
    await tree.started(7)
    everybody = daemon.everybody()
    (spawner,) = below(daemon.pid)["dshd-spawn"]
    os.kill(spawner, signal.SIGKILL)
    daemon.kill()
    assert await gone(everybody, WITHIN) == set()


async def test_daemon_and_supervisors_killed_together_leave_nothing(daemon: Daemon, tree: Tree) -> None:
    await tree.started(7)
    everybody = daemon.everybody()
    for supervisor in below(daemon.pid)["dshd-call"]:
        os.kill(supervisor, signal.SIGKILL)
    daemon.kill()
    assert await gone(everybody, WITHIN) == set()


async def test_what_is_left_when_all_are_killed_at_once_is_found_at_the_next_start(
    daemon: Daemon, tree: Tree
) -> None:
    await tree.started(7)
    os.kill(daemon.pid, signal.SIGSTOP)
    daemon.send(signal.SIGKILL)
    daemon.kill()
    assert len(tree.alive()) >= 7, "this test needs something to be left"
    ended = await trio.to_thread.run_sync(kill_orphans, tree.cwd)
    assert ended
    assert tree.alive() == set()


async def test_helpers_that_were_stopped_when_the_daemon_died_are_ended_at_the_next_start(
    daemon: Daemon, tree: Tree
) -> None:
    await tree.started(7)
    everybody = daemon.everybody()
    daemon.send()
    daemon.kill()
    await trio.to_thread.run_sync(kill_orphans, tree.cwd)
    assert await gone(everybody | tree.alive(), WITHIN) == set()


async def test_a_living_daemon_ends_what_killed_helpers_left_before_it_says_so(
    daemon: Daemon, tree: Tree
) -> None:
    await tree.started(7)
    daemon.send(signal.SIGKILL)
    said = {await daemon.line(), await daemon.line()}
    assert tree.alive() == set()
    assert said == {"SpawnerLost the process that watches over tools died; what it ran was ended"}
    await until(lambda: not zombies_below(daemon.pid), 3)
    assert await daemon.cancel() == "cancelled []"


async def test_a_living_daemon_whose_helpers_were_killed_leaves_other_processes_alone(tmp_path: Path) -> None:
    """Those that its own tools did not start: there before it (exec keeps children), in any session."""
    tree = Tree(Spawner.__new__(Spawner), tmp_path)
    daemon = Daemon(tree, "sleep 1000", before="setsid sleep 30 >/dev/null & sleep 30 >/dev/null &")
    try:
        await tree.started(1)
        bystanders = set(below(daemon.pid)["sleep"]) - tree.alive()
        daemon.send(signal.SIGKILL)
        await daemon.line()
        assert tree.alive() == set()
        assert len(bystanders) == 2
        assert all(map(is_alive, bystanders))
    finally:
        daemon.close()


async def test_process_1_of_a_container_waits_for_everybody_and_ends_only_its_own(tree: Tree) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    mounts = ["--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    container = ["bwrap", *mounts, "--unshare-pid", "--as-pid-1"]
    stranger = "(setsid bash -c 'sleep 0.5; exec -a stranger sleep 30' >/dev/null 2>&1 &);"
    daemon = Daemon(tree, f"{NAMELESS} sleep 1000", before=stranger, within=container)
    try:
        await tree.started(2)
        await until(lambda: bool(strangers(daemon)))
        daemon.send(signal.SIGKILL)
        await daemon.line()
        assert tree.alive() == set()
        assert strangers(daemon)
        kernel.send(strangers(daemon), signal.SIGKILL)
        await until(lambda: not strangers(daemon), 3)
        await until(lambda: not zombies_below(daemon.pid), 3)
    finally:
        daemon.close()


def strangers(daemon: Daemon) -> list[int]:
    return [pid for pid in proc.descendants(daemon.pid) if words_of(pid)[0] == "stranger"]


async def test_a_cancel_while_all_helpers_are_stopped_ends_everything_before_it_goes_on(
    daemon: Daemon, tree: Tree
) -> None:
    await tree.started(7)
    daemon.send()
    assert await daemon.cancel() == "cancelled []"
    assert tree.alive() == set()


async def test_helpers_that_are_stopped_again_and_again_are_done_without(tree: Tree) -> None:
    stops = "S=$(cut -d' ' -f4 /proc/$PPID/stat); while :; do kill -STOP $PPID $S; done &"
    daemon = Daemon(tree, f"{NAMELESS} {stops} {stops} sleep 1000", "sleep 1000")
    try:
        await tree.started(5)
        assert await daemon.cancel() == "cancelled []"
        assert tree.alive() == set()
    finally:
        daemon.close()


def test_who_could_not_be_ended_is_not_said_to_have_been() -> None:
    done = {"cause": "orphaned", "survivors": [4711]}
    with pytest.raises(SpawnFailed, match="not all that it ran could be ended") as failed:
        completed(({"done": done}, []), None)
    assert failed.value.survivors == [4711]


async def test_what_this_daemon_runs_is_no_orphan(spawner: Spawner, tmp_path: Path) -> None:
    tree = Tree(Spawner(spawner.handle, state_dir=tmp_path), tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tree.sh, "sleep 1000 & sleep 1000")
        before = await tree.started(2)
        assert await trio.to_thread.run_sync(kill_orphans, tmp_path) == []
        assert all(map(is_alive, before))
        nursery.cancel_scope.cancel()


async def test_another_state_directory_s_processes_are_left_alone(daemon: Daemon, tree: Tree) -> None:
    await tree.started(6)
    before = set(below(daemon.pid)["dshd-call"])
    assert await trio.to_thread.run_sync(kill_orphans, tree.cwd / "elsewhere") == []
    assert await gone(before, 0.2) == before
    assert len(tree.alive()) >= 5


async def test_terminal_signals_to_the_helpers_change_nothing(daemon: Daemon, tree: Tree) -> None:
    await tree.started(6)
    names = below(daemon.pid)
    helpers = set(names["dshd-spawn"] + names["dshd-call"])
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        for pid in helpers:
            os.kill(pid, signum)
    assert await gone(helpers, 0.3) == helpers


class Failing:
    """Runs one command in the background and keeps what it failed with."""

    def __init__(self, tree: Tree, command: str) -> None:
        self.tree = tree
        self.command = command
        self.error: SpawnFailed | None = None
        self.ended = trio.Event()

    async def __call__(self) -> None:
        try:
            await self.tree.sh(self.command)
        except SpawnFailed as error:
            self.error = error
        self.ended.set()


async def test_when_the_spawner_is_killed_calls_fail_clearly_and_the_next_one_works(tree: Tree) -> None:
    call = Failing(tree, STUBBORN)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await tree.started(4)
        os.kill(tree.spawner.pid, signal.SIGKILL)
        with trio.fail_after(20):
            await call.ended.wait()
    assert str(call.error) == "the process that watches over tools died; what it ran was ended"
    assert tree.alive() == set()
    assert (await tree.sh("echo fine")).head == b"fine\n"
    assert tree.spawner.is_below_tool(tree.spawner.pid)


async def test_a_killed_spawner_is_replaced_for_many_calls_at_once(tree: Tree) -> None:
    os.kill(tree.spawner.pid, signal.SIGKILL)
    heads: list[bytes] = []

    async def one() -> None:
        heads.append((await tree.sh("echo fine")).head)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(one)
    assert heads == [b"fine\n"] * 10


async def test_while_no_other_spawner_can_be_started_calls_say_so_and_then_go_on(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise PermissionError(13, "Permission denied")

    call = Failing(tree, "sleep 1000")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await tree.started(1)
        with monkeypatch.context() as patch:
            patch.setattr("dshd.spawn.pool.launch", none)
            kernel.send([*tree.spawner.running, tree.spawner.pid], signal.SIGKILL)
            with trio.fail_after(20):
                await call.ended.wait()
            for _ in range(2):
                with pytest.raises(SpawnFailed, match="no other spawner could be started: Permission denied"):
                    await tree.sh("echo fine")
    assert isinstance(call.error, SpawnerLost)
    assert (await tree.sh("echo fine")).head == b"fine\n"
    kernel.send(tree.alive(), signal.SIGKILL)


async def test_a_spawner_that_hangs_is_replaced(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dshd.spawn.pool.START_LIMIT", 0.3)
    os.kill(tree.spawner.pid, signal.SIGSTOP)
    with trio.fail_after(20):
        assert (await tree.sh("echo fine")).head == b"fine\n"


async def test_when_a_supervisor_is_killed_what_it_ran_is_ended_and_its_call_fails(tree: Tree) -> None:
    call, other = Failing(tree, STUBBORN), Failing(tree, "sleep 1; echo other")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await tree.started(4)
        (supervisor,) = tree.spawner.running
        os.kill(supervisor, signal.SIGKILL)
        with trio.fail_after(20):
            await call.ended.wait()
    assert str(call.error) == "the call's supervisor was killed; what it ran was ended"
    assert tree.alive() == set()
    assert other.error is None


async def test_killing_one_supervisor_leaves_other_calls_alone(tree: Tree, tmp_path: Path) -> None:
    call = Failing(tree, "sleep 1000 & sleep 1000")
    other = Tree(tree.spawner, tmp_path)
    heads: list[bytes] = []

    async def run_other() -> None:
        done = await other.sh("(sleep 1; echo child) & until [ -e go ]; do sleep 0.02; done; wait; echo end")
        heads.append(done.head)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await tree.started(2)
        (supervisor,) = tree.spawner.running
        nursery.start_soon(run_other)
        await other.started(2)
        os.kill(supervisor, signal.SIGKILL)
        await call.ended.wait()
        (tmp_path / "go").touch()
    assert heads == [b"child\nend\n"]


async def test_a_command_that_kills_its_supervisor_gains_nothing(tree: Tree) -> None:
    call = Failing(tree, "setsid sleep 1000 & kill -KILL $PPID; sleep 1000")
    with trio.fail_after(20):
        await call()
    assert call.error is not None
    assert tree.alive() == set()


async def test_a_command_that_stops_its_supervisor_is_ended_all_the_same(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dshd.spawn.client.END_LIMIT", 1.0)
    with trio.fail_after(6), pytest.raises(SpawnFailed, match="did not answer"):
        await tree.sh("setsid sleep 1000 & kill -STOP $PPID; sleep 1000", timeout=0.3, grace=0.1)
    assert await gone(tree.alive(), WITHIN) == set()
    assert (await tree.sh("echo fine")).head == b"fine\n"


async def test_a_cancel_while_the_supervisor_is_stopped_still_ends_the_tree(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dshd.spawn.client.END_LIMIT", 0.5)
    with trio.fail_after(6), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tree.sh, "setsid sleep 1000 & kill -STOP $PPID; sleep 1000")
            await tree.started(2)
            scope.cancel()
    assert await gone(tree.alive(), WITHIN) == set()


@pytest.mark.parametrize("pause", [0.0, 0.2])
async def test_a_supervisor_killed_while_it_waits_is_passed_over(tree: Tree, pause: float) -> None:
    await tree.sh("true")
    for pid in await settled(tree):
        os.kill(pid, signal.SIGKILL)
    await trio.sleep(pause)
    assert (await tree.sh("echo fine")).head == b"fine\n"


async def test_an_idle_daemon_s_spawner_that_is_killed_leaves_nothing(tree: Tree) -> None:
    await tree.sh("true")
    helpers, spawner = set(await settled(tree)), tree.spawner.pid
    os.kill(spawner, signal.SIGKILL)
    assert await gone({*helpers, spawner}, WITHIN) == set()
    tree.spawner.reap()
    assert proc.look(spawner) is None, "no zombie either"
    assert (await tree.sh("echo fine")).head == b"fine\n"


async def settled(tree: Tree) -> list[int]:
    """The idle spawner's supervisor."""
    await until(lambda: len(below(tree.spawner.pid).get("dshd-call", [])) == 1, 3)
    return below(tree.spawner.pid)["dshd-call"]


async def test_helpers_can_be_told_from_the_daemon_in_ps(daemon: Daemon, tree: Tree) -> None:
    await tree.started(6)
    (spawner,) = below(daemon.pid)["dshd-spawn"]
    assert name_of(spawner) == "dshd-spawn"
    assert os.getsid(spawner) != os.getsid(daemon.pid)
