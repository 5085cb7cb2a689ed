"""What a sandboxed command can see, write and reach; first as decisions, then for real."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from dshd.spawn import landlock, seccomp
from dshd.spawn.client import Spawner, launch
from dshd.tools import guarded, sandbox, sockets
from dshd.tools.bash import Bash
from dshd.tools.sandbox import Found, Places, Refused
from dshd.tools.tool import ToolContext, ToolOutput
from tests.spawn.helpers import below, until

WORKS = Found("/usr/bin/bwrap", "", 0)
LANDLOCK_ONLY = Found(None, "bwrap refused", 6, seccomp=True)
NOTHING = Found(None, "bubblewrap is not installed", 0)


def places(**changes: Any) -> Places:
    base = Places(dir=Path("/home/you/src"), tmp=Path("/state/s1/spill/tmp"))
    return attrs.evolve(base, **changes)


def words(plan: sandbox.Plan) -> str:
    return " ".join(plan.prefix)


def exists(path: Path | str) -> bool:
    return os.path.lexists(path)


# -- decisions


def test_workspace_makes_the_directory_writable_and_read_only_does_not() -> None:
    assert "--bind /home/you/src /home/you/src" in words(
        sandbox.plan("workspace", False, "auto", places(), WORKS)
    )
    plan = sandbox.plan("read-only", False, "auto", places(), WORKS)
    assert "--ro-bind /home/you/src /home/you/src" in words(plan)
    assert "--bind /home" not in words(plan)


def test_the_network_is_there_only_if_the_session_has_it() -> None:
    assert "--unshare-net" in sandbox.plan("workspace", False, "auto", places(), WORKS).prefix
    assert "--unshare-net" not in sandbox.plan("workspace", True, "auto", places(), WORKS).prefix


def test_no_mount_covers_one_inside_of_it() -> None:
    hidden = Path("/home/you/src/state")
    given = places(
        repository=Path("/home/you/src/.git"),
        guarded=guarded.Guarded(dir=Path("/home/you/src"), protected=(Path("/home/you/src/.git/hooks"),)),
        hidden=(hidden,),
        folders=frozenset([hidden]),
        readable=(hidden / "spill",),
    )
    line = words(sandbox.plan("workspace", False, "auto", given, WORKS))
    order = [
        "--ro-bind / /",
        "--bind /state/s1/spill/tmp /tmp",
        "--bind /home/you/src /home/you/src",
        "--bind /home/you/src/.git /home/you/src/.git",
        "--ro-bind /home/you/src/.git/hooks /home/you/src/.git/hooks",
        "--chdir /home/you/src --",
    ]
    assert sorted(order, key=line.index) == order
    emptied = line.index(f"--tmpfs {hidden}")
    assert line.index(order[2]) < emptied < line.index(f"--ro-bind {hidden}/spill {hidden}/spill")


@pytest.mark.parametrize("dir", ["/", "/run", "/tmp"])
def test_a_session_in_a_directory_above_others_does_not_uncover_them(dir: str) -> None:
    bus = Path("/run/user/1000")
    given = places(dir=Path(dir), cut_off=(bus,), folders=frozenset([bus]))
    line = words(sandbox.plan("workspace", False, "auto", given, WORKS))
    assert line.count(f"--bind {dir} {dir} ") == 1
    assert line.index(f"--bind {dir} {dir} ") < line.index("--tmpfs /run/user/1000") or dir == "/tmp"
    assert ("--ro-bind / /" in line) == (dir != "/")
    assert line.index(" / / ") < line.index("--proc /proc")
    assert ("/state/s1/spill/tmp" in line) == (dir != "/tmp")


def test_landlock_is_used_where_bubblewrap_is_refused() -> None:
    plan = sandbox.plan("workspace", False, "auto", places(around=(Path("/usr"),)), LANDLOCK_ONLY)
    assert (plan.kind, plan.prefix, plan.net) == ("landlock", (), False)
    assert plan.landlock is not None
    assert plan.landlock["read"] == ["/usr"]
    assert "/home/you/src" in plan.landlock["write"]
    assert plan.env == {"TMPDIR": "/state/s1/spill/tmp"}


def test_landlock_alone_can_not_cut_the_network_and_the_plan_knows() -> None:
    assert sandbox.plan("workspace", False, "auto", places(), Found(None, "", 6)).net
    assert not sandbox.plan("workspace", False, "auto", places(), Found(None, "", 3, seccomp=True)).net


def test_without_any_sandbox_bash_is_refused_with_the_reason_and_the_way_out() -> None:
    with pytest.raises(Refused) as refused:
        sandbox.plan("workspace", False, "auto", places(), NOTHING)
    assert str(refused.value) == (
        "bash is refused: mode workspace needs a sandbox, and none works here (bubblewrap is not installed; "
        'the kernel has no Landlock). A person can allow commands without one: sandbox = "none" under '
        "[tools], or mode full."
    )


def test_a_sandbox_asked_for_by_name_is_not_replaced_by_another() -> None:
    with pytest.raises(Refused, match='sandbox = "bwrap"'):
        sandbox.plan("workspace", False, "bwrap", places(), LANDLOCK_ONLY)
    assert sandbox.plan("workspace", False, "landlock", places(), Found("/bwrap", "", 5)).kind == "landlock"


# -- what is found


def test_hooks_settings_keys_and_start_up_files_are_found_wherever_they_are(tmp_path: Path) -> None:
    wanted = {
        ".git/hooks", ".git/config", ".git/modules/sub/config", ".git/modules/sub/hooks",
        "sub/.git", "deep/er/.git/hooks", "deep/er/.git/config", "dot/.bashrc", "a/b/.ssh",
        "home/.config/autostart", "home/.config/systemd",
    }  # fmt: skip
    for name in (*wanted, ".git/objects/config", ".git/refs/heads/hooks", "src/config", "src/hooks"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if path.name in ("hooks", ".ssh", "autostart", "systemd") else path.touch()
    found = {str(path.relative_to(tmp_path)) for path in guarded.protected_in(tmp_path)}
    assert found == wanted


def test_a_change_at_the_top_is_seen_the_next_time(tmp_path: Path) -> None:
    """What was found there is kept until it changes; also when that is so soon that no clock shows it."""
    for number in range(50):
        assert guarded.protected_in(tmp_path) == ()
        (tmp_path / ".bashrc").touch()
        assert guarded.protected_in(tmp_path) == (tmp_path / ".bashrc",), number
        (tmp_path / ".bashrc").unlink()


def test_a_top_that_has_not_changed_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".bashrc").touch()
    os.utime(tmp_path, (1, 1))
    monkeypatch.setattr(guarded, "RACY_NS", -1)
    found = guarded.protected_in(tmp_path)
    monkeypatch.setattr(guarded, "read", None)
    assert guarded.protected_in(tmp_path) == found == (tmp_path / ".bashrc",)


def test_a_place_is_resolved_again_when_a_link_on_its_way_leads_elsewhere(tmp_path: Path) -> None:
    for name in ("one/place", "two/place"):
        (tmp_path / name).mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to("one")
    asked = [link / "place", tmp_path / "later"]
    assert guarded.existing(asked) == (tmp_path / "one/place",)
    link.unlink()
    link.symlink_to("two")
    assert guarded.existing(asked) == (tmp_path / "two/place",)
    (tmp_path / "later").touch()
    assert guarded.existing(asked) == (tmp_path / "two/place", tmp_path / "later")


@pytest.mark.parametrize("command", [
    "echo x > a/.bashrc", "mkdir sub/.SSH", "cd new/.git && echo > hooks/x", "cp x .config/autostart/",
    "sh -c 'cat > ~/.profile'", "cat .git/config",
])  # fmt: skip
def test_a_command_that_names_a_protected_place_has_the_tree_looked_through(
    tmp_path: Path, command: str
) -> None:
    assert guarded.guard(tmp_path, None, command, None).before is not None


@pytest.mark.parametrize("command", [
    "make test", "ls src/hooks", "git clone https://example.org/me/x.git", "cat config", ".gitignore",
    "ls a.bashrc-old/.bashrc_d", "echo .github/workflows", "python manage.py local/config",
])  # fmt: skip
def test_a_command_that_names_none_does_not_pay_for_that(tmp_path: Path, command: str) -> None:
    assert guarded.guard(tmp_path, None, command, None).before is None


def test_links_are_not_followed_when_looking_for_protected_places(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "other" / ".ssh").mkdir(parents=True)
    (tmp_path / "work" / "link").symlink_to(tmp_path / "other")
    assert guarded.protected_in(tmp_path / "work") == ()


def test_everything_but_the_hidden_places_is_around_them(tmp_path: Path) -> None:
    for name in ("a/secret", "a/open", "b"):
        (tmp_path / name).mkdir(parents=True)
    around = set(sandbox.around([tmp_path / "a" / "secret"]))
    assert {tmp_path / "a" / "open", tmp_path / "b"} <= around
    assert not any((tmp_path / "a" / "secret").is_relative_to(path) for path in around)


# -- for real


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    spawner = Spawner(launch())
    yield spawner
    await spawner.aclose()


@pytest.fixture
def ctx(ctx: ToolContext, spawner: Spawner) -> ToolContext:
    return attrs.evolve(ctx, spawner=spawner)


@pytest.fixture(params=["bwrap", "landlock"])
async def confined(request: pytest.FixtureRequest, ctx: ToolContext, spawner: Spawner) -> ToolContext:
    return attrs.evolve(ctx, sandbox=await usable(request.param, spawner))


@pytest.fixture
async def bubble(ctx: ToolContext, spawner: Spawner) -> ToolContext:
    return attrs.evolve(ctx, sandbox=await usable("bwrap", spawner))


async def usable(kind: str, spawner: Spawner) -> str:
    if kind == "landlock" and not (landlock.abi() and seccomp.works()):
        pytest.skip("this kernel has no Landlock, or no filters on system calls")
    if kind == "bwrap" and (await sandbox.detect(spawner)).bwrap is None:
        pytest.skip("bubblewrap does not work here; apt-get install bubblewrap")
    return kind


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory that is not below the machine's /tmp."""
    path = Path(f"/var/tmp/dshd-test-{os.getpid()}")
    path.mkdir()
    yield path
    shutil.rmtree(path)


