"""Logs that a disk, another program or a person spoilt: shown, saved, mended by the command that is named.

The real programs, on real files. Each kind of damage happens to a session of its own, and one session stays
well all the while.
"""

from __future__ import annotations

import os
import re
import shlex
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Home
from tests.e2e.model import Model
from tests.e2e.rpc import Rpc

Spoil = Callable[[Path], None]
_CRC = len(b',"crc":"xxxxxxxx"}\n')


def lines(log: Path) -> list[bytes]:
    return log.read_bytes().splitlines(keepends=True)


def replaced(log: Path, what: list[bytes]) -> None:
    """By another file, as an editor or a copy from elsewhere does it."""
    other = log.with_name("other")
    other.write_bytes(b"".join(what))
    other.replace(log)


def signed(line: bytes, old: bytes, new: bytes) -> bytes:
    """The line with something else in it, and a checksum that fits."""
    assert old in line
    body = line[:-_CRC].replace(old, new)
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body)


def at(line: int, change: Callable[[bytes], list[bytes]]) -> Spoil:
    def spoil(log: Path) -> None:
        all = lines(log)
        replaced(log, [*all[:line], *change(all[line]), *all[line + 1 :]])

    return spoil


def a_directory(log: Path) -> None:
    log.unlink()
    log.mkdir()


def a_pipe(log: Path) -> None:
    log.unlink()
    os.mkfifo(log)


def a_link(log: Path) -> None:
    log.rename(log.with_name("elsewhere"))
    log.symlink_to("elsewhere")


def a_dead_link(log: Path) -> None:
    log.unlink()
    log.symlink_to("nowhere")


def shorter(log: Path) -> None:
    os.truncate(log, len(b"".join(lines(log)[:-3])))


def longer(log: Path) -> None:
    with log.open("ab") as file:
        file.write(lines(log)[-1])


REPAIR, REMOVE, REOPEN, UPDATE = "fsck --repair", "rm", "reopen", "log"

