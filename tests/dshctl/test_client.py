from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dshctl import autostart, client, connection
from dshctl.base import Cli
from dshctl.output import Out
from dshd import __version__, errors, paths, wire
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, SESSION, Fake, Hang, Refuse

NEVER_START = [
    ("ping",), ("status",), ("fsck",), ("paths",), ("config", "check"), ("daemon", "stop"),
    ("daemon", "reload"), ("daemon", "status"), ("log",), ("answer",), ("ls",), ("show",),
    ("message", "s4h8w2c1.1"),
]  # fmt: skip


def test_ping_says_who_is_there(dshctl: Dshctl, fake: Fake) -> None:
    assert dshctl("ping").out.endswith(", pid 4121.\n")
    ran = dshctl("ping", "--json")
    assert (ran.last["type"], ran.last["pid"], ran.last["protocol"], ran.last["exit"]) == ("pong", 4121, 1, 0)
    assert fake.params("daemon.hello")[0]["protocol"] == wire.PROTOCOL


@pytest.mark.parametrize("args", [("ping",), ("status",)])
def test_without_a_daemon_it_is_3_and_an_error_object(dshctl: Dshctl, args: tuple[str, ...]) -> None:
    ran = dshctl("--json", *args)
    assert (ran.code, ran.last["code"], ran.last["exit"]) == (3, "UNREACHABLE", 3)
    assert "dshctl daemon start" in ran.err


def test_status_without_a_daemon_is_a_line_and_nothing_in_a_prompt(dshctl: Dshctl) -> None:
    assert dshctl("status") == (3, "dshd is not running.\n", "")
    assert dshctl("status", "--short") == (3, "", "")


def test_daemon_stop_without_a_daemon_is_done(dshctl: Dshctl) -> None:
    assert dshctl("daemon", "stop") == (0, "dshd is not running.\n", "")


def test_autostart_off_says_so_and_where_one_would_listen(dshctl: Dshctl) -> None:
    ran = dshctl("followup", "x")
    assert ran.code == 3
    assert " ".join(ran.err.split()) == (
        f"dshctl: no daemon at {dshctl.socket}, and starting one is off. "
        "dshctl daemon start"
    )


@pytest.mark.parametrize("args", NEVER_START)
def test_these_never_start_a_daemon_nor_wake_a_socket_that_something_else_listens_at(
    dshctl: Dshctl, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autostart, "spawn", _must_not)
    with Fake(dshctl.socket) as activated:  # a service manager's socket, with no daemon behind it
        ran = dshctl(*args, DSHD_AUTOSTART="1")
    assert activated.connections == 0
    assert ran.code in (0, 3, 4)


def _must_not(*_: object) -> Any:
    raise AssertionError("a daemon would have been started")


def test_a_daemon_that_takes_the_connection_and_says_nothing_is_3(
    dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HELLO_S", 0.2)
    dshctl.socket.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(dshctl.socket))
        silent.listen()
        ran = dshctl("followup", "x")
    assert ran.code == 3
    assert "does not answer" in ran.err
    assert "said nothing for 0.2 s" in ran.err


@pytest.mark.parametrize("argv", [("followup", "x"), ("ping",), ("daemon", "stop")])
def test_timeout_counts_while_the_daemon_does_not_greet(dshctl: Dshctl, argv: tuple[str, ...]) -> None:
    dshctl.socket.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(dshctl.socket))
        silent.listen()
        ran = dshctl(*argv, "--socket", str(dshctl.socket), "--timeout", "0.2", "--json")
    assert (ran.code, ran.last["code"]) == (124, "TIMED_OUT")


def test_a_full_queue_of_connections_is_a_daemon_that_does_not_answer(
    dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HELLO_S", 0.2)
    dshctl.socket.parent.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket(socket.AF_UNIX))
        full.bind(str(dshctl.socket))
        full.listen(0)
        stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(dshctl.socket))
        assert dshctl("followup", "x", "--timeout", "0.1").code == 124
        ran = dshctl("followup", "x")
    assert ran.code == 3
    assert "does not answer" in ran.err


@pytest.mark.parametrize(("stopped", "hint"), [(True, "kill -CONT {}"), (False, "kill -9 {}")])
def test_one_that_does_not_answer_is_named_with_what_helps(
    stopped: bool, hint: str, dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HELLO_S", 0.2)
    dshctl.state.mkdir()
    dshctl.socket.parent.mkdir(parents=True)
    with (
        subprocess.Popen(["sleep", "60"]) as hanging,
        (dshctl.state / "lock").open("w") as held,
        socket.socket(socket.AF_UNIX) as silent,
    ):
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(f"{hanging.pid} 0\n")
        held.flush()
        if stopped:
            hanging.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, hanging.pid, os.WSTOPPED)
        silent.bind(str(dshctl.socket))
        silent.listen()
        ran = dshctl("status")
        hanging.kill()
    assert ran.code == 3
    assert f"dshd {hanging.pid} {'is stopped' if stopped else 'does not answer'}" in ran.err
    assert hint.format(hanging.pid) in ran.err


