"""One command: what it gets, and what comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from dshd import errors
from dshd.spawn.client import Spawner, SpawnFailed
from tests.spawn.helpers import NAMELESS, PATH, Tree


async def test_output_and_exit_code_come_back_in_order(tree: Tree) -> None:
    done = await tree.sh("echo one; echo two >&2; echo three; exit 7")
    assert done.head == b"one\ntwo\nthree\n"
    assert (done.returncode, done.signal, done.timed_out, done.spill) == (7, None, False, None)


async def test_stderr_can_be_kept_apart(tree: Tree) -> None:
    done = await tree.sh("echo out; echo err >&2", merge=False)
    assert (done.head, done.stderr) == (b"out\n", b"err\n")


async def test_stdout_and_stderr_are_drained_side_by_side(tree: Tree) -> None:
    done = await tree.sh("head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero; echo ok", merge=False)
    assert done.tail.endswith(b"ok\n")
    assert done.total == 1_000_003


async def test_stdin_is_dev_null_and_cat_returns_at_once(tree: Tree) -> None:
    done = await tree.sh("readlink /proc/self/fd/0; cat; test -t 0 || echo no terminal")
    assert done.head == b"/dev/null\nno terminal\n"


async def test_given_stdin_is_read_to_its_end_however_long(tree: Tree) -> None:
    done = await tree.sh("head -c 3; wc -c", stdin=b"abc" + b"x" * 3_000_000)
    assert done.head.split() == [b"abc3000000"] or done.head == b"abc3000000\n"


async def test_given_stdin_may_be_left_unread(tree: Tree) -> None:
    done = await tree.sh("true", stdin=b"x" * 3_000_000)
    assert done.returncode == 0


async def test_the_command_has_a_session_and_group_of_its_own(tree: Tree) -> None:
    done = await tree.sh("ps -o pgid=,sid= -p $$; echo $$")
    group, session, pid = map(int, done.head.split())
    assert group == session == pid
    assert group != os.getpgid(0)


async def test_umask_signals_and_descriptors_are_what_a_program_expects(tree: Tree) -> None:
    done = await tree.sh("umask; yes | head -n 1; echo ${PIPESTATUS[0]}; ls /proc/self/fd | tr '\\n' ' '")
    assert done.head == b"0022\ny\n141\n0 1 2 3 "
    ignored = await tree.sh("grep SigIgn /proc/self/status")
    assert int(ignored.head.split()[1], 16) == 0


async def test_the_environment_is_what_was_given_and_nothing_else(tree: Tree) -> None:
    done = await tree.sh("env -0 | tr '\\0' '\\n' | cut -d= -f1 | sort | tr '\\n' ' '")
    assert done.head == b"PATH PWD SHLVL TREE _ "


async def test_bytes_that_are_no_text_reach_the_command(spawner: Spawner, tmp_path: Path) -> None:
    odd = os.fsdecode(b"\xff\xfe")
    done = await spawner.run(
        ["bash", "-c", 'printf %s "$0$X"', odd],
        cwd=str(tmp_path),
        env={"PATH": PATH, "X": odd},
        timeout=5,
        head=9,
        tail=9,
    )
    assert done.head == b"\xff\xfe\xff\xfe"


async def test_a_command_killed_by_a_signal_says_which(tree: Tree) -> None:
    done = await tree.sh("kill -SEGV $$")
    assert (done.returncode, done.signal) == (None, signal.SIGSEGV)


async def test_a_missing_program_is_named_with_the_path_that_was_searched(spawner: Spawner) -> None:
    with pytest.raises(SpawnFailed, match=r"no-such-tool could not be started with PATH=/usr/local/bin"):
        await spawner.run(["no-such-tool"], cwd="/", env={"PATH": PATH}, timeout=5, head=9, tail=9)


async def test_a_directory_that_is_gone_is_named(spawner: Spawner, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(SpawnFailed, match=f"the directory {gone} can't be entered: No such file"):
        await spawner.run(["true"], cwd=str(gone), env={"PATH": PATH}, timeout=5, head=9, tail=9)


async def test_a_command_line_that_is_too_long_fails_and_the_next_call_works(tree: Tree) -> None:
    with pytest.raises(SpawnFailed, match="Argument list too long"):
        await tree.sh("true " + "x" * 3_000_000)
    assert (await tree.sh("echo fine")).head == b"fine\n"


async def test_a_nul_in_the_command_line_fails_and_the_next_call_works(tree: Tree) -> None:
    with pytest.raises(SpawnFailed, match="null byte"):
        await tree.sh("echo a\0b")
    assert (await tree.sh("echo fine")).head == b"fine\n"


async def test_many_calls_at_once_keep_apart(tree: Tree) -> None:
    heads: dict[int, bytes] = {}

    async def one(number: int) -> None:
        heads[number] = (await tree.sh(f"sleep 0.05; echo {number}")).head

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(one, number)
    assert heads == {number: f"{number}\n".encode() for number in range(40)}


async def test_after_closing_nothing_is_started_any_more(spawner: Spawner) -> None:
    await spawner.aclose()
    with pytest.raises(errors.Unavailable):
        await spawner.run(["true"], cwd="/", env={}, timeout=5, head=9, tail=9)


async def test_closing_ends_what_runs(tree: Tree) -> None:
    async def sleep() -> None:
        with pytest.raises(SpawnFailed):
            await tree.sh("sleep 1000 & sleep 1000")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep)
        await tree.started(3)
        await tree.spawner.aclose()
    assert tree.alive() == set()


async def test_a_process_is_known_to_be_below_a_tool_wherever_it_went(tree: Tree) -> None:
    async def call() -> None:
        await tree.sh("setsid sleep 1000 & (setsid sleep 1000 &); sleep 1000", label="s1")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        pids = await tree.started(3)
        assert {tree.spawner.owner(pid) for pid in pids} == {"s1"}
        assert not tree.spawner.is_below_tool(os.getpid())
        assert not tree.spawner.is_below_tool(os.getppid())
        assert not tree.spawner.is_below_tool(0)
        nursery.cancel_scope.cancel()
    assert all(tree.spawner.is_below_tool(pid) for pid in pids), "who is gone can't be vouched for"


async def test_a_process_that_lost_its_helpers_is_known_to_be_a_tool_s_all_the_same(
    spawner: Spawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(Spawner(spawner.handle, state_dir=tmp_path), tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tree.sh, f"{NAMELESS} sleep 1000")
        pids = await tree.started(2)
        monkeypatch.setattr("dshd.spawn.tree.ancestors", lambda pid: [1])
        assert {tree.spawner.owner(pid) for pid in pids} == {""}
        assert tree.spawner.owner(os.getpid()) is None
        monkeypatch.undo()
        nursery.cancel_scope.cancel()


BRANDED = """
import os, resource
from dshd.spawn import kernel, tree
resource.setrlimit(kernel.RLIMIT_LOCKS, (1000, 1000))
if os.geteuid() == 0:
    os.setuid(65534)
kernel.brand(os.getpid(), {number})
print(tree.brand_of(os.getpid()))
"""


@pytest.mark.parametrize(("number", "carried"), [(900, "900"), (5000, "999")])
def test_who_carries_a_smaller_brand_and_is_not_root_gets_another_one_at_least(
    number: int, carried: str
) -> None:
    code = BRANDED.format(number=number)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == carried
