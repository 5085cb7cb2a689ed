"""The real programs in a home of their own: what a test needs to start, ask, stop and look at them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.e2e.rpc import Rpc

Json = dict[str, Any]
T = TypeVar("T")
PROGRAMS = Path(sys.executable).parent
TIMEOUT = 30.0  # s; nothing here takes a tenth of it on an idle machine


def eventually(look: Callable[[], T], timeout: float = TIMEOUT, what: str = "") -> T:
    """What ``look`` returns as soon as that is true."""
    deadline = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what or look}"
        time.sleep(0.01)
    return found


class Home:
    """``DSHD_HOME`` (`path`) and a work directory beside it; ends what still runs there when it is left."""

    def __init__(self, config: str = "", env: dict[str, str] | None = None) -> None:
        self._top = Path(tempfile.mkdtemp(prefix="dshd-e2e-"))
        self.path, self.work = self._top / "dshd", self._top / "work"
        for place in (self.path, self.work, self._top / "home"):
            place.mkdir()
        (self.path / "config.toml").write_text(config)
        self.socket = self.path / "run" / "dshd.sock"
        self.state = self.path / "state"
        self.children: list[subprocess.Popen[Any]] = []
        self.env = {
            "HOME": str(self._top / "home"),
            "PATH": f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin",
            "DSHD_HOME": str(self.path),
            "LC_ALL": "C.UTF-8",
            **(env or {}),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for child in self.children:
            child.kill()
            child.communicate()
        shutil.rmtree(self._top, ignore_errors=True)

    # -- the programs

    def ctl(
        self,
        *args: str,
        input: str | bytes | None = None,
        timeout: float = TIMEOUT,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """``dshctl ARGS`` without a terminal, in the work directory."""
        data = input.encode() if isinstance(input, str) else input
        done = subprocess.run(
            [str(PROGRAMS / "dshctl"), *args],
            env=self.env if env is None else env,
            cwd=cwd or self.work,
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            timeout=timeout,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def ok(self, *args: str, **more: Any) -> str:
        """The same; must exit 0. Returns stdout without its last newline."""
        done = self.ctl(*args, **more)
        assert done.returncode == 0, f"dshctl {' '.join(args)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.rstrip("\n")

    def json(self, *args: str, exit: int = 0, **more: Any) -> list[Json]:
        """``dshctl ARGS --json``: its lines. The last one must say ``exit``."""
        done = self.ctl(*args, "--json", **more)
        assert done.returncode == exit, f"dshctl {args}: {done.returncode}\n{done.stdout}{done.stderr}"
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines[-1]["exit"] == exit
        return lines

    def popen(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        """``dshctl ARGS`` in the background."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        child = subprocess.Popen(
            [str(PROGRAMS / "dshctl"), *args],
            cwd=self.work,
            text=True,
            **{**streams, "env": self.env, **more},
        )
        self.children.append(child)
        return child

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        """``dshd`` in the foreground of nobody; returns when it is ready. ``more`` is for `Popen`."""
        with (self.path / "stderr").open("ab") as stderr:
            daemon = subprocess.Popen(
                [str(PROGRAMS / "dshd")],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                **more,
            )
        self.children.append(daemon)
        eventually(lambda: self.answers() or daemon.poll() is not None, what="dshd gets ready")
        assert daemon.poll() is None, (self.path / "stderr").read_text()
        return daemon

    def rpc(self, **hello: Any) -> Rpc:
        return Rpc(self.socket, **hello)

    def answers(self) -> bool:
        try:
            self.rpc().close()
        except (OSError, EOFError):
            return False
        return True

    # -- what is on disk and what runs

    def sessions(self) -> list[str]:
        """The ids of the sessions on disk."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(p.name for p in (self.state / "sessions").iterdir() if p.name.startswith("s"))
        return []

    def log(self, session: str | None = None, type: str | None = None) -> list[Json]:
        """A session's events (the only session's, if there is one), all or of one type."""
        (one,) = [session] if session else self.sessions()
        lines = (self.state / "sessions" / one / "log.jsonl").read_bytes().split(b"\n")[:-1]
        events = [json.loads(line) for line in lines]
        return [event for event in events if type in (None, event["type"])]

    def said(self, session: str | None = None) -> list[Json]:
        """The ``user/message`` events of what was sent, without the notes of the daemon's own."""
        return [e for e in self.log(session, "user/message") if e["data"]["source"]["kind"] != "system"]

    def wait_event(self, type: str, n: int = 1, session: str | None = None) -> Json:
        """The ``n``-th event of that type, as soon as it is in the log."""

        def look() -> Json | None:
            found = self.log(session, type) if session or self.sessions() else []
            return found[n - 1] if len(found) >= n else None

        found = eventually(look, what=f"{n} {type}")
        assert found is not None
        return found

    def processes(self) -> set[int]:
        """The daemon, if one runs, and all its descendants."""
        with contextlib.suppress(OSError, EOFError), self.rpc() as rpc:
            return descendants(rpc.hello["pid"])
        return set()


def descendants(pid: int) -> set[int]:
    """The process and all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, new = set(), {pid}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new}
    return found


def alive(pid: int) -> bool:
    """Whether there is such a process; a zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def not_running(needle: str) -> bool:
    return not running(needle)


def running(needle: str) -> list[int]:
    """The processes whose command line holds ``needle`` as one of its words, zombies excluded."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if needle.encode() in words:
                    found.append(int(entry.name))
    return found


def texts(events: Sequence[Json]) -> list[str]:
    """The texts of ``user/message`` events."""
    return ["".join(b.get("text", "") for b in event["data"]["content"]) for event in events]
