"""What can be seen when no daemon runs, from files that a daemon could have left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dshd.log.codec import Event, encode
from dshd.log.disk import RealDisk
from dshd.session.registry import index
from tests.dshctl.conftest import Dshctl

Json = dict[str, Any]
NOW = 1_796_040_000_000
ID = "s4h8w2c1"


def header(id: str = ID, **changes: Any) -> Event:
    data = {
        "version": 1, "id": id, "name": "api", "created": NOW, "dir": "/home/you/src/api", "model": "fast",
        "adapter": "openai", "mode": "workspace", "implicit": True, **changes,
    }  # fmt: skip
    return Event(seq=0, time=NOW, type="session/header", data=data)


def said(number: int = 1, text: str = "what is here?", id: str = ID) -> Json:
    return {
        "id": f"{id}.{number}", "role": "user", "content": [{"type": "text", "text": text}], "created": NOW,
        "source": {"kind": "user", "tty": "pts/3"}, "wake": True, "verb": "followup",
    }  # fmt: skip


def turn(first: int, number: int, answer: str) -> list[Event]:
    """A turn of one step, from its message's arrival to its end."""
    message = said(number)
    op = {"queue": "next-turn", "remove": [], "insert": [message], "before": None}
    claim = {"queue": "next-turn", "remove": [message["id"]], "insert": [], "before": None}
    at: Json = {"turn": number, "step": 1}
    content = [{"type": "text", "text": answer}]
    lines: list[tuple[str, Json]] = [
        ("inbox/spliced", {"cause": "send", "by": message["source"], "ops": [op]}),
        ("turn/start", {"turn": number}),
        ("inbox/spliced", {"cause": "claim", "by": {}, "turn": number, "ops": [claim]}),
        ("step/start", at),
        ("user/message", {**message, **at}),
        ("assistant/chunk", {**at, "attempt": 1, "chunks": []}),
        ("assistant/message", {**at, "content": content, "model": "fast"}),
        ("step/end", at),
        ("turn/end", {"turn": number, "reason": "completed"}),
    ]
    surfaced = ("user/message", "assistant/message")
    return [
        Event(seq=first + n, time=NOW + (first + n) * 1000, type=kind, data=data,
              surface="append" if kind in surfaced else None)
        for n, (kind, data) in enumerate(lines)
    ]  # fmt: skip


EVENTS = [header(), *turn(1, 1, "Nothing."), *turn(10, 2, "ü你🌍"), *turn(19, 3, "The end.")]


def write(dshctl: Dshctl, events: list[Event] = EVENTS, id: str = ID) -> Path:
    directory = dshctl.state / "sessions" / id
    directory.mkdir(parents=True)
    path = directory / "log.jsonl"
    path.write_bytes(b"".join(map(encode, events)))
    return path


def test_log_shows_the_last_turns(dshctl: Dshctl) -> None:
    write(dshctl)
    ran = dshctl("log", "-s", "api", "-n", "2")
    assert ran.code == 0
    assert ran.out.count("-- turn ") == 2
    assert "  ü你🌍" in ran.out.splitlines()
    assert "  The end." in ran.out.splitlines()
    assert ran.err == ""


def test_log_shows_the_very_lines(dshctl: Dshctl) -> None:
    path = write(dshctl)
    ran = dshctl("log", "-s", ID, "--all", "--chunks", "-o", "json")
    assert ran.out.encode() == path.read_bytes()
    assert "assistant/chunk" not in dshctl("log", "-s", ID, "--all", "-o", "json").out


@pytest.mark.parametrize(
    ("args", "turns"),
    [(("--turn", "2"), [2]), (("--turn", "2-3"), [2, 3]), (("--turn", "2-"), [2, 3]), (("--turn", "9"), []),
     (("-n", "0"), []), ((), [1, 2, 3]), (("--since", f"@{(NOW + 19_500) // 1000}"), [3])],
)  # fmt: skip
def test_log_chooses(dshctl: Dshctl, args: tuple[str, ...], turns: list[int]) -> None:
    write(dshctl)
    ran = dshctl("log", "-s", "api", *args)
    assert [f"-- turn {number} " in ran.out for number in (1, 2, 3)] == [n in turns for n in (1, 2, 3)]