async def sh(ctx: ToolContext, command: str) -> ToolOutput:
    with trio.fail_after(30):
        return await Bash().run({"command": command}, ctx)


async def test_files_inside_can_be_written_and_others_can_not(confined: ToolContext, elsewhere: Path) -> None:
    output = await sh(confined, f"echo in > in; echo out > {elsewhere}/out; echo out > /etc/dshd-test")
    assert (confined.dir / "in").read_text() == "in\n"
    assert not exists(elsewhere / "out")
    assert not exists("/etc/dshd-test")
    assert "can be written" in output.text


async def test_in_read_only_nothing_is_written_but_tmp(confined: ToolContext) -> None:
    ctx = attrs.evolve(confined, mode="read-only")
    output = await sh(ctx, 'echo a > in; echo b > "${TMPDIR:-/tmp}/x"; cat "${TMPDIR:-/tmp}/x"')
    assert not (ctx.dir / "in").exists()
    assert "\nb\n" in output.text


async def test_tmp_is_the_session_s_own_and_lasts_from_call_to_call(bubble: ToolContext) -> None:
    await sh(bubble, "echo kept > /tmp/dshd-test-kept")
    assert (await sh(bubble, "cat /tmp/dshd-test-kept")).text.startswith("kept\n")
    assert not exists("/tmp/dshd-test-kept")


