"""What both programs agree on: parameters, ids, names, references, durations and times."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import zoneinfo
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd import wire
from dshd.errors import DshError, Invalid, NotFound
from dshd.wire import SendParams, SessionRow, near, parse_duration, parse_time, resolve

# ---------------------------------------------------------------- parameters


def test_only_what_differs_from_the_default_goes_on_the_wire() -> None:
    assert SendParams(text="x", wake=False, as_="hook").to_json() == {
        "text": "x",
        "wake": False,
        "as": "hook",
    }


def test_parameters_inside_parameters_go_on_the_wire_as_objects() -> None:
    sent = SendParams(text="x", create=wire.CreateParams(dir="/", env={"A": "b"}))
    assert sent.to_json() == {"text": "x", "create": {"dir": "/", "env": {"A": "b"}}}
    follow = wire.LogFollowParams(all=True, positions={"s1234567": wire.Position(seq=3, crc="0a")})
    assert follow.to_json() == {"all": True, "positions": {"s1234567": {"seq": 3, "crc": "0a"}}}


def test_a_missing_or_unknown_field_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="dir"):
        wire.CreateParams()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nmae"):
        wire.CreateParams(dir="/", nmae="x")  # type: ignore[call-arg]


def test_parameters_are_values() -> None:
    one = SendParams(text="x")
    assert one == SendParams(text="x")
    assert one != SendParams(text="y")
    assert hash(one) == hash(SendParams(text="x"))
    assert one.replace(text="y") == SendParams(text="y")
    with pytest.raises(AttributeError):
        one.text = "y"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("params", "intent"),
    [
        ({"verb": "followup"}, ("next-turn", True)),
        ({"verb": "steer"}, ("next-step", True)),
        ({"verb": "inject"}, ("next-step", False)),
        ({"verb": "followup", "no_wake": True}, ("next-turn", False)),
        ({"queue": "next-step", "wake": True}, ("next-step", True)),
        ({"queue": "next-turn", "wake": False}, ("next-turn", False)),
    ],
)
def test_a_verb_is_a_queue_and_a_wake(params: dict[str, Any], intent: tuple[str, bool]) -> None:
    assert SendParams(text="x", **params).intent() == intent


def test_it_costs_little_to_import() -> None:
    families = ", ".join(f"dshd.wire.{family}" for family in wire.HOLDS)
    code = f"import sys, {families}, dshd.paths; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "dataclasses",
        "attr",
        "trio",
        "orjson",
        "click",
        "tomllib",
        "datetime",
        "socket",
        "json",
        "asyncio",
    }
    assert not heavy & set(loaded)


def test_a_greeting_costs_no_more_than_itself() -> None:
    code = "import sys; from dshd.wire import HelloParams; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {name for name in loaded.split() if name.startswith("dshd.wire.")} == {
        "dshd.wire.daemon", "dshd.wire.params", "dshd.wire.terms",
    }  # fmt: skip


def test_python_and_type_checkers_find_the_same_names() -> None:
    folder = Path(wire.__file__).parent
    assert set(wire.HOLDS) == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    told = re.findall(r"^    from dshd\.wire\.(\w+) import \*$", (folder / "__init__.py").read_text(), re.M)
    assert sorted(wire.HOLDS) == told
    for family, names in wire.HOLDS.items():
        assert sorted(names.split()) == sorted(_defined(folder / f"{family}.py"))
        for name in names.split():
            assert getattr(wire, name) is getattr(importlib.import_module(f"dshd.wire.{family}"), name)
    with pytest.raises(AttributeError, match="no attribute 'SendParam'"):
        wire.SendParam  # noqa: B018


def _defined(file: Path) -> Iterator[str]:
    """The public names that a module gives values to."""
    for node in ast.parse(file.read_text()).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                pass
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                pass
            case _:
                continue
        if not name.startswith("_"):
            yield name


def test_no_two_families_have_the_same_name_for_something() -> None:
    named = [name for names in wire.HOLDS.values() for name in names.split()]
    assert len(named) == len(set(named))
    assert not set(named) & set(wire.HOLDS)


# ---------------------------------------------------------------- ids and names


@given(st.binary(min_size=7, max_size=7))
def test_an_id_is_an_id_whatever_it_was_made_from(random: bytes) -> None:
    id = wire.session_id(random)
    assert wire.is_session_id(id)
    assert not set("ilou") & set(id)
    assert wire.session_of(f"{id}.17") == id


@pytest.mark.parametrize(
    "text", ["s123456", "s12345678", "S1234567", "x1234567", "s123456i", "s1234567\n", ""]
)
def test_what_only_looks_like_an_id_is_none(text: str) -> None:
    assert not wire.is_session_id(text)


@pytest.mark.parametrize(
    "text", ["s1234567", "s1234567.", "s1234567.0", "s1234567.01", "s1234567.1 ", "api.1"]
)
def test_what_only_looks_like_a_message_id_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        wire.session_of(text)


@pytest.mark.parametrize("name", ["api", "a", "x" * 64, "a/b:c-d_e.f", "Übung", "2026"])
def test_a_name_is_taken(name: str) -> None:
    assert wire.check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 65, "a b", "a\n", ".", "-x", "s1234567", "s1234567.3", "a\x00", "a*"]
)
def test_what_is_no_name_or_means_something_else_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        wire.check_name(name)


@given(st.text(max_size=80), st.sets(st.text(max_size=5)))
def test_every_directory_gives_a_name_that_is_free(directory: str, taken: set[str]) -> None:
    name = wire.name_for_directory("/" + directory.replace("\x00", ""), taken)
    assert wire.check_name(name) == name
    assert name not in taken
    assert wire.name_for_directory("/" + directory.replace("\x00", ""), {*taken, name}) != name


# ---------------------------------------------------------------- which session

HOME = "/home/me"
API = SessionRow(id="s4h8w2c1", name="api", dir="/home/me/src/api", implicit=True, active_at=5)
DOC = SessionRow(id="s4h8w2c9", name="apidoc", dir="/home/me/src/apidoc", implicit=True)
RUN = SessionRow(id="s7777777", dir="/home/me/src/api", state="closed")
OLD = SessionRow(id="s8888888", name="api", dir="/elsewhere", state="closed", active_at=9)
ROWS = (OLD, API, DOC, RUN)


@pytest.mark.parametrize(
    ("ref", "found"),
    [
        ("api", API),  # the open one of that name, though the closed one was active later
        ("s8888888", OLD),
        ("apid", DOC),
        ("s777", RUN),
        ("s4h8w2c9", DOC),
    ],
)
def test_a_reference_is_a_name_an_id_or_a_beginning(ref: str, found: SessionRow) -> None:
    assert resolve(ref, ROWS, "/") == found


def says(
    ref: str | None, cwd: str | None = "/", rows: tuple[SessionRow, ...] = ROWS, **options: Any
) -> DshError:
    with pytest.raises(DshError) as caught:
        resolve(ref, rows, cwd, home=HOME, **options)
    return caught.value


def test_a_name_that_is_not_there_names_those_that_are_close() -> None:
    error = says("apy")
    assert isinstance(error, NotFound)
    assert (str(error), error.hint) == ('no session "apy"', "dshctl ls")
    assert error.data["close"] == ["api", "apidoc"]
    assert error.data["told"] == "Close: api (~/src/api), apidoc (~/src/apidoc)."
    assert (str(says("zzzzz")), says("zzzzz").hint) == ('no session "zzzzz"', "dshctl ls")


def test_a_beginning_of_several_is_ambiguous_and_a_short_or_exact_one_no_beginning() -> None:
    error = says("s4h8")
    assert error.data["candidates"] == ["api", "apidoc"]
    assert error.exit_status == 4
    assert "could be" not in str(says("ap"))
    assert "could be" not in str(says("apid", exact=True))
    assert isinstance(says(""), Invalid)


@pytest.mark.parametrize("ref", [None, "."])
def test_this_directory_is_the_nearest_at_or_above_that_has_a_session(ref: str | None) -> None:
    above = SessionRow(id="s2222222", name="src", dir="/home/me/src", implicit=True)
    rows = (*ROWS, above)
    assert resolve(ref, rows, "/home/me/src/api/tests/x") == API
    assert resolve(ref, rows, "/home/me/src/api") == API
    assert resolve(ref, rows, "/home/me/src/apix") == above
    assert resolve(ref, rows, "/home/me/src/web/../api") == API


def test_here_an_open_session_comes_before_a_closed_one_and_named_ones_are_never_it() -> None:
    closed = API.replace(id="s3333333", state="closed", active_at=99)
    assert resolve(None, (closed, API), API.dir) == API
    assert resolve(None, (closed,), API.dir) == closed
    named = API.replace(implicit=False)
    assert isinstance(says(None, API.dir, (named,)), NotFound)


def test_no_session_here_says_how_many_there_are_and_how_to_make_one() -> None:
    error = says(None, "/home/me/src/web")
    assert str(error) == "no session for ~/src/web yet. There are 2 elsewhere: dshctl ls"
    assert error.hint.startswith("dshctl followup")
    assert str(says(None, "/x", ())) == "no session for /x yet."
    assert "gone" in str(says(None, None))


# ---------------------------------------------------------------- near words


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("max_token", ["max_tokens", "model"], ["max_tokens"]),
        ("modle", ["mode", "model"], ["model", "mode"]),
        ("FAST", ["fast"], ["fast"]),
        ("completely", ["else"], []),
        ("", ["a"], ["a"]),
    ],
)
def test_near_words_are_found(word: str, known: list[str], expected: list[str]) -> None:
    assert near(word, known) == expected


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=5, unique=True))
def test_nearness_never_fails_and_the_word_itself_is_nearest(word: str, known: list[str]) -> None:
    others = [name for name in known if name.lower() != word.lower()]
    assert near(word, [*others, word])[:1] == [word] or any(
        o.lower().startswith(word.lower()) for o in others
    )


# ---------------------------------------------------------------- durations and times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("45", 45), ("0", 0),
     ("0.5", 0.5), ("1d2h3m4s", 93784)],
)  # fmt: skip
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "h1", "1m1h", "-5", "1 h", "1w", "1.5h", "٣s", "5s\n", "9" * 30, "inf",
             "9" * 5000, "9" * 5000 + "d", "1." + "9" * 5000]
)  # fmt: skip
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_duration(text)


@pytest.mark.parametrize("text", ["@99999999999999", "@" + "9" * 5000, "@253402300800"])
def test_a_time_that_no_calendar_has_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_time(text, 0, past=True)


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def berlin(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp() * 1000)


NOON = berlin("2026-11-30 12:00")


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("18:00", "2026-11-30 18:00"),
        ("11:00", "2026-12-01 11:00"),
        ("12:00", "2026-12-01 12:00"),
        ("today 18:00", "2026-11-30 18:00"),
        ("tomorrow 06:00", "2026-12-01 06:00"),
        ("2026-12-01 06:00", "2026-12-01 06:00"),
        ("2026-12-01T06:00:30", "2026-12-01 06:00:30"),
        ("2026-12-01", "2026-12-01 00:00"),
    ],
)
def test_a_time_is_read_in_its_zone(text: str, when: str) -> None:
    assert parse_time(text, NOON, BERLIN) == berlin(when)


def test_a_time_with_a_zone_of_its_own_is_read_in_that() -> None:
    assert parse_time("2026-12-01T06:00:00Z", NOON, BERLIN) == berlin("2026-12-01 07:00")
    assert parse_time("@1796200000", NOON, BERLIN) == 1_796_200_000_000


def test_tomorrow_is_tomorrow_across_a_clock_change() -> None:
    assert parse_time("tomorrow 06:00", berlin("2026-10-24 12:00"), BERLIN) == berlin("2026-10-25 06:00")
    assert parse_time("06:00", berlin("2026-03-28 12:00"), BERLIN) == berlin("2026-03-29 06:00")


def second(text: str) -> int:
    """In the hour that autumn has twice, the later one."""
    return round(datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=1).timestamp() * 1000)


@pytest.mark.parametrize(
    ("now", "typed", "when"),
    [
        (berlin("2026-10-25 01:00"), "02:30", berlin("2026-10-25 02:30")),
        (berlin("2026-10-25 02:15"), "02:30", berlin("2026-10-25 02:30")),
        (berlin("2026-10-25 02:45"), "02:30", second("2026-10-25 02:30")),
        (second("2026-10-25 02:15"), "02:30", second("2026-10-25 02:30")),
        (second("2026-10-25 02:45"), "02:30", berlin("2026-10-26 02:30")),
        (berlin("2026-10-25 02:45"), "2026-10-25 02:30", second("2026-10-25 02:30")),
        (berlin("2026-10-24 12:00"), "2026-10-25 02:30", berlin("2026-10-25 02:30")),
        (berlin("2026-10-24 12:00"), "tomorrow 02:30", berlin("2026-10-25 02:30")),
        (second("2026-10-25 02:45"), "03:00", berlin("2026-10-25 03:00")),
    ],
)
def test_the_hour_that_autumn_has_twice_is_the_next_one(now: int, typed: str, when: int) -> None:
    assert parse_time(typed, now, BERLIN) == when


def test_looking_back_it_is_the_last_one() -> None:
    assert parse_time("02:30", second("2026-10-25 02:45"), BERLIN, past=True) == second("2026-10-25 02:30")
    assert parse_time("02:30", second("2026-10-25 02:15"), BERLIN, past=True) == berlin("2026-10-25 02:30")


def test_a_time_that_spring_leaves_out_is_an_hour_later() -> None:
    assert parse_time("02:30", berlin("2026-03-29 01:00"), BERLIN) == berlin("2026-03-29 03:30")


def test_what_lies_in_the_past_is_refused_unless_it_is_meant_to() -> None:
    for text in ("today 11:00", "2026-11-30 11:59", "@1"):
        with pytest.raises(Invalid, match="past"):
            parse_time(text, NOON, BERLIN)
    assert parse_time("13:00", NOON, BERLIN, past=True) == berlin("2026-11-29 13:00")
    assert parse_time("11:00", NOON, BERLIN, past=True) == berlin("2026-11-30 11:00")
    assert parse_time("yesterday 06:00", NOON, BERLIN, past=True) == berlin("2026-11-29 06:00")
    with pytest.raises(Invalid, match="past"):
        parse_time("yesterday 06:00", NOON, BERLIN)


@pytest.mark.parametrize("text", ["tomorrow 06:00", "today 13:00", "2026-12-01 06:00", "@99999999999"])
def test_what_is_still_to_come_is_refused_where_the_past_is_meant(text: str) -> None:
    with pytest.raises(Invalid, match="still to come; write 2h, 18:00 or yesterday 06:00"):
        parse_time(text, NOON, BERLIN, past=True)


@pytest.mark.parametrize("text", ["", "25:00", "12:60", "noon", "tomorrow", "2026-13-01", "@", "@x", "1200"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="not a time"):
        parse_time(text, NOON, BERLIN)


# ---------------------------------------------------------------- settings


def test_settings_are_read_as_they_are_typed() -> None:
    typed = {"net": "on", "mode": "full", "ask": "deny", "patience": "6h", "model": "fast", "env.X": "y"}
    read = {name: wire.setting(name, text) for name, text in typed.items()}
    assert read == {
        "net": True,
        "mode": "full",
        "ask": "deny",
        "patience": 21600,
        "model": "fast",
        "env.X": "y",
    }


@pytest.mark.parametrize(
    ("name", "text"), [("net", "maybe"), ("mode", "all"), ("patience", "x"), ("modle", "x"), ("env.", "x")]
)
def test_a_setting_that_makes_no_sense_is_refused(name: str, text: str) -> None:
    with pytest.raises(Invalid):
        wire.setting(name, text)
