"""dshctl and a real dshd, from the places where commands are really typed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.dshctl.conftest import Ran

Json = dict[str, Any]


class Home:
    """A home with a rehearsal model; what runs in it ends with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / "work"
        self.work.mkdir(parents=True)
        (path / "config.toml").write_text('model = "rehearsal"\n')
        self.bare = {"PATH": "/usr/bin:/bin", "DSHD_HOME": str(path)}

    def __call__(self, *args: str, env: dict[str, str] | None = None, **options: Any) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "dshctl", *args],
            env={**self.bare, **(env or {})}, cwd=options.pop("cwd", self.work), capture_output=True,
            timeout=60, stdin=options.pop("stdin", subprocess.DEVNULL), check=False, **options,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def daemon(self) -> int:
        return int((self.path / "state" / "lock").read_text().split()[0])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("home"))
    yield made
    made("daemon", "stop")


def test_twenty_that_need_a_daemon_at_once_start_one(home: Home) -> None:
    with ThreadPoolExecutor(20) as pool:
        ran = list(
            pool.map(lambda n: home("followup", "-s", "many", "--create", "--no-wake", f"m{n}"), range(20))
        )
    assert [one.code for one in ran] == [0] * 20, ran
    assert len({one.out for one in ran}) == 20
    assert sum("started dshd" in one.err for one in ran) == 1
    assert sum("new session many" in one.err for one in ran) == 1
    assert (home.path / "state" / "dshd.log").read_text().count("is ready") == 1


def test_from_cron_in_the_posix_locale_text_comes_back_as_it_was(home: Home) -> None:
    posix = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    ran = home("run", "-q", "-C", str(home.work), "run: echo ü你🌍", env=posix, cwd="/")
    assert ran.code == 0, ran
    assert "ü你🌍" in ran.out
    assert ran.err == ""


def test_the_session_gets_the_locale_that_the_user_set_and_no_other(home: Home) -> None:
    session = home("new", "--name", "locale", env={"LC_TIME": "C.UTF-8"}).out.strip()
    (header, *_) = home("log", session, "--all", "-o", "json").objects
    given = header["data"]["env"]
    assert {name for name in given if name.startswith(("LC_", "LANG"))} == {"LC_TIME"}