async def test_hidden_places_are_empty_and_spill_files_can_be_read(
    confined: ToolContext, elsewhere: Path
) -> None:
    spill_dir = elsewhere / "state" / "s1" / "spill"
    ctx = attrs.evolve(confined, hidden=(elsewhere / "state",), spill_dir=spill_dir)
    ctx.spill_dir.mkdir(parents=True)
    (elsewhere / "state" / "key").write_text("secret")
    (elsewhere / "beside").write_text("seen\n")
    output = await sh(ctx, f"cat {elsewhere}/state/key; cat {elsewhere}/beside; seq 20000")
    assert "secret" not in output.text
    assert "seen" in output.text
    (spill,) = ctx.spill_dir.glob("*.out")
    assert str(spill) in output.text
    assert (await sh(ctx, f"tail -n 1 {spill}")).text.startswith("20000\n")


async def test_hidden_places_inside_the_directory_are_hidden_too(bubble: ToolContext) -> None:
    (bubble.dir / "run").mkdir()
    (bubble.dir / "run" / "key").write_text("secret")
    (bubble.dir / "file").write_text("secret")
    ctx = attrs.evolve(bubble, hidden=(bubble.dir / "run", bubble.dir / "file"))
    output = await sh(ctx, "cat run/key file; ls -A run | wc -l")
    assert "secret" not in output.text
    assert "\n0\n" in output.text


