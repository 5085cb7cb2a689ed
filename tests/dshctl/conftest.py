"""Running dshctl: in this process (fast), or as a user does."""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dshctl import cli
from dshctl.output import Out
from dshctl.streams import Stream
from tests.dshctl.fake import Fake


class Ran(NamedTuple):
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.split("\n") if line]

    @property
    def last(self) -> dict[str, Any]:
        return self.objects[-1]


class Dshctl:
    """dshctl with a home of its own. Call it with arguments."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.state = home / "state"
        self.socket = home / "run" / "dshd.sock"
        self._patch = monkeypatch
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "DSHD_HOME": str(home),
            "DSHD_AUTOSTART": "0",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }

    def __call__(
        self,
        *args: str,
        stdin: bytes | None = None,
        tty: bool = False,
        out_tty: bool | None = None,
        **env: str,
    ) -> Ran:
        """In this process. ``tty``: standard error (and output) claim to be terminals."""
        out, err = io.BytesIO(), io.BytesIO()
        with self._patch.context() as patch:
            for name in list(os.environ):
                if name.startswith(("DSHD_", "XDG_", "LC_", "LANG", "COLUMNS", "TERM", "NO_COLOR")):
                    patch.delenv(name)
            for name, value in {**self.environ, **env}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", _stdin(stdin))
            claims = tty if out_tty is None else out_tty
            code = cli.run(
                cli.utf8_argv(list(args)),
                Out({**self.environ, **env}, out=Stream(out, claims), err=Stream(err, tty)),
            )
        return Ran(code, out.getvalue().decode(), err.getvalue().decode())

    def process(self, *args: str, env: dict[str, str] | None = None, **options: Any) -> Ran:
        """As a program of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "dshctl.cli", *args],
            env=self.environ if env is None else env,
            capture_output=True,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            timeout=30,
            check=False,
            **options,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


class _Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def _stdin(data: bytes | None) -> io.TextIOWrapper:
    """Standard input with these bytes; None: a terminal at which nobody types."""
    return io.TextIOWrapper(_Terminal() if data is None else io.BytesIO(data))


@pytest.fixture
def dshctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dshctl:
    return Dshctl(tmp_path, monkeypatch)


@pytest.fixture
def fake(dshctl: Dshctl) -> Iterator[Fake]:
    """A fake daemon at the socket that this dshctl uses; it holds the state lock."""
    dshctl.state.mkdir()
    with (dshctl.state / "lock").open("w") as lock, Fake(dshctl.socket) as daemon:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4121 0\n")
        lock.flush()
        yield daemon
