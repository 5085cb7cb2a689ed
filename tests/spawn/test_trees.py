"""Nothing outlives its call: every way out of a process group, against every way a call can end."""

from __future__ import annotations

import os
import subprocess

import pytest
import trio

from dshd.spawn import tree as proc
from dshd.spawn.pool import MOST_IDLE
from tests.spawn.helpers import NAMELESS, Tree, below, until, zombies_below

IGNORES_TERM = "trap '' TERM HUP INT; while :; do sleep 0.05; done"
WAYS_OUT = {
    "plain": "sleep 1000 &",
    "grandchildren": "sh -c 'sleep 999 & sleep 999; true' &",
    "own session": "setsid sleep 1000 &",
    "double fork": "(setsid sleep 1000 &);",
    "double fork, own session twice": "(setsid bash -c '(setsid sleep 1000 &) ; sleep 1000' &);",
    "ignores TERM": f'bash -c "{IGNORES_TERM}" &',
    "ignores TERM in an own session": f'setsid bash -c "{IGNORES_TERM}" &',
    "holds the pipe and writes": "(while :; do echo x; sleep 0.02; done) &",
    "nohup": "nohup sleep 1000 >/dev/null 2>&1 &",
    "stopped": "bash -c 'kill -STOP $$' & sleep 0.1;",
    "respawns": "(while :; do (setsid sleep 1000 &); sleep 0.01; done) & sleep 0.1;",
    "closes its output": "bash -c 'exec >/dev/null 2>&1; sleep 1000' &",
    "nothing to know it by": NAMELESS,
    "cleared environment": "(env -i TREE=$TREE setsid sleep 1000 &);",
}


@pytest.fixture(params=WAYS_OUT, ids=lambda way: way.replace(" ", "-"))
def way(request: pytest.FixtureRequest) -> str:
    return WAYS_OUT[request.param]


async def test_what_is_left_in_the_background_ends_with_the_shell(tree: Tree, way: str) -> None:
    with trio.fail_after(20):
        done = await tree.sh(f"{way} echo done")
    assert b"done\n" in done.output
    assert done.returncode == 0
    assert tree.alive() == set()
    assert done.left >= 1


async def test_a_time_limit_ends_everything(tree: Tree, way: str) -> None:
    with trio.fail_after(20):
        done = await tree.sh(f"{way} echo begun; sleep 1000", timeout=0.5)
    assert done.timed_out
    assert b"begun\n" in done.output
    assert tree.alive() == set()


async def test_a_cancel_ends_everything_before_it_goes_on(tree: Tree, way: str) -> None:
    with trio.fail_after(20), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tree.sh, f"{way} sleep 1000")
            await tree.started(2)
            scope.cancel()
    assert scope.cancelled_caught
    assert tree.alive() == set()


async def test_the_call_ends_when_the_shell_ends_though_a_child_keeps_writing(tree: Tree) -> None:
    with trio.fail_after(20):
        done = await tree.sh("(while :; do echo x; sleep .1; done) & sleep 0.5; echo done")
    assert done.output.endswith(b"done\n")
    assert 0.5 <= done.duration_s < 10


async def test_a_child_that_floods_the_pipe_does_not_keep_the_call(tree: Tree) -> None:
    with trio.fail_after(20):
        done = await tree.sh("yes & echo done")
    assert done.returncode == 0
    assert tree.alive() == set()


async def test_what_was_written_before_the_shell_ended_is_all_there(tree: Tree) -> None:
    done = await tree.sh("head -c 60000 /dev/zero | tr '\\0' x; sleep 5 & exit", head=100_000)
    assert done.head == b"x" * 60_000


async def test_a_pipe_held_by_somebody_outside_does_not_keep_the_call(tree: Tree) -> None:
    holder = trio.Event()

    async def hold() -> None:
        script = (
            "import os, socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind('door'); s.listen();"
            "c, _ = s.accept(); _, fds, _, _ = socket.recv_fds(c, 1, 1); print('held', flush=True);"
            "os.close(1); [os.write(fds[0], b'x' * 100) for _ in iter(int, 1)]"
        )
        await tree.spawner.run(
            ["python3", "-c", script], cwd=str(tree.cwd), env=tree.env, timeout=20, head=9, tail=9
        )
        holder.set()

    give = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('door');"
        "socket.send_fds(s, [b'x'], [1]); s.recv(1)"
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        await until((tree.cwd / "door").exists)
        with trio.fail_after(20):
            done = await tree.sh(f'timeout 0.3 python3 -c "{give}"; echo given', head=100, tail=100)
        assert not holder.is_set()
        nursery.cancel_scope.cancel()
    assert done.returncode == 0


async def test_what_a_timed_out_command_would_have_done_later_is_never_done(tree: Tree) -> None:
    done = await tree.sh("(sleep 1.5; touch sentinel) & (sleep 1.5; touch sentinel); true", timeout=0.2)
    assert done.timed_out
    await trio.sleep(max(0.0, 1.7 - done.duration_s))
    assert not (tree.cwd / "sentinel").exists()


async def test_a_pipeline_is_ended_as_a_whole(tree: Tree) -> None:
    with trio.fail_after(20):
        done = await tree.sh("grep -r x /proc/self/net /dev/zero | cat | sleep 1000; true", timeout=0.3)
    assert done.timed_out
    assert tree.alive() == set()