@pytest.fixture
def bus(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A socket somewhere in what stands for /run, and a link and a folder that a program needs there."""
    run = elsewhere / "run"
    (run / "user" / "1000").mkdir(parents=True)
    (run / "postgresql").mkdir()
    (run / "current-system").symlink_to("/usr")
    monkeypatch.setattr(sockets, "RUNTIME", (run,))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(run / "user" / "1000" / "bus"))
        listener.listen()
        yield run / "user" / "1000" / "bus"


def connect_to(path: Path) -> str:
    return f"python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{path}'); print('reached')\";"


@pytest.mark.parametrize("net", [False, True])
async def test_the_user_s_bus_is_not_there_nor_what_else_is_in_run(
    bubble: ToolContext, bus: Path, net: bool
) -> None:
    run = bus.parents[2]
    ctx = attrs.evolve(bubble, net=net)
    tries = (
        f"{connect_to(bus)} find {run} -mindepth 1 | sort | xargs; test -d {run}/current-system/bin && echo a"
    )
    output = await sh(ctx, f"{tries}; touch {run}/x")
    assert "reached" not in output.text
    assert f"\n{run}/current-system{f' {run}/postgresql' if net else ''}\na\n" in output.text
    assert "Read-only file system" in output.text


async def test_a_runtime_directory_is_empty_wherever_it_is(bubble: ToolContext, elsewhere: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(elsewhere / "bus"))
        listener.listen()
        probe = connect_to(elsewhere / "bus")
        assert "reached" in (await sh(bubble, probe)).text
        ctx = attrs.evolve(bubble, env={**bubble.env, "XDG_RUNTIME_DIR": str(elsewhere)})
        assert "reached" not in (await sh(ctx, probe)).text


@pytest.mark.parametrize("sub", ["", "rootless"])
async def test_agents_at_home_are_not_there(bubble: ToolContext, elsewhere: Path, sub: str) -> None:
    agent = elsewhere / ".docker" / "run" / sub / "docker.sock"
    agent.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(agent))
        listener.listen()
        ctx = attrs.evolve(bubble, home=elsewhere)
        assert "reached" not in (await sh(ctx, connect_to(agent))).text


async def test_the_ssh_agent_is_there_with_net_only(bubble: ToolContext, elsewhere: Path) -> None:
    agent = elsewhere / "agent"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(agent))
        listener.listen()
        ctx = attrs.evolve(bubble, env={**bubble.env, "SSH_AUTH_SOCK": str(agent)})
        assert "reached" not in (await sh(ctx, connect_to(agent))).text
        assert "reached" in (await sh(attrs.evolve(ctx, net=True), connect_to(agent))).text


async def test_a_socket_in_the_session_s_directory_can_be_connected_to(confined: ToolContext) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(confined.dir / "own"))
        listener.listen()
        assert "reached" in (await sh(confined, connect_to(confined.dir / "own"))).text


async def test_run_itself_is_empty_but_for_what_is_needed(bubble: ToolContext) -> None:
    names = (await sh(bubble, "ls -A /run | xargs; ls /var/run/ | xargs")).text.splitlines()
    assert set(names[0].split()) <= {"shm", "systemd", "current-system", "booted-system", "wrappers"}
    assert names[0] == names[1]


def test_emptying_never_covers_the_session_s_directory_or_home() -> None:
    home, dir = Path("/home/you"), Path("/run/user/7/work")
    for place in ("/", "/home", "/home/you", "/run/user/7", "relative", ""):
        assert Path(place) not in sockets.cut_off(home, dir, [{"XDG_RUNTIME_DIR": place}])
    assert Path("/run/user/8") in sockets.cut_off(home, dir, [{"XDG_RUNTIME_DIR": "/run/user/8"}])


async def test_a_session_may_work_below_run(bubble: ToolContext, bus: Path) -> None:
    for place in (bus.parents[1] / "stick", bus.parents[2]):
        place.mkdir(exist_ok=True)
        ctx = attrs.evolve(bubble, dir=place)
        assert (await sh(ctx, "echo x > made && pwd")).text.startswith(f"{place}\n[exit 0")
        assert (place / "made").exists()


async def test_the_daemon_s_socket_can_not_be_reached(bubble: ToolContext, elsewhere: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(elsewhere / "dshd.sock"))
        listener.listen()
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{elsewhere}/dshd.sock')"
        probe = f'python3 -c "{connect}"'
        ctx = attrs.evolve(bubble, hidden=(elsewhere,))
        assert "Error" in (await sh(ctx, probe)).text


PROBE = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 1); print('reached')\""


async def test_there_is_no_network_without_net(confined: ToolContext) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = PROBE.format(port=server.getsockname()[1])
        assert "reached" not in (await sh(confined, command)).text
        assert "reached" in (await sh(attrs.evolve(confined, net=True), command)).text


DATAGRAM = (
    'python3 -c "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);'
    " s.sendto(b'x', ('127.0.0.1', {port}))\""
)


async def test_no_datagram_gets_out_without_net_either(confined: ToolContext) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        command = DATAGRAM.format(port=server.getsockname()[1])
        output = await sh(confined, command)
        with pytest.raises(BlockingIOError):
            server.recv(1)
        assert confined.sandbox == "bwrap" or "[network is off here: dshctl set net=on]" in output.text
        await sh(attrs.evolve(confined, net=True), command)
        assert server.recv(1) == b"x"


LOCAL = """python3 -c "
import ctypes, os, socket
a, b = socket.socketpair()
a.send(b'x'); print('unix', b.recv(1))
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
for family in (2, 10, 17, 40):
    try:
        socket.socket(family, socket.SOCK_DGRAM); print('made', family)
    except OSError as error:
        pass
print('io_uring', ctypes.CDLL(None).syscall(425, 8, 0))
" """


async def test_sockets_that_stay_on_the_machine_work_without_net(confined: ToolContext) -> None:
    output = await sh(confined, LOCAL)
    assert "unix b'x'" in output.text
    assert "Traceback" not in output.text
    if confined.sandbox == "landlock":
        assert "made" not in output.text
        assert "io_uring -1" in output.text


OTHERS = """
import ctypes, os, resource, struct
libc = ctypes.CDLL(None, use_errno=True)
other = {pid}
number = dict(x86_64=(251, 144), aarch64=(30, 119))[os.uname().machine]
zero = ctypes.create_string_buffer(8)
piece = ctypes.create_string_buffer(struct.pack("@PN", ctypes.addressof(zero), 8), 16)
tries = dict(
    limit=lambda: resource.prlimit(other, resource.RLIMIT_NOFILE, (5, 20)),
    nice=lambda: os.setpriority(os.PRIO_PROCESS, other, 10),
    idle=lambda: libc.syscall(number[1], other, 5, zero),
    io=lambda: libc.syscall(number[0], 1, other, 3 << 13),
    memory=lambda: libc.process_vm_readv(other, piece, 1, piece, 1, 0),
    trace=lambda: libc.ptrace(16, other, 0, 0),
    signal=lambda: os.kill(other, 0),
)
for name, attempt in tries.items():
    try:
        result = attempt()
    except OSError:
        result = -1
    print(name, "kept" if result == -1 else "REACHED")
"""


@pytest.mark.parametrize("net", [False, True])
async def test_a_command_changes_nothing_about_a_process_outside(
    confined: ToolContext, spawner: Spawner, net: bool
) -> None:
    ctx = attrs.evolve(confined, net=net)
    if ctx.sandbox == "landlock" and landlock.abi() < landlock.SCOPE_ABI:
        pytest.skip("signals go outside with this kernel's Landlock")
    (ctx.dir / "try.py").write_text(OTHERS.format(pid=spawner.pid))
    output = await sh(ctx, "python3 try.py")
    assert output.text.count("kept") == 7, output.text
    assert "REACHED" not in output.text
    assert resource.prlimit(spawner.pid, resource.RLIMIT_NOFILE) == resource.getrlimit(resource.RLIMIT_NOFILE)
    assert os.getpriority(os.PRIO_PROCESS, spawner.pid) == os.getpriority(os.PRIO_PROCESS, 0)


OWN = """
ulimit -n 99 && ulimit -n && nice -n 5 nice && ionice -c 3 ionice && chrt --idle 0 chrt -p 0
taskset -c 0 true && echo pinned
python3 -c "
import os, resource, threading
resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE); print('asked')
thread = threading.Thread(target=lambda: os.sched_setaffinity(threading.get_native_id(), {0}))
thread.start(); thread.join(); os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); print('scheduled')
"
"""


async def test_a_command_sets_its_own_limits_and_priorities(confined: ToolContext) -> None:
    output = await sh(confined, OWN)
    lines = output.text.splitlines()
    assert lines[:3] == ["99", "5", "idle"]
    assert "SCHED_IDLE" in lines[3]
    assert {"pinned", "asked", "scheduled"} <= set(lines), output.text
    assert "Traceback" not in output.text


async def test_a_failure_for_want_of_network_says_how_to_get_it(bubble: ToolContext) -> None:
    output = await sh(bubble, "getent hosts example.com || { echo 'Could not resolve host'; exit 6; }")
    assert "[network is off here: dshctl set net=on]" in output.text


def repository(dir: Path) -> Path:
    git = dir / ".git"
    (git / "hooks").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[core]\n")
    return git


ATTACKS = {
    "hook": "echo evil > .git/hooks/pre-commit",
    "hook by rename": "echo evil > x; mv x .git/hooks/pre-commit",
    "settings": "echo evil >> .git/config",
    "settings by rename": "echo evil > x; mv -f x .git/config",
    "another .git": "mv .git old; mkdir .git; cp -r old/. .git; echo evil > .git/hooks/pre-commit",
    "hooks moved away": "mv .git/hooks x; mkdir .git/hooks; echo evil > .git/hooks/pre-commit",
    "hooks removed": "rm -rf .git/hooks; mkdir .git/hooks; echo evil > .git/hooks/pre-commit",
    "common directory": "mkdir evil; echo ../evil > .git/commondir",
    "remount": "mount -o remount,rw,bind .git/hooks; umount .git/hooks; echo evil > .git/hooks/pre-commit",
    "mode": "chmod 777 .git/hooks; chmod 666 .git/config",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=lambda text: text[:20].replace(" ", "_"))
async def test_git_s_hooks_and_settings_are_as_before_after_an_attack(
    confined: ToolContext, attack: str
) -> None:
    git = repository(confined.dir)
    mode = (git / "hooks").stat().st_mode
    await sh(confined, attack)
    assert list((git / "hooks").iterdir()) == []
    assert (git / "config").read_text() == "[core]\n"
    assert (git / "hooks").stat().st_mode == mode
    assert not (git / "commondir").exists()


async def test_a_cancelled_command_s_changes_are_undone_too(ctx: ToolContext, spawner: Spawner) -> None:
    ctx = attrs.evolve(ctx, sandbox=await usable("landlock", spawner))
    git = repository(ctx.dir)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sh, ctx, "echo evil > .git/hooks/pre-commit; touch begun; sleep 1000")
            await until((ctx.dir / "begun").exists)
            scope.cancel()
    assert list((git / "hooks").iterdir()) == []