def test_from_a_deleted_directory_a_session_can_be_named(home: Home, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    script = f'mkdir "{gone}" && cd "{gone}" && rmdir "{gone}" && exec "{sys.executable}" -m dshctl "$@"'
    command = ["sh", "-c", script, "sh"]

    def run(*args: str) -> int:
        done = subprocess.run(
            [*command, *args], env=home.bare, capture_output=True, stdin=subprocess.DEVNULL, check=False
        )
        return done.returncode

    assert run("followup", "-s", "many", "--no-wake", "x") == 0
    assert run("followup", "x") == 4
    assert run("run", "x") == 2
    assert run("run", "-q", "-C", str(home.work), "run: true") == 0
    assert [run("ping"), run("ls"), run("status")] == [0, 0, 0]


def test_a_directory_whose_name_is_no_text_is_not_called_gone_and_a_session_can_be_named(
    home: Home, tmp_path: Path
) -> None:
    odd = os.fsencode(tmp_path) + b"/odd\xff"
    os.mkdir(odd)
    for args in (("steer", "x"), ("followup", "x"), ("run", "x")):
        ran = home(*args, cwd=odd)
        assert ran.code in (2, 4)
        assert "its name is no UTF-8" in " ".join(ran.err.split())
    assert home("followup", "-s", "many", "--no-wake", "x", cwd=odd).code == 0


def test_a_socket_under_a_long_path_works(tmp_path: Path) -> None:
    deep = Home(tmp_path / ("x" * 60) / ("y" * 60))
    try:
        assert deep("run", "-q", "run: echo deep").code == 0
        assert deep("ping").code == 0
    finally:
        assert deep("daemon", "stop").code == 0


WRONG = '[routes.fast]\nadapter = "openai"\nmax_token = 1\n'
SAYS = "config.toml:3: routes.fast.max_token: unknown key; did you mean max_tokens?"


@pytest.mark.parametrize("args", [("run", "x"), ("followup", "x"), ("models",), ("daemon", "start")])
def test_a_wrong_config_is_9_for_whoever_would_start_a_daemon(tmp_path: Path, args: tuple[str, ...]) -> None:
    wrong = Home(tmp_path / "wrong")
    (wrong.path / "config.toml").write_text(WRONG)
    ran = wrong(*args)
    assert ran.code == 9
    assert f"{wrong.path}/{SAYS}" in ran.err
    assert "dshctl config check" in ran.err


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.toml", WRONG, SAYS),
        ("config.toml", "[plugins.nothing]\n", "nothing"),
        ("env", "A=b\n", "chmod 600"),
    ],
)
def test_a_restart_leaves_the_daemon_alone_if_no_other_would_start(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    home = Home(tmp_path / "home")
    assert home("daemon", "start").code == 0
    before = home.daemon()
    (home.path / name).write_text(text)
    ran = home("daemon", "restart")
    assert (ran.code, home.daemon()) == (9, before), ran
    assert says in ran.err
    assert home("ping").code == 0
    (home.path / name).unlink()
    (home.path / "config.toml").write_text('model = "rehearsal"\n')
    assert home("daemon", "restart").code == 0
    assert home.daemon() != before
    assert home("daemon", "stop").code == 0


def test_without_its_lock_file_a_daemon_is_found_stopped_and_not_doubled(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert home("daemon", "start").code == 0
    (home.path / "state" / "lock").unlink()
    assert [home(*args).code for args in (("ping",), ("status",), ("daemon", "status"))] == [0, 0, 0]
    other = subprocess.run(
        [sys.executable, "-m", "dshd", "--socket", str(tmp_path / "other.sock")],
        env=home.bare, capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert other.returncode == 5
    assert home("ping", "--socket", str(tmp_path / "other.sock")).code == 3
    assert home("daemon", "stop").out == "dshd stopped.\n"
    assert home("ping").code == 3


def test_a_stopped_daemon_is_told_from_a_missing_one_and_how_to_wake_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert home("daemon", "start").code == 0
    pid = home.daemon()
    os.kill(pid, signal.SIGSTOP)
    try:
        ran = home("ping", "--timeout", "0.5")
        assert (ran.code, ran.out) == (124, "")
        ran = home("followup", "x")
        assert ran.code == 3
        assert f"dshd {pid} is stopped" in ran.err
        assert f"kill -CONT {pid}" in ran.err
    finally:
        os.kill(pid, signal.SIGCONT)
    assert home("daemon", "stop").code == 0


def test_what_is_shown_is_the_same_with_and_without_a_daemon(home: Home) -> None:
    home("followup", "-s", "same", "--create", "--wait", "run: echo one")
    last = home("followup", "-s", "same", "--wait", "--json", "what is in this directory?").last
    asked = [("answer", "-s", "same"), ("log", "same"), ("log", "same", "--all", "--chunks", "-o", "json"),
             ("message", last["message"]), ("show", "same", "--json"), ("ls", "--json")]  # fmt: skip
    with_daemon = [home(*args) for args in asked]
    assert home("daemon", "stop").code == 0
    without = [home(*args) for args in asked]
    for args, a, b in zip(asked, with_daemon, without, strict=True):
        assert a.code == b.code == 0, args
        if args[-1] == "--json":
            assert [_stable(one) for one in a.objects] == [_stable(one) for one in b.objects]
        else:
            assert a == b, args


def _stable(session: Json) -> Json:
    return {key: value for key, value in session.items() if key not in ("log", "since_at")}


def test_a_follower_and_a_waiter_go_through_a_kill_without_gap_or_repeat(home: Home) -> None:
    home("daemon", "start")
    session = home("new", "--name", "followed").out.strip()
    out = home.path / "followed.out"
    with out.open("wb") as file:
        follower = subprocess.Popen(
            [sys.executable, "-m", "dshctl", "log", "-f", "followed", "--all", "--chunks", "-o", "json"],
            env=home.bare,
            stdout=file,
            stdin=subprocess.DEVNULL,
        )
    home("followup", "-s", "followed", "--wait", "run: echo one")
    os.kill(home.daemon(), signal.SIGKILL)
    ran = home("followup", "-s", "followed", "--wait", "run: echo two")
    assert ran.code == 0, ran
    assert home("daemon", "restart").code == 0
    last = home("followup", "-s", "followed", "run: echo three").out.strip()
    assert home("wait", last).code == 0
    log = home.path / "state" / "sessions" / session / "log.jsonl"
    _until(lambda: out.read_bytes() == log.read_bytes())
    follower.terminate()
    assert follower.wait(10) == 143


def _until(look: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not look():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_tied_work_ends_with_its_client(home: Home) -> None:
    client = subprocess.Popen(
        [sys.executable, "-m", "dshctl", "run", "--tied", "--json", "run: sleep 60"], env=home.bare,
        cwd=home.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert client.stdout
    receipt = json.loads(client.stdout.readline())
    _until(lambda: home("message", receipt["message"], "--json").last["state"] == "entered")
    client.kill()
    client.communicate()
    assert home("wait", receipt["message"]).code == 12


def test_the_daemon_sits_in_the_root_with_a_clean_environment(home: Home, tmp_path: Path) -> None:
    home("daemon", "stop")
    with (tmp_path / "inherited").open("w") as inherited:
        home("ping")
        home("daemon", "start", env={"GIT_DIR": "x", "AWS_SECRET": "x"}, pass_fds=(inherited.fileno(),))
    proc = Path(f"/proc/{home.daemon()}")
    assert os.readlink(proc / "cwd") == "/"
    names = {line.partition(b"=")[0] for line in (proc / "environ").read_bytes().split(b"\0")}
    assert not names & {b"GIT_DIR", b"AWS_SECRET"}
    assert not [target for target in _open_files(proc / "fd") if str(tmp_path) in target]


def _open_files(fds: Path) -> Iterator[str]:
    """What a living process has open; it may close one while it is looked at."""
    for fd in fds.iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(fd)
