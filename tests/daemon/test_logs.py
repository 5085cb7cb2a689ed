"""The daemon's own log: its shapes, its bounds, and that it never gets in the way."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from dshd import logs
from dshd.logs import Descriptor


def record(level: int = logging.WARNING, message: str = "a %s", *args: object) -> logging.LogRecord:
    return logging.LogRecord("dshd.x", level, __file__, 1, message, args or ("thing",), None)


def to(
    path: Path, shape: type[logging.Formatter] = logs.Text, most: int = logs.MOST
) -> tuple[Descriptor, int]:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    handler = Descriptor(fd, most)
    handler.setFormatter(shape())
    return handler, fd


def test_a_line_for_people_has_the_time_and_names_what_is_wrong() -> None:
    assert logs.Text().format(record()).endswith(" warning: a thing")
    assert "info" not in logs.Text().format(record(logging.INFO))


def test_the_journal_gets_a_priority_on_each_line() -> None:
    lines = {level: logs.Journal().format(record(level, "a\n%s", "b")) for level in (10, 20, 30, 40, 50)}
    assert lines[20] == "<6>a\n<6>b"
    assert [line[1] for line in lines.values()] == ["7", "6", "4", "3", "3"]


def test_programs_get_an_object_per_line() -> None:
    one = logs.Json().format(record(logging.ERROR, "ü\n%s", "x"))
    assert "\n" not in one
    assert {**json.loads(one), "time": 0} == {
        "time": 0, "level": "error", "where": "dshd.x", "message": "ü\nx",
    }  # fmt: skip


def test_a_file_that_grows_long_is_set_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "dshd.log"
    handler, fd = to(path, most=1000)
    for number in range(100):
        handler.emit(record(logging.INFO, "line %s " + "x" * 50, number))
    os.close(fd)
    assert path.stat().st_size < 1200
    assert (tmp_path / "dshd.log.old").stat().st_size < 1200
    assert path.read_text().rstrip().endswith("line 99 " + "x" * 50)
    assert sorted(name.name for name in tmp_path.iterdir()) == ["dshd.log", "dshd.log.old"]


def test_a_file_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "dshd.log"
    handler, fd = to(path)
    handler.emit(record())
    path.unlink()
    handler.emit(record(logging.INFO, "after %s"))
    os.close(fd)
    assert "after" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_written_is_dropped(tmp_path: Path) -> None:
    handler, fd = to(tmp_path / "dshd.log")
    os.close(fd)
    handler.emit(record())
    handler, fd = to(tmp_path / "dshd.log")
    handler.emit(record(logging.INFO, "%d", "no number"))
    os.close(fd)
    assert "could not be written" in (tmp_path / "dshd.log").read_text()


def test_a_pipe_is_left_alone() -> None:
    read, write = os.pipe()
    handler = Descriptor(write, most=1)
    handler.setFormatter(logs.Text())
    handler.emit(record())
    handler.emit(record())
    os.close(write)
    with open(read) as pipe:
        assert pipe.read().count("a thing") == 2


def test_urls_of_requests_are_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    monkeypatch.setattr(root, "level", root.level)
    logs.start("text")
    assert not logging.getLogger("httpx").isEnabledFor(logging.INFO)