async def test_what_was_taken_away_again_is_told_and_kept(bubble: ToolContext) -> None:
    git = repository(bubble.dir)
    output = await sh(bubble, "echo ../evil > .git/commondir")
    assert f"[{git}/commondir is protected here, so what the command did to it was undone]" in output.text
    (kept,) = (bubble.spill_dir / "removed").iterdir()
    assert kept.read_text() == "../evil\n"


async def test_hooks_that_were_not_there_do_not_come_into_being(bubble: ToolContext) -> None:
    git = repository(bubble.dir)
    (git / "hooks").rmdir()
    await sh(bubble, "mkdir .git/hooks; echo evil > .git/hooks/pre-commit")
    assert not (git / "hooks").exists()


async def test_git_itself_works_in_a_workspace(bubble: ToolContext) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    made = await sh(
        bubble,
        "git init -q . && git config user.email a@b && git config user.name a"
        " && echo x > x && git add x && git commit -qm one",
    )
    assert "[exit 0" in made.text
    again = await sh(bubble, "echo y > x && git commit -qam two && git log --oneline | wc -l")
    assert again.text.startswith("2\n")
    refused = await sh(bubble, "git config user.name evil")
    assert "git's settings and hooks can't be changed here" in refused.text


async def test_a_start_up_file_does_not_come_into_being_in_a_home_that_is_worked_in(
    bubble: ToolContext,
) -> None:
    home = bubble.dir / "you"
    home.mkdir()
    (home / ".bashrc").write_text("mine\n")
    ctx = attrs.evolve(bubble, home=home)
    await sh(ctx, "cd you; echo evil >> .bashrc; A=.zshenv; echo evil > $A; B=.ssh; mkdir $B; echo ok > ok")
    assert (home / ".bashrc").read_text() == "mine\n"
    assert sorted(path.name for path in home.iterdir()) == [".bashrc", "ok"]


