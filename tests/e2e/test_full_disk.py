"""A real file system that is really full: nothing is lost, nothing is claimed, and room is all it takes."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import CONFIG
from tests.e2e.harness import Home, eventually, texts
from tests.e2e.model import Model, bash, script


@pytest.fixture
def small(model: Model) -> Iterator[Home]:
    """A home whose state is a file system of 4 MiB of its own."""
    with Home(CONFIG.format(url=model.url)) as home:
        home.state.mkdir(mode=0o700)
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "dshd-e2e", str(home.state)]
        done = subprocess.run(mount, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a small file system can't be made here: {done.stderr.strip()}")
        try:
            yield home
        finally:
            for child in home.children:
                child.kill()
                child.wait()
            subprocess.run(["umount", "-l", home.state], check=True)


@contextlib.contextmanager
def full(home: Home) -> Iterator[None]:
    """Nothing fits any more, until the block is left."""
    filler = Path(home.state / "filler")
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(65536))
    with filler.open("ab") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), b"x")
    try:
        yield
    finally:
        filler.unlink()


def test_a_send_on_a_full_disk_is_refused_and_works_as_soon_as_there_is_room(
    small: Home, model: Model
) -> None:
    small.start()
    small.ok("followup", "--wait", "before")
    before = small.log()
    with full(small):
        error = small.json("followup", "x" * 9000, exit=75)[-1]
        assert (error["code"], error["outcome"]) == ("NO_SPACE", "not-written")
        assert error["message"].startswith("not sent: no space on")
        assert small.log() == before
    assert small.ok("followup", "--wait", "after") == "echo: after"
    assert texts(small.said()) == ["before", "after"]
    assert small.ctl("fsck").returncode == 0


def test_a_turn_that_the_disk_stops_is_closed_and_the_queue_goes_on(small: Home, model: Model) -> None:
    small.start()
    wait_for_go = bash("while [ ! -e go ]; do sleep 0.02; done; head -c 30000 /dev/zero | tr '\\0' x")
    first = small.ok("followup", script(wait_for_go, {"text": "done"}))
    small.wait_event("tool/call")
    second = small.ok("followup", "second")
    with full(small):
        (small.work / "go").touch()
        eventually(lambda: small.log(type="turn/end"), what="the turn is closed, from the reserve")
        assert small.ctl("wait", first).returncode == 75
        assert small.ctl("wait", second).returncode == 18
    small.ok("wake")
    small.ok("wait", second)
    assert len(small.log(type="turn/start")) == len(small.log(type="turn/end")) == 2
    assert texts(small.said())[-1] == "second"
    assert small.ctl("fsck").returncode == 0