async def test_a_command_may_clean_up_when_it_is_told_to_stop(tree: Tree) -> None:
    done = await tree.sh("trap 'echo cleaned > cleaned; exit 3' TERM; sleep 1000 & wait", timeout=1.0)
    assert done.timed_out
    assert done.returncode == 3
    assert (tree.cwd / "cleaned").read_text() == "cleaned\n"


async def test_what_is_printed_while_stopping_is_kept(tree: Tree) -> None:
    done = await tree.sh("trap 'echo bye; exit' TERM; echo hello; sleep 1000 & wait", timeout=1.0)
    assert done.output == b"hello\nbye\n"


async def test_a_time_limit_comes_with_its_result_soon(tree: Tree) -> None:
    started = trio.current_time()
    done = await tree.sh(IGNORES_TERM, timeout=0.5, grace=0.3)
    assert done.timed_out
    assert done.signal == 9
    assert 0.8 <= trio.current_time() - started < 10


async def test_cancelling_before_anything_runs_starts_nothing(tree: Tree) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await tree.sh("touch sentinel")
    await tree.sh("true")
    assert not (tree.cwd / "sentinel").exists()


async def test_cancels_at_any_moment_leave_nothing(tree: Tree) -> None:
    for number in range(40):
        with trio.move_on_after(number * 0.0005):
            await tree.sh("setsid sleep 1000 & sleep 1000")
        assert tree.alive() == set()
    assert (await tree.sh("echo fine")).head == b"fine\n"


async def test_no_zombies_are_left(tree: Tree) -> None:
    for _ in range(5):
        await tree.sh("for i in $(seq 20); do (sleep 0.001 &) ; done; sleep 0.01")
    await until(lambda: not zombies_below(tree.spawner.pid), 5)


async def test_an_idle_spawner_keeps_one_spare_and_nothing_else(tree: Tree) -> None:
    await tree.sh("sleep 0.01 & true")
    await until(lambda: [*map(len, below(tree.spawner.pid).values())] == [1], 3)
    assert list(below(tree.spawner.pid)) == ["dshd-call"]


async def test_calls_one_after_another_share_a_supervisor(tree: Tree) -> None:
    parents = {(await tree.sh("(sleep 1000 &); echo $PPID")).head for _ in range(5)}
    assert len(parents) == 1


async def test_after_many_calls_at_once_few_processes_are_kept(tree: Tree) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(12):
            nursery.start_soon(tree.sh, "sleep 0.1")
    await until(lambda: len(below(tree.spawner.pid).get("dshd-call", [])) <= MOST_IDLE, 3)


async def test_a_tree_that_forks_as_fast_as_it_can_is_ended(tree: Tree) -> None:
    """Bounded by its depth (some 500 processes): root has no process limit that would stop a real one."""
    storm = "f() { if [ $1 -gt 0 ]; then f $(($1-1)) & f $(($1-1)) & fi; sleep 1000; }; f 8"
    with trio.fail_after(30):
        done = await tree.sh(storm, timeout=0.25, grace=0.05)
    assert done.timed_out
    assert tree.alive() == set()


async def test_a_group_is_met_as_a_whole_also_those_of_it_that_nobody_saw(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a tree that doubles while it is read comes down to."""
    script = "for i in $(seq 20); do sleep 1000 & done; wait"
    process = subprocess.Popen(  # noqa: ASYNC220
        ["bash", "-c", script], env=tree.env, start_new_session=True
    )
    with process:
        await tree.started(21)
        seen = proc.descendants(os.getpid())
        monkeypatch.setattr(proc, "descendants", lambda *_, **__: {process.pid: seen[process.pid]})
        proc.kill_below(os.getpid())
    await until(lambda: not tree.alive(), 2)


MANY = """
import os, signal

def breed(*_):
    for _ in range(1050):
        if not os.fork():
            os.setsid()
            signal.pause()

signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
TOO_MANY = {
    "before": MANY + "breed()\nsignal.pause()",
    "in its grace": MANY + "signal.signal(signal.SIGTERM, breed)\nwhile True: signal.pause()",
}


@pytest.mark.parametrize("script", TOO_MANY.values(), ids=TOO_MANY.keys())
async def test_a_tree_of_over_a_thousand_gets_no_grace_to_grow_in(tree: Tree, script: str) -> None:
    (tree.cwd / "many.py").write_text(script)
    with trio.fail_after(20):
        done = await tree.sh("exec python3 many.py", timeout=2.0, grace=15)
    assert done.timed_out
    assert done.survivors == []
    assert tree.alive() == set()


RESTLESS = {
    "hops": "hop() { sleep 0.001; (hop &); }; hop; sleep 1000",
    "several hop": "hop() { sleep 0.001; (hop &); }; hop; hop; hop; hop; sleep 1000",
    "breeds": "while :; do sleep 1000 & (setsid sleep 1000 &); sleep 0.005; done",
}


@pytest.mark.parametrize("command", RESTLESS.values(), ids=RESTLESS.keys())
async def test_a_tree_that_never_rests_is_ended(tree: Tree, command: str) -> None:
    with trio.fail_after(10):
        done = await tree.sh(command, timeout=0.5, grace=0.1)
    assert done.timed_out
    assert done.survivors == []
    assert tree.alive() == set()