COMES_INTO_BEING = {
    "at the top": ("N=profile; echo evil > .$N; mkdir .ss''h", [".profile", ".ssh"]),
    "at the top, in a folder": ("D=.conf''ig; mkdir -p $D/autost''art; touch $D/x", [".config/autostart"]),
    "deep, a file": ("mkdir -p sub/er; echo evil > sub/er/.bashrc; echo ok > sub/er/ok", ["sub/er/.bashrc"]),
    "deep, a folder": ("mkdir -p a/b/.ssh; echo evil > a/b/.ssh/rc", ["a/b/.ssh"]),
    "deep, a run": ("mkdir -p h/.config/systemd/user; touch h/.config/systemd/user/x", ["h/.config/systemd"]),
    "a nested repository's": ("echo evil > old/.git/commondir", ["old/.git/commondir"]),
}


@pytest.mark.parametrize(("command", "places"), COMES_INTO_BEING.values(), ids=COMES_INTO_BEING.keys())
async def test_what_would_be_run_by_itself_is_taken_away_kept_and_told(
    confined: ToolContext, command: str, places: list[str]
) -> None:
    (confined.dir / "old").mkdir()
    repository(confined.dir / "old")
    output = await sh(confined, command)
    for place in places:
        assert not exists(confined.dir / place)
        assert f"[{confined.dir / place} is protected here, so what the" in output.text
        assert [p for p in (confined.spill_dir / "removed").iterdir() if p.name.endswith(Path(place).name)]
    assert "[exit 0" in output.text


