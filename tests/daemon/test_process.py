"""The real process: how it starts, what it keeps of its surroundings, how it ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dshd import paths

PATIENCE = 20.0  # s, for what takes tenths of one
Json = dict[str, Any]


def eventually(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)
    return found


class Home:
    """A ``DSHD_HOME`` and the daemons started in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {"HOME": str(path / "home"), "DSHD_HOME": str(path), "PATH": os.environ["PATH"]}
        self.socket = path / "run" / "dshd.sock"
        self.state = path / "state"
        self.log = path / "stderr"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *args: str, ready: bool = True, **how: Any) -> subprocess.Popen[bytes]:
        how = {"env": self.env, "cwd": self.path, "start_new_session": True, **how}
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "dshd", *args], stdin=subprocess.DEVNULL, stderr=log, **how
            )
        self.started.append(process)
        if ready:
            eventually(lambda: self.answers() or process.poll() is not None)
            assert process.poll() is None, self.log.read_text()
        return process

    def answers(self, path: Path | None = None) -> bool:
        try:
            return bool(self.call("daemon.hello", protocol=1, path=path))
        except OSError:
            return False

    def call(self, method: str, path: Path | None = None, **params: Any) -> Json:
        with paths.connect(str(path or self.socket), PATIENCE) as sock, sock.makefile("rwb") as lines:
            hello = {"jsonrpc": "2.0", "id": 0, "method": "daemon.hello", "params": {"protocol": 1}}
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            for one in [hello] if method == "daemon.hello" else [hello, request]:
                lines.write(json.dumps(one).encode() + b"\n")
                lines.flush()
                answer = json.loads(lines.readline())
            assert "result" in answer, answer
            result: Json = answer["result"]
            return result

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "dshd", *args], env={**self.env, **env}, capture_output=True,
            text=True, timeout=PATIENCE, cwd=self.path, check=False,
        )  # fmt: skip

    def pid(self) -> int:
        pid: int = self.call("daemon.hello", protocol=1)["pid"]
        return pid


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    for process in home.started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
    process.send_signal(number)
    return process.wait(PATIENCE)


def environment_of(pid: int) -> dict[str, str]:
    items = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(item.decode().split("=", 1) for item in items if b"=" in item)


# ---------------------------------------------------------------- starting


def test_a_second_daemon_changes_nothing_and_says_who_is_there(home: Home) -> None:
    first = home.start()
    eventually((home.state / "reserve").exists)

    def all_there() -> list[tuple[str, int]]:
        places = (*home.state.rglob("*"), home.state, *home.socket.parent.iterdir())
        return sorted((str(path), path.lstat().st_mtime_ns) for path in places)

    before = all_there()
    second = home.run()
    assert second.returncode == 5
    assert f"is in use by dshd {first.pid} since" in second.stderr
    assert "Traceback" not in second.stderr
    assert all_there() == before
    assert home.pid() == first.pid


@pytest.mark.parametrize("content", [b"", b"\x00" * 9, b"garbage", f"{os.getpid()} 1\n".encode()])
def test_whatever_the_lock_file_holds_only_the_lock_counts(home: Home, content: bytes) -> None:
    home.state.mkdir()
    (home.state / "lock").write_bytes(content)
    assert end(home.start()) == 0


def test_after_a_kill_it_starts_over_the_stale_socket(home: Home) -> None:
    assert end(home.start(), signal.SIGKILL) == -signal.SIGKILL
    assert home.socket.exists()
    home.start()


def test_what_is_in_the_way_of_the_socket_is_left_alone(home: Home) -> None:
    home.socket.parent.mkdir(mode=0o700)
    home.socket.write_text("precious")
    done = home.run()
    assert (done.returncode, home.socket.read_text()) == (5, "precious")
    assert "is in the way" in done.stderr


def test_a_state_that_cannot_be_used_is_told_with_its_path(home: Home) -> None:
    home.state.mkdir()
    (home.state / "sessions").write_text("in the way")
    done = home.run()
    assert done.returncode == 1
    assert f"{home.state}/sessions" in done.stderr
    assert "Traceback" not in done.stderr