def test_a_stopped_daemon_is_3_for_what_never_starts_one_too(
    dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HELLO_S", 0.2)
    dshctl.state.mkdir()
    dshctl.socket.parent.mkdir(parents=True)
    with (dshctl.state / "lock").open("w") as held, socket.socket(socket.AF_UNIX) as silent:
        fcntl.flock(held, fcntl.LOCK_EX)
        silent.bind(str(dshctl.socket))
        silent.listen()
        assert [dshctl(command).code for command in ("ping", "status", "fsck")] == [3, 3, 3]


EVERY_WAY = [
    ("ping",), ("status",), ("daemon", "stop"), ("daemon", "restart"), ("daemon", "start"),
    ("log", "-s", "x"), ("export", "x"), ("fsck",), ("ls",), ("followup", "x"),
]  # fmt: skip


@pytest.mark.parametrize("args", EVERY_WAY, ids=" ".join)
def test_one_whose_socket_is_gone_is_named_and_none_is_started(
    args: tuple[str, ...], dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HIDDEN_S", 0.1)
    monkeypatch.setattr(autostart, "spawn", _must_not)
    monkeypatch.setattr(autostart, "check", lambda _client: None)
    dshctl.socket.unlink()
    ran = dshctl(*args, DSHD_AUTOSTART="1")
    assert ran.code == 3
    words = " ".join(ran.err.split())
    assert f"dshd 4121 runs and nobody can reach it: its socket {dshctl.socket} is gone." in words
    assert "kill 4121 " in ran.err


def test_one_that_makes_its_socket_again_is_waited_for(
    dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = dshctl.socket.rename(dshctl.socket.with_name("hidden"))
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            hidden.rename(dshctl.socket)

    monkeypatch.setattr("dshctl.client.time.sleep", nap)
    assert dshctl("ping").code == 0
    assert len(naps) == 3


def test_what_stands_in_the_place_of_its_socket_is_told(
    dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HIDDEN_S", 0.1)
    dshctl.socket.unlink()
    dshctl.socket.write_text("precious")
    ran = dshctl("ping")
    assert ran.code == 3
    assert f"what is at {dshctl.socket} is not its socket." in " ".join(ran.err.split())
    assert f"ls -l {dshctl.socket}" in ran.err


def test_another_socket_than_that_of_the_daemon_is_told_at_once(dshctl: Dshctl, fake: Fake) -> None:
    link = dshctl.state / "run" / "dshd.sock"
    link.parent.mkdir()
    link.symlink_to(dshctl.socket)
    ran = dshctl("followup", "--spool", "x", "--socket", "/nonexistent/sock")
    assert ran.code == 3
    assert f"listens at {dshctl.socket}." in " ".join(ran.err.split())
    assert not (dshctl.state / "spool").exists() or not list((dshctl.state / "spool").iterdir())


def test_another_version_is_told_on_stderr(dshctl: Dshctl, fake: Fake) -> None:
    fake.hello["version"] = "9.9"
    fake.answers["session.send"] = RECEIPT
    ran = dshctl("followup", "x")
    assert ran.out == "s4h8w2c1.17\n"
    assert "the daemon is 9.9" in ran.err
    assert "dshctl daemon restart" in ran.err


def test_another_protocol_is_refused_by_the_daemon_and_told(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["daemon.hello"] = None
    fake._result = lambda *_: (_ for _ in ()).throw(Refuse("INVALID", "protocol 1 is not spoken here"))  # type: ignore[method-assign]
    ran = dshctl("followup", "x")
    assert ran.code == 2
    assert "protocol 1 is not spoken here" in ran.err


def test_what_is_not_dshd_is_not_believed(dshctl: Dshctl) -> None:
    dshctl.socket.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(dshctl.socket))
        other.listen()
        thread = threading.Thread(target=_speak_http, args=(other,))
        thread.start()
        ran = dshctl("followup", "x")
        thread.join()
    assert ran.code == 3
    assert "is not dshd" in ran.err


def _speak_http(listener: socket.socket) -> None:
    peer, _ = listener.accept()
    with peer:
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("length", [90, 107, 108, 150, 220])
def test_a_socket_path_of_any_length_is_reached(dshctl: Dshctl, length: int) -> None:
    deep = dshctl.home
    while len(str(deep)) < length - 10:
        deep = deep / ("d" * min(50, length - 10 - len(str(deep))))
    deep.mkdir(parents=True, exist_ok=True)
    path = deep / ("s" * (length - len(str(deep)) - 1))
    with Listening(path) as answered:
        assert dshctl("ping", "--socket", str(path)).code == 0
    assert answered.hellos == 1


class Listening:
    """A daemon at a path that may be too long for an address."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hellos = 0

    def __enter__(self) -> Listening:
        self._socket = socket.socket(socket.AF_UNIX)
        here = os.open(self.path.parent, os.O_PATH)
        self._socket.bind(f"/proc/self/fd/{here}/{self.path.name}")
        os.close(here)
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self) -> None:
        peer, _ = self._socket.accept()
        with peer, peer.makefile("rb") as lines:
            lines.readline()
            peer.sendall(
                b'{"jsonrpc":"2.0","id":1,"result":{"protocol":1,"version":"%b","pid":1}}\n'
                % __version__.encode()
            )
            self.hellos += 1

    def __exit__(self, *_: object) -> None:
        self._thread.join(5)
        self._socket.close()


def test_lines_are_framed_however_they_come(dshctl: Dshctl) -> None:
    ours, theirs = socket.socketpair()
    ends = connection.Connection(ours)
    big = "x" * 300_000
    data = b'{"id":1,"result":"a\\u2028b"}\n{"id":2,"result":"%b"}\n{"id":3}\n' % big.encode()

    def send() -> None:
        for at in range(0, len(data), 4096):
            theirs.sendall(data[at : at + 4096])
        theirs.close()

    thread = threading.Thread(target=send)
    thread.start()
    assert ends.receive(5) == {"id": 1, "result": "a\u2028b"}
    assert ends.receive(5)["result"] == big
    assert ends.receive(5) == {"id": 3}
    with pytest.raises(connection.Lost):
        ends.receive(5)
    thread.join()
    ours.close()


def test_a_read_is_asked_again_after_a_lost_connection(dshctl: Dshctl, fake: Fake) -> None:
    from tests.dshctl.fake import Drop

    fake.answers["session.show"] = [Drop(), SESSION]
    assert dshctl("show", "api").code == 0


def test_timeout_is_for_the_whole_command(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.show"] = Hang()
    started = time.monotonic()
    ran = dshctl("show", "--timeout", "0.3", "--json")
    assert ran.code == 124
    assert ran.last["code"] == "TIMED_OUT"
    assert time.monotonic() - started < 5


# Starting one.

DAEMON = """
import fcntl, json, os, socket, sys, time
state, path = sys.argv[1:3]
lock = open(os.path.join(state, "lock"), "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("dshd: in use", file=sys.stderr); sys.exit(5)
open(os.path.join(state, "started"), "a").write(f"{os.getpid()}\\n")
time.sleep(0.2)
os.makedirs(os.path.dirname(path), exist_ok=True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path + ".new"); listener.listen(64); os.rename(path + ".new", path)
listener.settimeout(5)
about = {"cwd": os.getcwd(), "umask": os.umask(0), "sid": os.getsid(0) == os.getpid(),
         "environ": dict(os.environ), "fds": sorted(os.listdir("/proc/self/fd"), key=int)}
open(os.path.join(state, "about"), "w").write(json.dumps(about))
for _ in range(int(sys.argv[3])):
    peer, _ = listener.accept()
    peer.makefile().readline()
    about = {"protocol": 1, "version": sys.argv[4], "pid": 1}
    peer.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "result": about}).encode() + b"\\n")
    time.sleep(0.01)
time.sleep(float(sys.argv[5]))
"""


@pytest.fixture
def start(dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start a stand-in for the daemon that greets ``clients`` times, from this process."""
    for name in list(os.environ):
        if name.startswith(("DSHD_", "XDG_")):
            monkeypatch.delenv(name)
    for name, value in dshctl.environ.items():
        monkeypatch.setenv(name, value)
    script = dshctl.home / "daemon.py"
    script.write_text(DAEMON)
    started: list[Any] = []
    spawn = autostart.spawn

    def spawned(*args: Any) -> Any:
        started.append(spawn(*args))
        return started[-1]

    monkeypatch.setattr(autostart, "spawn", spawned)

    def run(
        clients: int = 1, *, argv: list[str] | None = None, stay: float = 0.0
    ) -> tuple[Cli, connection.Connection]:
        own = [
            sys.executable,
            str(script),
            str(dshctl.state),
            str(dshctl.socket),
            str(clients),
            __version__,
            str(stay),
        ]
        monkeypatch.setattr(autostart, "command", lambda cli: argv or own)
        cli = Cli(Out({}))
        cli.out.quiet = True
        cli.autostart = True
        return cli, autostart.start(cli.client())

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_a_daemon_is_started_detached_in_a_clean_environment(
    dshctl: Dshctl, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    dshctl.state.mkdir()
    (dshctl.home / "config.toml").write_text('[routes.fast]\napi_key_env = "FAST_API_KEY"\n')
    for name in ("GIT_DIR", "FAST_API_KEY", "AWS_SECRET", "PYTHONPATH", "LC_TIME"):
        monkeypatch.setenv(name, "x")
    _, connection = start()
    connection.close()
    about = json.loads((dshctl.state / "about").read_text())
    assert (about["cwd"], about["umask"], about["sid"]) == ("/", 0o077, True)
    assert {"HOME", "DSHD_HOME", "FAST_API_KEY", "LC_TIME", "PATH"} <= about["environ"].keys()
    assert not {"GIT_DIR", "AWS_SECRET", "PYTHONPATH"} & about["environ"].keys()
    assert len(about["fds"]) <= 6  # 0, 1, 2, the lock, the socket, and the listing itself


def test_many_that_start_at_once_start_one(
    dshctl: Dshctl, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import multiprocessing

    dshctl.state.mkdir()
    count = 12
    context = multiprocessing.get_context("fork")
    gate = context.Event()

    def one() -> None:
        gate.wait()
        start(count + 5)[1].close()

    workers = [context.Process(target=one) for _ in range(count)]
    for worker in workers:
        worker.start()
    gate.set()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0] * count
    assert len((dshctl.state / "started").read_text().splitlines()) == 1
    os.kill(int((dshctl.state / "started").read_text()), 9)


def test_the_reason_why_it_did_not_start_is_shown(dshctl: Dshctl, start: Any) -> None:
    say = (
        "import sys; print('config.toml:7: routes.fast.max_token: unknown key', file=sys.stderr); sys.exit(9)"
    )
    with pytest.raises(errors.NotConfigured) as failed:
        start(argv=[sys.executable, "-c", say])
    assert failed.value.message == "dshd did not start:\nconfig.toml:7: routes.fast.max_token: unknown key"


def test_one_that_ends_for_another_reason_was_not_reached(dshctl: Dshctl, start: Any) -> None:
    with pytest.raises(errors.Unreachable, match=r"ended with 5\. Its last line was:\nin use"):
        start(argv=[sys.executable, "-c", "import sys; print('in use', file=sys.stderr); sys.exit(5)"])


@pytest.mark.parametrize(
    ("log", "line", "hint"),
    [
        ("", "", ""),
        ("one\ntwo\n\n", "two", ""),
        ("dshd: bad config\n      dshctl config check\n", "bad config", "dshctl config check"),
        ("  | TypeError: no\n  +------\n", "TypeError: no", ""),
    ],
)
def test_a_daemons_last_words(tmp_path: Path, log: str, line: str, hint: str) -> None:
    (tmp_path / "log").write_text(f"before\n{log}")
    assert autostart.last_words(str(tmp_path / "log"), 7) == (line, hint)


def test_one_that_does_not_get_ready_is_given_up(
    dshctl: Dshctl, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autostart, "READY_S", 0.3)
    with pytest.raises(errors.Unreachable, match=r"did not get ready in 0\.3 s"):
        start(argv=[sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_daemon_that_is_starting_is_waited_for_and_not_doubled(
    dshctl: Dshctl, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dshctl.state.mkdir()
    fake = Fake(dshctl.socket)
    with (dshctl.state / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        timer = threading.Timer(0.3, fake.__enter__)
        timer.start()
        _, connection = start(argv=["/nonexistent"])
        connection.close()
        timer.join()
        fake.__exit__()


def test_a_state_that_cannot_be_made_is_said(dshctl: Dshctl, start: Any) -> None:
    dshctl.state.write_text("a file")
    with pytest.raises(errors.Unreachable, match="can't be started"):
        start()


def test_a_long_log_is_set_aside(tmp_path: Path) -> None:
    log = tmp_path / "dshd.log"
    assert autostart._prepare_log(str(log)) == 0
    log.write_text("x" * 100)
    assert autostart._prepare_log(str(log)) == 100
    log.write_text("x" * (autostart._LOG_MAX + 1))
    assert autostart._prepare_log(str(log)) == 0
    assert (tmp_path / "dshd.log.old").exists()


def test_the_daemon_gets_the_socket_that_was_named(dshctl: Dshctl) -> None:
    cli = Cli(Out({}))
    cli.socket = "/x/y.sock"
    assert autostart.command(cli)[-2:] == ["--socket", "/x/y.sock"]


def test_relative_places_are_absolute_for_a_daemon_that_sits_in_the_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = paths.find_places({"DSHD_HOME": "/h"})
    environ = autostart.environment({"DSHD_HOME": "rel", "HOME": "/h"}, places)
    assert environ["DSHD_HOME"] == os.path.abspath("rel")