async def test_what_else_a_command_made_beside_it_stays(confined: ToolContext) -> None:
    (confined.dir / "sub").mkdir()
    (confined.dir / "sub" / ".bashrc").write_text("there before\n")
    await sh(confined, "mkdir -p new/.config; touch new/.config/x new/.bashrc; cat sub/.bashrc")
    assert (confined.dir / "new" / ".config" / "x").exists()
    assert (confined.dir / "sub" / ".bashrc").read_text() == "there before\n"
    assert not exists(confined.dir / "new" / ".bashrc")


async def test_a_repository_that_a_command_makes_is_its_own_business(confined: ToolContext) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    made = await sh(
        confined,
        "git init -q new && cd new; ls .git/hooks; git config user.email a@b; git config user.name a"
        " && echo x > x && git add x && git commit -qm one && cd .. && git clone -q new copy.git/"
        " && touch copy.git/.git/hooks/x",
    )
    assert "[exit 0" in made.text
    assert "protected" not in made.text
    then = await sh(confined, "git -C new config user.name b && grep -c 'name = b' new/.git/config")
    assert then.text.startswith("1\n")
    for name in ("new/.git/hooks", "new/.git/config", "copy.git/.git/hooks/x"):
        assert exists(confined.dir / name)


async def test_a_repository_made_a_while_ago_is_protected(
    bubble: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sh(bubble, "mkdir -p new/.git/hooks; touch new/.git/config")
    monkeypatch.setattr(guarded, "FRESH", 0.0)
    await sh(bubble, "echo evil > new/.git/hooks/pre-commit; echo evil > new/.git/config")
    assert list((bubble.dir / "new/.git/hooks").iterdir()) == []
    assert (bubble.dir / "new/.git/config").read_text() == ""


async def test_a_cancelled_command_s_start_up_file_is_taken_away_too(bubble: ToolContext) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sh, bubble, "mkdir sub; echo evil > sub/.bashrc; touch begun; sleep 1000")
            await until((bubble.dir / "begun").exists)
            scope.cancel()
    assert not exists(bubble.dir / "sub" / ".bashrc")