WITHOUT_A_DAEMON: dict[str, tuple[Spoil, str]] = {
    "zeros": (at(4, lambda line: [bytes(len(line))]), REPAIR),
    "a-torn-line": (at(4, lambda line: [line[: len(line) // 2]]), REPAIR),
    "two-lines-in-one": (at(4, lambda line: [line[:-1]]), REPAIR),
    "a-line-twice": (at(4, lambda line: [line, line]), REPAIR),
    "a-seq-twice": (at(6, lambda line: [signed(line, b'"seq":6', b'"seq":5')]), REPAIR),
    "a-line-gone": (at(5, lambda line: []), REPAIR),
    "no-header": (at(0, lambda line: [line[5:]]), REPAIR),
    "empty": (lambda log: os.truncate(log, 0), REPAIR),
    "its-end-gone": (lambda log: replaced(log, lines(log)[:-3]), REPAIR),
    "all-but-its-header-gone": (lambda log: os.truncate(log, len(lines(log)[0])), REPAIR),
    "a-link": (a_link, REPAIR),
    "another-version": (at(0, lambda line: [signed(line, b'"version":1', b'"version":9')]), UPDATE),
    "an-unknown-event": (at(5, lambda line: [signed(line, b'"type":"', b'"type":"x')]), UPDATE),
    "missing": (Path.unlink, REMOVE),
    "a-directory": (a_directory, REMOVE),
    "a-pipe": (a_pipe, REMOVE),
    "a-dead-link": (a_dead_link, REMOVE),
}

UNDER_THE_DAEMON: dict[str, Spoil] = {
    "shorter": shorter,
    "emptied": lambda log: os.truncate(log, 0),
    "longer": longer,
    "replaced-by-a-shorter-one": lambda log: replaced(log, lines(log)[:-3]),
    "replaced-by-a-longer-one": lambda log: replaced(log, [*lines(log), lines(log)[-1]]),
    "replaced-by-a-copy": lambda log: replaced(log, lines(log)),
    "zeros": at(4, lambda line: [bytes(len(line))]),
    "another-version": at(0, lambda line: [signed(line, b'"version":1', b'"version":9')]),
    "with-two-names": lambda log: os.link(log, log.with_name("second")),
    "removed": Path.unlink,
    "a-directory": a_directory,
    "a-pipe": a_pipe,
    "a-link": a_link,
}


def sessions(home: Home, names: Any) -> dict[str, Path]:
    """One for each name, in which something was said; ``{name: its log}``. And ``well``."""
    home.start()
    made = {}
    with home.rpc() as rpc:
        for name in [*names, "well"]:
            shown = rpc.call("session.create", dir=str(home.work), name=name)["session"]
            made[name] = home.state / "sessions" / shown["id"] / "log.jsonl"
            for text in ("one", "two"):
                says(rpc, name, text)
    return made


def says(rpc: Rpc, session: str, text: str) -> None:
    message = rpc.call("session.send", session=session, verb="followup", text=text)["message"]
    assert rpc.result(message)["text"] == f"echo: {text}"


def refused(home: Home, session: str) -> str:
    """The command that a send to it names."""
    done = home.ctl("followup", "-s", session, "three")
    assert done.returncode == 7, (session, done.stderr)
    found = re.search(r"(?m)^ +dshctl (.+)$", done.stderr)
    assert found is not None, done.stderr
    return found[1]


def goes_on(home: Home, *names: str) -> None:
    """What is said to them is answered; whether their logs are well, `all_is_well` looks at once for all."""
    with home.rpc() as rpc:
        for name in names:
            says(rpc, name, "four")


def all_is_well(home: Home) -> None:
    checked = {one["session"]: one["ok"] for one in home.json("fsck")}
    assert checked.keys() == set(home.sessions())
    assert all(checked.values()), checked


@pytest.mark.parametrize("running", [False, True], ids=["without-a-daemon", "with-one"])
def test_a_spoilt_log_is_shown_and_mended_by_the_command_that_is_named(
    home: Home, model: Model, tmp_path: Path, running: bool
) -> None:
    logs = sessions(home, WITHOUT_A_DAEMON)
    home.ok("daemon", "stop")
    for name, (spoil, _) in WITHOUT_A_DAEMON.items():
        spoil(logs[name])
    if running:
        home.start()
    before = home.json("fsck", exit=7)
    for name, (_, way_out) in WITHOUT_A_DAEMON.items():
        id = logs[name].parent.name
        (told,) = [one for one in before if one.get("session") == id]
        assert not told["ok"], name
        assert f"dshctl {way_out}" in told["hint"], (name, told)
        (shown,) = home.json("show", id)
        assert shown["state"] in ("damaged", "unsupported"), (name, shown["state"])
        saved = home.ctl("export", "-o", str(tmp_path / f"{name}.tar"), id)
        assert saved.returncode == (7 if way_out == REMOVE else 0), (name, saved.stderr)
        read = home.ctl("log", "-n", "1", "-s", id)
        assert read.returncode == (7 if way_out == REMOVE else 0), (name, read.stderr)
        if (place := re.search(r"at line \d+ \(bytes .*\)", told["problem"])) is not None:
            assert all(place[0] in " ".join(one.stderr.split()) for one in (saved, read)), name
        if name == "a-line-twice":
            looks = (("show", id), ("answer", "-s", id), ("message", f"{id}.1"), ("queue", "-s", id))
            for look in looks if running else looks[:-1]:
                assert place is not None
                assert place[0] in " ".join(home.ctl(*look).stderr.split()), look
    assert home.json("fsck", exit=7) == before  # who only looks changes nothing


def test_the_command_that_is_named_mends_it_and_the_others_go_on(home: Home, model: Model) -> None:
    logs = sessions(home, WITHOUT_A_DAEMON)
    home.ok("daemon", "stop")
    for name, (spoil, _) in WITHOUT_A_DAEMON.items():
        spoil(logs[name])
    home.start()
    for name, (_, way_out) in WITHOUT_A_DAEMON.items():
        id = logs[name].parent.name
        command = shlex.split(refused(home, id))
        assert " ".join(command).startswith(way_out), (name, command)
        if way_out == REPAIR:
            home.ok(*command)
            assert logs[name].is_file()
            if name not in ("no-header", "empty"):  # whose model is not known any more
                goes_on(home, id)
            assert home.json("fsck", id)[0]["ok"]
        home.ok("rm", "--yes", "--force", id)
        assert not logs[name].parent.exists()
        goes_on(home, "well")
    all_is_well(home)


def test_a_log_that_is_changed_under_the_daemon_is_reopened_and_nothing_is_lost(
    home: Home, model: Model
) -> None:
    logs = sessions(home, UNDER_THE_DAEMON)
    for name, spoil in UNDER_THE_DAEMON.items():
        home.ok("queue", "-s", name)  # loads it: a log that nobody holds is only read
        id, before = logs[name].parent.name, logs[name].read_bytes()
        spoil(logs[name])
        assert refused(home, name) == f"{REOPEN} {id}"
        (told,) = home.json("fsck", id, exit=7) if name not in NOT_LOOKED_AT else [{"hint": REOPEN}]
        assert REOPEN in told["hint"], name
        assert home.json("show", id)[0]["name"] == name
        goes_on(home, "well")
        again = home.ctl("reopen", id)
        if name in ("shorter", "emptied"):  # what was synced is gone: it is repaired
            assert again.returncode == 7
            assert f"dshctl fsck --repair {id}" in again.stderr
            home.ok("fsck", "--repair", id)
        else:
            assert again.returncode == 0, again.stderr
            assert logs[name].read_bytes().startswith(before), name
        assert logs[name].is_file()
        goes_on(home, name)
    all_is_well(home)
    home.ok("daemon", "stop")
    home.start()
    goes_on(home, *UNDER_THE_DAEMON, "well")
    all_is_well(home)
    for name in UNDER_THE_DAEMON:
        home.ok("rm", "--yes", "--force", name)


NOT_LOOKED_AT = ("removed", "a-directory", "a-pipe")  # there is nothing to be checked


def test_what_does_not_belong_among_the_sessions_disturbs_nobody(home: Home, model: Model) -> None:
    logs = sessions(home, ["api"])
    home.ok("daemon", "stop")
    place = home.state / "sessions"
    (place / "notes.txt").write_text("mine")
    (place / "backup").mkdir()
    (place / "sabcdefg").mkdir()  # a session's name, and nothing in it
    (place / ".hidden").write_text("mine")
    (place / "s-link").symlink_to(logs["api"].parent)
    home.start()
    goes_on(home, "api", "well")
    assert all(home.json("fsck", name)[0]["ok"] for name in ("api", "well"))
    names = {one["name"] for one in home.json("ls") if one["type"] == "session"}
    assert {"api", "well"} <= names
    assert (place / "notes.txt").read_text() == "mine"
    home.ok("rm", "--yes", "sabcdefg")
    assert not (place / "sabcdefg").exists()