@pytest.mark.parametrize("shape", [(), ("-o", "json"), ("--json",)])
def test_where_there_is_nothing_to_show_that_is_said(dshctl: Dshctl, shape: tuple[str, ...]) -> None:
    write(dshctl)
    ran = dshctl("log", "-s", "api", "--turn", "9-12", *shape)
    assert (ran.code, ran.err) == (4, "dshctl: no turn 9 in api.\n      dshctl log -s api -n 1\n")
    ran = dshctl("log", "-s", "api", "--since", "1s ago", *shape)
    assert (ran.code, ran.err) == (0, "dshctl: no turn in api since then.\n")
    assert dshctl("log", "-s", "api", "-n", "0", *shape).err == ""


def test_a_session_without_a_turn_says_so(dshctl: Dshctl) -> None:
    path = write(dshctl)
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    assert dshctl("log", "-s", "api") == (0, "", "dshctl: no turn in api yet.\n")
    assert dshctl("log", "-q", "-s", "api") == (0, "", "")


@pytest.mark.parametrize("chosen", [("-n", "1"), ("--turn", "4")])
def test_a_turn_that_nothing_has_entered_yet_is_said_to_have_begun(
    dshctl: Dshctl, chosen: tuple[str, ...]
) -> None:
    begun = Event(seq=28, time=NOW + 28_000, type="turn/start", data={"turn": 4})
    write(dshctl, [*EVENTS, begun])
    said = "dshctl: turn 4 of api has begun; nothing has entered it yet.\n"
    assert dshctl("log", "-s", "api", *chosen) == (0, "", said)


def test_answer_show_ls_and_message_are_as_the_daemon_has_them(dshctl: Dshctl) -> None:
    write(dshctl)
    assert dshctl("answer", "-s", "api").out == "The end.\n"
    assert dshctl("answer", "-s", "api", "-n", "2").out == "ü你🌍\n"
    assert dshctl("answer", f"{ID}.1").out == "Nothing.\n"
    assert dshctl("answer", f"{ID}.1", "--json").last["turn"] == 1
    shown = dshctl("show", "api", "--json").last
    assert (shown["state"], shown["turn"], shown["title"]) == ("idle", 3, "what is here?")
    assert "api" in dshctl("ls").out
    message = dshctl("message", f"{ID}.3", "--json").last
    assert (message["outcome"], message["turn"]) == ("completed", 3)


def test_what_is_not_there_is_4(dshctl: Dshctl) -> None:
    write(dshctl)
    for args in (("answer", f"{ID}.9"), ("message", f"{ID}.9"), ("show", "nope"), ("log", "-s", "s0000000")):
        assert dshctl(*args).code == 4, args
    assert "Close: api" in dshctl("show", "apj").err


def test_with_no_state_at_all_there_is_nothing_and_nothing_is_made(dshctl: Dshctl) -> None:
    assert dshctl("ls").code == 0
    assert dshctl("log").code == 4
    assert dshctl("show").code == 4
    assert dshctl("fsck").code == 0
    assert not dshctl.state.exists()


def test_the_session_of_the_directory_is_found(dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch) -> None:
    here = dshctl.home / "work" / "below"
    here.mkdir(parents=True)
    write(dshctl, [header(dir=str(dshctl.home / "work")), *EVENTS[1:]])
    monkeypatch.chdir(here)
    assert dshctl("answer").out == "The end.\n"
    assert dshctl("ls").out.splitlines()[1].startswith("* api ")


