"""What becomes of the files beside the logs: whatever stands in them, the logs are what counts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import CONFIG
from tests.e2e.harness import Home, texts
from tests.e2e.model import Model

Harm = Callable[[Path], object]

HARM: dict[str, Harm] = {
    "gone": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "all zeros, as long as it was": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "half of it": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "another object": lambda file: file.write_bytes(b"{}"),
    "an object that never ends": lambda file: file.write_bytes(b"{"),
    "a list": lambda file: file.write_bytes(b"[1]\n"),
    "no text": lambda file: file.write_bytes(b"\xff\xfe\x00"),
}


@pytest.fixture(scope="module")
def lived() -> Iterator[Home]:
    """A home, without its daemon, that has every kind of file."""
    with Model() as model, Home(CONFIG.format(url=model.url)) as home:
        home.ok("followup", "--spool", "--no-autostart", "kept for later")
        daemon = home.start()
        home.ok("wait")
        home.ok("new", "--name", "a", "--env", "MY_TOKEN", env={**home.env, "MY_TOKEN": "1"})
        home.ok("followup", "-s", "a", "--wait", "a long text " * 10_000)
        home.ok("followup", "-s", "a", "--hold", "for a person")
        home.ok("run", "--rm", "gone")
        home.ok("daemon", "stop")
        assert daemon.wait(30) == 0
        yield home


def beside_the_logs(home: Home) -> list[Path]:
    files = [path for path in home.state.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if path.name != "log.jsonl" and path.parent.name != "attachments"]


def strange(place: Path) -> None:
    """What nobody expects to stand in a directory."""
    there = os.fsencode(place)
    (place / "s1234567").write_text("a file")
    (place / "szzzzzzz").mkdir()
    os.mkdir(there + b"/odd\xff\n")
    os.symlink(there, there + b"/loop")
    os.mkfifo(place / ".trash-s7654321")
    os.symlink("nowhere", there + b"/.new-s7654321")


def test_strange_things_in_every_directory_keep_nothing_from_working(lived: Home) -> None:
    with Model() as model, Home(CONFIG.format(url=model.url)) as home:
        shutil.copytree(lived.state, home.state, symlinks=True, dirs_exist_ok=True)
        good = home.sessions()
        for place in [home.state, *(path for path in home.state.rglob("*") if path.is_dir())]:
            strange(place)

        def listed() -> set[str]:
            return {row["id"] for row in home.json("ls", "--no-autostart") if row["type"] == "session"}

        assert listed() >= set(good)
        daemon = home.start()
        assert listed() >= set(good)
        home.ok("status")
        for id in good:
            assert home.ok("followup", "-s", id, "--wait", "still there?") == "echo: still there?"
        home.ok("fsck", good[0])
        assert home.json("fsck", exit=7)[-1]["exit"] == 7  # the directories that hold no log
        home.ok("followup", "--spool", "-s", "a", "--wait", "and this")
        home.ok("daemon", "stop")
        assert daemon.wait(30) == 0
        assert "Traceback" not in (home.path / "stderr").read_text()


@pytest.mark.parametrize("harm", HARM)
def test_a_daemon_starts_and_shows_the_same_whatever_stands_beside_its_logs(lived: Home, harm: str) -> None:
    with Model() as model, Home(CONFIG.format(url=model.url)) as home:
        shutil.copytree(lived.state, home.state, symlinks=True, dirs_exist_ok=True)
        before = {id: home.log(id) for id in home.sessions()}
        harmed = beside_the_logs(home)
        assert {"lock", "reserve", "views.jsonl", "checkpoint.json", "env.json"} <= {p.name for p in harmed}
        for file in harmed:
            HARM[harm](file)

        offline = [row["id"] for row in home.json("ls", "--no-autostart") if row["type"] == "session"]
        daemon = home.start()
        rows = [row for row in home.json("ls") if row["type"] == "session"]
        assert sorted(row["id"] for row in rows) == sorted(offline) == sorted(before)
        assert home.json("show", "a")[0]["pending"]["held"] == 1
        assert {id: home.log(id)[: len(events)] for id, events in before.items()} == before
        for row in rows:
            assert home.ok("followup", "-s", row["id"], "--wait", "still there?") == "echo: still there?"
            assert texts(home.said(row["id"]))[-1] == "still there?"
        home.ok("fsck", "--requests")
        assert daemon.poll() is None
        assert "Traceback" not in (home.path / "stderr").read_text()