async def test_processes_outside_can_neither_be_seen_nor_signalled(bubble: ToolContext) -> None:
    output = await sh(bubble, f"kill -0 {os.getpid()} || echo no; ls -d /proc/[0-9]* | wc -l")
    first, second = [line for line in output.text.splitlines() if not line.startswith(("bash:", "["))]
    assert first == "no"
    assert int(second) < 6


async def test_root_has_no_way_to_raise_itself_again(bubble: ToolContext) -> None:
    output = await sh(bubble, "mount -t tmpfs none /mnt && echo raised; unshare -m true && echo raised")
    assert "raised" not in output.text


async def test_root_keeps_what_changes_files_and_nothing_else(confined: ToolContext) -> None:
    output = await sh(confined, "grep -E 'Cap(Prm|Eff)' /proc/self/status; mknod disk b 1 0")
    assert not exists(confined.dir / "disk")
    held = 0b1011 if os.geteuid() == 0 else 0
    assert output.text.startswith(f"CapPrm:\t{held:016x}\nCapEff:\t{held:016x}\n")
    if os.geteuid() == 0:
        await sh(confined, "touch a; chmod 600 a; chown 1000:1000 a; echo x > a")
        assert (confined.dir / "a").stat().st_uid == 1000


async def test_full_mode_has_no_sandbox(ctx: ToolContext, elsewhere: Path) -> None:
    await sh(attrs.evolve(ctx, mode="full"), f"echo x > {elsewhere}/x")
    assert (elsewhere / "x").exists()


async def test_none_in_the_config_is_a_workspace_without_a_sandbox(ctx: ToolContext, elsewhere: Path) -> None:
    await sh(attrs.evolve(ctx, sandbox="none"), f"echo x > {elsewhere}/x")
    assert (elsewhere / "x").exists()


async def test_none_in_the_config_leaves_read_only_what_it_says(ctx: ToolContext, elsewhere: Path) -> None:
    read_only = attrs.evolve(ctx, sandbox="none", mode="read-only")
    await sh(read_only, f"echo x > {elsewhere}/x; echo x > x")
    assert not (elsewhere / "x").exists()
    assert not (ctx.dir / "x").exists()


async def test_a_broken_bwrap_is_found_out(ctx: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ctx.dir / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ctx.dir}:{os.environ['PATH']}")
    found = await sandbox.detect(ctx.spawner)
    assert (found.bwrap, found.why) == (None, "bwrap: setting up uid map: Permission denied")


async def test_cancelling_a_sandboxed_command_leaves_nothing(bubble: ToolContext) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            command = "setsid sleep 1000 & touch begun; trap '' TERM; sleep 1000; sleep 1"
            nursery.start_soon(sh, bubble, command)
            await until((bubble.dir / "begun").exists)
            scope.cancel()
    await until(lambda: "sleep" not in below(bubble.spawner.pid), 2)


async def test_a_sandboxed_command_may_clean_up_at_its_time_limit(bubble: ToolContext) -> None:
    command = "trap 'echo cleaned; exit 3' TERM; sleep 1000 & wait"
    output = await Bash().run({"command": command, "timeout": 0.5}, bubble)
    assert output.error == "TIMEOUT"
    assert output.text.startswith("cleaned\n[time limit")