def test_a_damaged_log_is_shown_with_the_place_and_the_way_out(dshctl: Dshctl) -> None:
    path = write(dshctl, [*EVENTS, Event(seq=28, time=NOW, type="driver/woken", data={}, synced=27)])
    lines = path.read_bytes().split(b"\n")
    lines[12] = lines[12][:40]
    path.write_bytes(b"\n".join(lines))
    shown = dshctl("log", "-s", ID, "--all")
    assert shown.code == 0
    assert "  The end." in shown.out.splitlines()
    assert "line 13" in shown.err
    assert "dshctl fsck --repair" in shown.err
    checked = dshctl("fsck", "--json")
    assert (checked.code, checked.last["ok"], checked.last["name"]) == (7, False, "api")
    assert dshctl("show", "api", "--json").last["state"] == "damaged"


def test_repair_makes_a_damaged_log_whole_without_a_daemon(dshctl: Dshctl) -> None:
    path = write(dshctl, [*EVENTS, Event(seq=28, time=NOW, type="driver/woken", data={}, synced=27)])
    lines = path.read_bytes().split(b"\n")
    lines[12] = lines[12][:40]
    path.write_bytes(b"\n".join(lines))
    assert dshctl("fsck", "--repair", "api").code == 0
    assert dshctl("fsck").code == 0
    assert "-- line 13 was damaged" in dshctl("log", "-s", "api", "--all").out


def test_fsck_without_a_daemon_excludes_one(dshctl: Dshctl) -> None:
    import fcntl

    write(dshctl)
    with (dshctl.state / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert dshctl("fsck").code == 3


def test_a_torn_tail_is_no_damage(dshctl: Dshctl) -> None:
    path = write(dshctl)
    path.write_bytes(path.read_bytes() + b'{"seq":28,"time"')
    assert dshctl("fsck").code == 0
    assert dshctl("answer", "-s", "api").out == "The end.\n"


def test_a_log_of_a_newer_version_is_said_to_be_one(dshctl: Dshctl) -> None:
    write(dshctl, [header(version=99), *EVENTS[1:]])
    ran = dshctl("fsck")
    assert ran.code == 7
    assert "newer" in ran.out


def test_a_directory_that_cannot_be_read_is_not_an_empty_one(dshctl: Dshctl) -> None:
    dshctl.state.mkdir()
    (dshctl.state / "sessions").write_text("a file, which even root can't list")
    ran = dshctl("ls")
    assert ran.code != 0
    assert str(dshctl.state / "sessions") in "".join(ran.err.split("\n    "))


def test_a_view_beside_the_log_is_used_only_if_it_fits(dshctl: Dshctl) -> None:
    path = write(dshctl)
    view = {**dshctl("show", "api", "--json").last, "title": "from the view"}
    index.write_beside(RealDisk(), path, view)

    def listed() -> dict[str, Any]:
        return dshctl("ls", "--all", "--json").objects[0]

    assert listed()["title"] == "from the view"
    path.write_bytes(
        path.read_bytes() + encode(Event(seq=28, time=NOW, type="session/closed", data={"by": {}}))
    )
    assert (listed()["title"], listed()["state"]) == ("what is here?", "closed")
    (path.parent / "view.json").write_bytes(b"\0" * 10)
    assert listed()["state"] == "closed"


def test_showing_one_session_reads_its_log_whatever_the_view_says(dshctl: Dshctl) -> None:
    path = write(dshctl)
    index.write_beside(RealDisk(), path, dshctl("show", "api", "--json").last)
    path.write_bytes(path.read_bytes().replace(b"session/header", b"session/heade\0"))
    assert dshctl("show", "api", "--json").last["state"] == "damaged"


def test_output_of_long_logs_is_streamed(dshctl: Dshctl) -> None:
    big = [
        Event(seq=28 + n, time=NOW, type="todo/write", data={"items": [], "pad": "x" * 1000})
        for n in range(3000)
    ]
    write(dshctl, [*EVENTS, *big])
    assert dshctl("log", "-s", ID, "-n", "1", "-o", "json").out.count("\n") == 3009 - 2