def descriptors(pid: int) -> Iterator[str]:
    """What a process has open; what it closes meanwhile is left out."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


def test_it_keeps_nothing_that_it_was_started_with(home: Home) -> None:
    read, write = os.pipe()
    env = {**home.env, "GIT_DIR": "/x", "AWS_SECRET": "s", "FAST_KEY": "f", "LC_TIME": "C", "FOO": "1"}
    (home.path / "config.toml").write_text('[routes.fast]\nadapter = "openai"\napi_key_env = "FAST_KEY"\n')
    process = home.start(env=env, pass_fds=[read, write], preexec_fn=lambda: os.umask(0))
    os.close(read)
    os.close(write)
    pid = process.pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.getsid(pid) == pid
    status = Path(f"/proc/{pid}/status").read_text()
    assert "Umask:\t0077" in status
    assert not [link for link in descriptors(pid) if link.startswith("pipe:")]
    inside = [path for path in home.state.rglob("*") if not path.is_symlink()]
    assert not [path for path in inside if path.lstat().st_mode & 0o077]
    assert set(environment_of(pid)) - {"LC_CTYPE"} == {"HOME", "DSHD_HOME", "PATH", "LC_TIME"}
    assert environment_of(pid)["PATH"] == paths.DEFAULT_PATH
    shown = home.call("session.create", dir="/", model="rehearsal", text="run: env | sort", mode="full")
    result = home.call("session.wait", messages=[shown["receipt"]["message"]])["results"][0]
    assert "AWS_SECRET" not in result["text"]
    assert "GIT_DIR" not in result["text"]
    assert "FAST_KEY" not in result["text"]


def test_a_long_path_to_the_socket_works(home: Home) -> None:
    path = home.path / ("d" * 120) / "dshd.sock"
    home.start("--socket", str(path), ready=False)
    eventually(lambda: home.answers(path))
    link = home.state / "run" / "dshd.sock"
    assert os.readlink(link) == str(path)
    assert home.answers(link)


def test_it_works_without_home_and_with_nothing_but_path(home: Home) -> None:
    home.env = {"DSHD_HOME": str(home.path), "PATH": "/usr/bin:/bin", "LC_ALL": "POSIX", "PYTHONUTF8": "0",
                "PYTHONCOERCECLOCALE": "0"}  # fmt: skip
    home.start()
    made = home.call("session.create", dir="/", model="rehearsal", text="grüße 🌍", name="ü")
    result = home.call("session.wait", messages=[made["receipt"]["message"]])["results"][0]
    assert "grüße 🌍" in result["text"]


def test_a_shell_with_a_terminal_keeps_it_in_the_foreground(home: Home) -> None:
    ours, theirs = pty.openpty()
    script = f"{sys.executable} -P -m dshd 2>{home.log}; echo ended with $?"
    shell = subprocess.Popen(
        ["bash", "--norc", "-ic", f"set -m; {script}"], env={**home.env, "TERM": "dumb"}, stdin=theirs,
        stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    eventually(home.answers)
    pid = home.pid()
    assert os.getsid(pid) == pid
    os.write(ours, b"\x03")
    shell.wait(PATIENCE)
    said = b""
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 4096):
            said += piece
    os.close(ours)
    assert b"ended with 0" in said
    assert not home.answers()


# ---------------------------------------------------------------- ending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well_and_takes_the_socket_away(home: Home, number: int) -> None:
    process = home.start()
    assert end(process, number) == 0
    assert not home.socket.exists()
    assert "stopped" in home.log.read_text()


def test_a_request_ends_it_and_is_answered(home: Home) -> None:
    process = home.start()
    assert home.call("daemon.stop")["type"] == "stopping"
    assert process.wait(PATIENCE) == 0


def test_a_second_signal_does_not_wait_for_the_grace(home: Home) -> None:
    (home.path / "config.toml").write_text('[daemon]\nshutdown_grace = "1h"\n')
    process = home.start()
    home.call("session.create", dir="/", model="rehearsal", text="run: sleep 60", mode="full", name="busy")
    eventually(lambda: "sleep" in str(home.call("session.show", session="busy")["doing"]))
    process.terminate()
    eventually(lambda: home.call("daemon.status")["stopping"])
    receipt = home.call("session.send", session="busy", verb="followup", text="later")
    assert (receipt["state"], receipt["warning"]) == ("pending", "stopping")
    began = time.monotonic()
    assert end(process) == 0
    assert time.monotonic() - began < 10
    home.start()
    eventually(lambda: home.call("message.show", message=receipt["message"])["state"] == "settled")


def test_it_leaves_when_it_is_idle_and_asked_to(home: Home) -> None:
    (home.path / "config.toml").write_text("[daemon]\nidle_exit = 0.5\n")
    process = home.start()
    home.call("session.create", dir="/", model="rehearsal", text="wait 2", mode="full", name="busy")
    time.sleep(1.2)
    assert process.poll() is None
    assert process.wait(PATIENCE) == 0


# ---------------------------------------------------------------- the config


def test_a_config_with_an_error_starts_nothing(home: Home) -> None:
    (home.path / "config.toml").write_text("[driver]\nmax_runing = 5\n")
    for arguments in ([], ["--check"]):
        done = home.run(*arguments)
        assert done.returncode == 9
        assert done.stderr.startswith(
            f"dshd: {home.path}/config.toml:2: driver.max_runing: unknown key; did you mean max_running?"
        )
    assert not home.socket.exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[plugins.rate_limt]\nper_minute = 1", "did you mean rate_limit?"),
        ("[plugins.content_filter]\ndeny = ['(']", "content_filter"),
        ("[routes.rehearsal]\nprofile = { nul_content = true }", "profile.nul_content"),
    ],
)
def test_checking_looks_at_what_the_rooms_below_know(home: Home, text: str, says: str) -> None:
    (home.path / "config.toml").write_text(text)
    done = home.run("--check")
    assert done.returncode == 9
    assert says in done.stderr


def test_a_good_config_is_called_good_and_a_missing_one_that_was_named_is_not(home: Home) -> None:
    assert home.run("--check").returncode == 0
    done = home.run("--check", "--config", "nowhere.toml")
    assert (done.returncode, "no config file" in done.stderr) == (9, True)
    assert home.run("--check", DSHD_CONFIG="nowhere.toml").returncode == 9
    assert not home.state.exists()


def test_a_reload_takes_a_good_config_and_keeps_the_old_one_for_a_bad(home: Home) -> None:
    config = home.path / "config.toml"
    process = home.start()
    config.write_text("[inbox]\nmax_pendin = 1\n")
    process.send_signal(signal.SIGHUP)
    eventually(lambda: f"old one stays: {config}:2: inbox.max_pendin" in home.log.read_text())
    config.write_text("[inbox]\nmax_pending = 1\n[plugins.rate_limit]\nper_minute = 5\n")
    home.call("daemon.reload")
    home.call("session.create", dir="/", model="rehearsal", name="small")
    home.call("session.send", session="small", verb="inject", text="one")
    with pytest.raises(AssertionError, match="FULL"):
        home.call("session.send", session="small", verb="inject", text="two")
    config.write_text("")
    process.send_signal(signal.SIGHUP)
    eventually(lambda: home.log.read_text().count("config read again") == 2)
    home.call("session.send", session="small", verb="inject", text="two")


def test_its_log_names_no_text_and_can_be_read_by_programs(home: Home) -> None:
    process = home.start("--log", "json")
    home.call("session.create", dir="/", model="rehearsal", text="a very secret text", name="s")
    eventually(lambda: home.call("session.show", session="s")["state"] == "idle")
    end(process)
    lines = [json.loads(line) for line in home.log.read_text().splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    assert "secret" not in home.log.read_text()


def test_version_and_usage(home: Home) -> None:
    assert home.run("--version").stdout.startswith("dshd ")
    assert home.run("--nonsense").returncode == 2
    assert home.run("--conf", "x").returncode == 2


# ---------------------------------------------------------------- systemd


def test_it_takes_a_socket_from_systemd_tells_its_state_and_leaves_the_name(home: Home) -> None:
    address = str(home.path / "notify")
    listening = home.path / "activated.sock"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify,
        socket.socket(socket.AF_UNIX) as ready,
    ):
        notify.bind(address)
        notify.settimeout(PATIENCE)
        ready.bind(str(listening))
        ready.listen()
        process = _activated(home, ready, address)
        heard = _hear(notify, "READY=1")
        assert home.answers(listening)
        process.send_signal(signal.SIGHUP)
        assert _hear(notify, "RELOADING=1")
        assert _hear(notify, "READY=1")
        assert _hear(notify, "WATCHDOG=1")
        assert end(process) == 0
        assert _hear(notify, "STOPPING=1")
        assert listening.exists()
        assert heard


def _activated(home: Home, ready: socket.socket, address: str) -> subprocess.Popen[bytes]:
    """As systemd starts it: descriptor 3 listens, and the pid is named."""
    code = (
        f"import os, sys; os.dup2({ready.fileno()}, 3); "
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', "
        f"NOTIFY_SOCKET={address!r}, WATCHDOG_USEC='200000'); "
        "os.execv(sys.executable, [sys.executable, '-P', '-m', 'dshd'])"
    )
    with open(home.log, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=home.env, pass_fds=[ready.fileno()], stderr=log,
            start_new_session=True,
        )  # fmt: skip
    home.started.append(process)
    return process


def _hear(notify: socket.socket, word: str) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if notify.recv(1000).decode().startswith(word):
            return True
    return False


# ---------------------------------------------------------------- few descriptors


def test_more_clients_than_descriptors_do_not_keep_it_from_working(home: Home) -> None:
    def few() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    process = home.start(preexec_fn=few)
    clients = []
    for _ in range(100):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(1)
        with contextlib.suppress(OSError):
            client.connect(str(home.socket))
        clients.append(client)
    before = _cpu(process.pid)
    time.sleep(0.5)
    assert _cpu(process.pid) - before < 0.3
    for client in clients:
        client.close()
    assert eventually(home.answers)
    assert home.log.read_text().count("\n") < 10


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
