"""`dshctl schedule`: WHEN as it is typed, whose zone it is in, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dshctl import occasion, zone
from dshctl.commands.schedule import outcome
from dshctl.times import coming, until
from dshd import wire
from dshd.errors import Invalid
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import Fake, Refuse
from tests.dshctl.test_schemas import FIRING, SCHEDULE

NOW = 1_796_040_000_000


@pytest.mark.parametrize(
    ("words", "typed", "rest"),
    [
        (["0 2 * * *", "triage"], "0 2 * * *", ["triage"]),
        (["@daily", "triage", "all"], "@daily", ["triage", "all"]),
        (["every 2h", "x"], "every 2h", ["x"]),
        (["every", "2h", "is", "it", "green?"], "every 2h", ["is", "it", "green?"]),
        (["at", "18:00", "write", "it"], "at 18:00", ["write", "it"]),
        (["at", "tomorrow", "06:00", "write"], "at tomorrow 06:00", ["write"]),
        (["at", "2099-12-01", "06:00", "write"], "at 2099-12-01 06:00", ["write"]),
        (["at tomorrow 06:00", "write"], "at tomorrow 06:00", ["write"]),
        (["0", "2", "1", "*/2", "1-5", "triage", "5"], "0 2 1 */2 1-5", ["triage", "5"]),
    ],
)
def test_when_ends_where_the_text_begins(words: list[str], typed: str, rest: list[str]) -> None:
    found = occasion.read(words, NOW)
    assert (found.typed, list(found.rest)) == (typed, rest)
    assert len(found.fields) == 1


@pytest.mark.parametrize(
    "words", [[], ["triage"], ["18:00", "x"], ["every", "day", "x"], ["at", "noon", "x"], ["at", "@1", "x"]]
)
def test_what_is_no_when_is_refused_before_anybody_is_asked(words: list[str]) -> None:
    with pytest.raises(Invalid):
        occasion.read(words, NOW)


def test_the_zone_is_the_clients(tmp_path: Path) -> None:
    linked, copied, named = tmp_path / "localtime", tmp_path / "copied", tmp_path / "timezone"
    linked.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    copied.write_bytes(b"TZif")
    named.write_text("Asia/Tokyo\n")

    def of(localtime: Path, timezone: Path = named, **environ: str) -> str:
        return zone.name(environ, str(localtime), str(timezone))

    assert of(linked) == "Europe/Berlin"
    assert of(copied) == "Asia/Tokyo"
    assert of(linked, TZ="America/New_York") == "America/New_York"
    assert of(linked, TZ=":America/New_York") == "America/New_York"
    assert of(linked, TZ="/usr/share/zoneinfo/America/New_York") == "America/New_York"
    assert of(linked, TZ="") == "UTC"
    with pytest.raises(Invalid, match="says no time zone"):
        of(copied, tmp_path / "none") if os.path.exists("/etc/localtime") else zone._none("x")


def sent(fake: Fake) -> dict[str, Any]:
    (params,) = [params for method, params in fake.asked if method == "schedule.add"]
    return dict(params)


def test_a_schedule_is_added_with_the_zone_and_how_it_was_typed(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers = {"schedule.add": {**SCHEDULE, "warning": "no-unit"}}
    ran = dshctl("schedule", "add", "0 2 * * *", "--zone", "Europe/Berlin", "-s", "api", "triage", "all")
    assert (ran.code, ran.out) == (0, "c1\n")
    assert "no service keeps dshd running" in ran.err
    params = sent(fake)
    assert {name: params[name] for name in ("cron", "typed", "zone", "text", "session")} == {
        "cron": "0 2 * * *", "typed": "0 2 * * *", "zone": "Europe/Berlin", "text": "triage all",
        "session": "api",
    }  # fmt: skip


def test_options_that_go_with_runs_only_are_refused_without(dshctl: Dshctl, fake: Fake) -> None:
    assert dshctl("schedule", "add", "@daily", "--model", "m", "x").code == 2
    assert dshctl("schedule", "add", "@daily", "--run", "-s", "api", "x").code == 2
    assert dshctl("schedule", "add", "@daily", "--zone", "Mars/Base", "x").code == 2
    assert not fake.asked


def test_what_became_of_each_time_is_told(dshctl: Dshctl, fake: Fake) -> None:
    late = {**FIRING, "at": 7_200_000, "late_ms": 7_200_000, "missed": 3, "outcome": None, "state": "running"}
    skipped = {**FIRING, "message": None, "outcome": None, "skipped": "overlap", "detail": "c still runs"}
    fake.answers = {"schedule.log": {**SCHEDULE, "firings": [FIRING, late, skipped]}}
    lines = dshctl("schedule", "log", "c1").out.splitlines()
    assert lines[0].startswith("c1  0 2 * * * (Europe/Berlin) -> api; next ")
    assert lines[3].endswith("running    s4h8w2c1.17; 2 h late; 3 before it passed")
    assert lines[4].endswith("skipped    c still runs")
    assert [outcome(one) for one in (FIRING, late, skipped)] == ["completed", "running", "skipped"]


def test_a_refused_firing_by_hand_exits_1(dshctl: Dshctl, fake: Fake) -> None:
    last = {**FIRING, "message": None, "outcome": None, "skipped": "refused", "detail": "no directory /x"}
    fake.answers = {"schedule.run": {**SCHEDULE, "last": last}}
    ran = dshctl("schedule", "run", "c1")
    assert (ran.code, ran.out) == (1, "c1: refused: no directory /x.\n")


def test_nothing_is_scheduled_is_said(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers = {"schedule.list": {"type": "schedules", "schedules": []}}
    assert dshctl("schedule").out == "Nothing is scheduled.\n"


def test_what_the_daemon_refuses_is_told_in_its_words(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers = {"schedule.rm": Refuse("NOT_FOUND", "no schedule c9", hint="dshctl schedule ls")}
    assert dshctl("schedule", "rm", "c9").code == 4


def test_what_comes_within_a_day_has_no_date() -> None:
    assert len(coming(NOW + 13 * 3_600_000, NOW)) == 5
    assert len(coming(NOW + 25 * 3_600_000, NOW)) > 5
    assert until(NOW + 13 * 3_600_000, NOW) == "in 13 h"
    assert until(NOW, NOW) == "now"


def test_params_take_one_when_and_a_run_without_text() -> None:
    given: dict[str, Any] = {"text": "t", "zone": "UTC", "typed": "x"}
    wire.ScheduleAddParams(**given, every=60.0).check()
    wrong: list[dict[str, Any]] = [
        {},
        {"every": 60.0, "at": 1},
        {"at": 1, "run": wire.CreateParams(dir="/", run=True, text="x")},
        {"at": 1, "run": wire.CreateParams(dir="/")},
    ]
    for more in wrong:
        with pytest.raises(Invalid):
            wire.ScheduleAddParams(**given, **more).check()
