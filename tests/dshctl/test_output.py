from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dshctl import output
from dshctl.client import TimedOut
from dshctl.output import Out
from dshctl.streams import Stream
from dshd.errors import Damaged, NotFound
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, RESULT, SESSION, Fake

NASTY = "\x1b[2J\x9b31m\r50%\r\x7f\u202eevil\u2066\u200b"


def out(tty: bool = False, **environ: str) -> tuple[Out, io.BytesIO]:
    stream = io.BytesIO()
    return Out(environ, out=Stream(stream, tty), err=Stream(io.BytesIO(), tty)), stream


def test_control_characters_and_overrides_are_visible_on_a_terminal() -> None:
    shown = output.visible(NASTY)
    assert shown == "^[[2J<U+009B>31m^M50%^M^?<U+202E>evil<U+2066><U+200B>"
    assert output.visible("a\tb\nc\r\nd") == "a       b\nc\nd"


def test_a_pipe_gets_text_as_it_is() -> None:
    writer, stream = out()
    writer.line(NASTY)
    assert stream.getvalue() == NASTY.encode() + b"\n"


def test_json_has_nothing_that_a_terminal_obeys_and_reads_back_the_same() -> None:
    line = output.dump({"text": NASTY + "\u2028\ud83d\u00fc"})
    assert not set(line) & set("\x1b\x9b\r\x7f\u202e\u2066\u2028")
    assert "\u00fc" in line
    assert json.loads(line)["text"] == NASTY + "\u2028\ufffd\u00fc"


def test_the_last_object_carries_exit_whatever_its_type() -> None:
    writer, stream = out()
    writer.json = True
    writer.item(SESSION)
    writer.item(RECEIPT)
    writer.finish(0)
    first, last = (json.loads(line) for line in stream.getvalue().decode().splitlines())
    assert "exit" not in first
    assert last["exit"] == 0


def test_a_command_with_nothing_to_show_still_ends_in_an_object() -> None:
    writer, stream = out()
    writer.json = True
    writer.finish(3)
    assert json.loads(stream.getvalue()) == {"type": "end", "exit": 3}


def test_under_json_nothing_else_is_on_stdout() -> None:
    writer, stream = out()
    writer.json = True
    writer.line("for people")
    writer.lines(["for people"])
    writer.error(NotFound("no"))
    writer.finish(4)
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize(
    ("environ", "utf8"),
    [
        ({}, False),
        ({"LANG": "C"}, False),
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LANG": "de_DE.utf8"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, False),
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, True),
        ({"LC_CTYPE": "C.UTF-8"}, True),
        ({"LC_CTYPE": "en_US.UTF-8"}, True),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "en_US.UTF-8"}, True),
    ],
)
def test_the_users_locale_decides_on_ornaments(environ: dict[str, str], utf8: bool) -> None:
    assert output.utf8_locale(environ) is utf8


@pytest.mark.parametrize(("started_with", "kept"), [(b"A=b\0", False), (b"A=b\0LC_CTYPE=C.UTF-8\0", True)])
def test_what_python_sets_in_the_c_locale_is_not_the_users_word(
    started_with: bytes, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "environ").write_bytes(started_with)
    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")
    assert ("LC_CTYPE" in output.given_environ(str(tmp_path / "environ"))) is kept


@pytest.mark.parametrize(
    ("value", "columns"), [("100", 100), ("10", 36), ("", 80), ("wide", 80), ("0", 80), ("-5", 80)]
)
def test_columns(value: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_terminal_columns", lambda: 0)
    assert output.columns({"COLUMNS": value}) == columns
    monkeypatch.setattr(output, "_terminal_columns", lambda: 132)
    assert output.columns({"COLUMNS": value}) == (132 if value == "" else columns)


def test_tables_align_and_only_cut_their_last_column_where_there_is_a_limit() -> None:
    rows = [("NAME", "N", "TITLE"), ("api", "2", "Fix the flaky login tests"), ("\u4f60\u597d", "12", "x")]
    assert output.table(rows, right=frozenset({1})) == [
        "NAME   N  TITLE",
        "api    2  Fix the flaky login tests",
        "\u4f60\u597d  12  x",
    ]
    assert output.table(rows, limit=20, ellipsis="\u2026")[1] == "api   2   Fix the f\u2026"
    assert output.table([]) == []


def test_a_long_cell_leaves_room_for_the_last_column_where_there_is_a_limit() -> None:
    rows = [("NAME", "STATE", "TITLE"), ("x" * 64, "idle", "Fix the tests"), ("api", "running", "")]
    assert output.table(rows)[1] == f"{'x' * 64}  idle     Fix the tests"
    shown = output.table(rows, limit=40, ellipsis="\u2026")
    assert shown[1] == f"{'x' * 16}\u2026  idle     Fix the tes\u2026"
    assert shown[2] == f"api{' ' * 14}  running"


@pytest.mark.parametrize(
    ("text", "shown", "cells"),
    [
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", None, 6),
        ("\u2764\ufe0f\u200d\U0001f525", None, 3),
        ("a\u200db", "a<U+200D>b", 2),
        ("\U0001f468\u200d", "\U0001f468<U+200D>", 2),
        ("\u200d\U0001f468", "<U+200D>\U0001f468", 2),
        ("\U0001f468\u202e\u200d\U0001f469", "\U0001f468<U+202E><U+200D>\U0001f469", 5),
    ],
)
def test_a_joiner_is_shown_unless_it_makes_an_emoji(text: str, shown: str | None, cells: int) -> None:
    assert output.visible(text) == (text if shown is None else shown)
    assert output.width(text) == cells


def test_colour_is_for_terminals_that_want_it() -> None:
    assert out(tty=True, TERM="xterm")[0].colour
    assert not out(tty=True, TERM="xterm", NO_COLOR="1")[0].colour
    assert not out(tty=True, TERM="dumb")[0].colour
    assert not out(tty=True)[0].colour
    assert not out(TERM="xterm")[0].colour


def test_errors_are_sentences_under_80_columns_with_the_command_below() -> None:
    text = output.error_text(
        'route "fast" needs FAST_API_KEY, and the daemon doesn\'t have it. It was started by cron at 02:00;'
        " your shell's variables don't reach it",
        "dshctl key fast            (asks for the key, keeps it in a 0600 file)",
    )
    assert text.splitlines() == [
        'dshctl: route "fast" needs FAST_API_KEY, and the daemon doesn\'t have it. It was',
        "    started by cron at 02:00; your shell's variables don't reach it.",
        "      dshctl key fast            (asks for the key, keeps it in a 0600 file)",
    ]
    assert output.error_text("a:\nquoted line") == "dshctl: a:\n      quoted line"
    elsewhere = "no session for ~/src/web yet. There are 3 elsewhere: dshctl ls"
    assert output.error_text(elsewhere) == f"dshctl: {elsewhere}"


def test_what_is_told_behind_a_message_stands_there_instead_of_the_hint() -> None:
    data = {"close": ["api"], "told": "Close: api (~/api)."}
    close = NotFound('no session "apy"', hint="dshctl ls", data=data)
    assert output.words_of(close) == 'dshctl: no session "apy". Close: api (~/api).'
    assert "told" not in output.error_item(close)
    told = "The rest can be read: dshctl log -s api. To make it work again:"
    where = "session api is damaged at line 3000 (bytes 412033-412690 of log.jsonl)."
    damaged = Damaged(where, hint="dshctl fsck --repair api", data={"told": told})
    assert output.words_of(damaged).splitlines() == [
        "dshctl: session api is damaged at line 3000 (bytes 412033-412690 of log.jsonl).",
        "    The rest can be read: dshctl log -s api. To make it work again:",
        "      dshctl fsck --repair api",
    ]
    see = "dshctl attach -s api"
    late = TimedOut("still running after 30 min; it goes on", hint=see, data={"told": f"To see it: {see}"})
    assert output.words_of(late) == f"dshctl: still running after 30 min; it goes on. To see it: {see}"
    long = TimedOut(late.message, hint=f"{see}{'x' * 9}", data={"told": f"To see it: {see}{'x' * 9}"})
    assert output.words_of(long).splitlines() == [
        "dshctl: still running after 30 min; it goes on. To see it:", f"      {long.hint}"
    ]  # fmt: skip


# As a program.


def run(dshctl: Dshctl, *args: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "dshctl.cli", *args], env=dshctl.environ, stdin=subprocess.DEVNULL, timeout=30,
        check=False, **options,
    )  # fmt: skip


def test_a_closed_stdout_never_lets_an_answer_into_another_descriptor(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    script = f'"{sys.executable}" -m dshctl.cli followup x >&- 2>&- <&-; echo $?'
    done = subprocess.run(
        ["sh", "-c", script], env=dshctl.environ, capture_output=True, timeout=30, check=False
    )
    assert done.stdout == b"1\n"
    assert [method for method, _ in fake.asked] == ["daemon.hello", "session.send"]


def test_a_full_stdout_is_an_error_that_says_so(dshctl: Dshctl) -> None:
    with open("/dev/full", "wb") as full:
        done = run(dshctl, "paths", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"dshctl: cannot write to standard output: no space left on device.\n"


@pytest.mark.parametrize(
    ("args", "done"),
    [
        ("followup x", "it was sent as s4h8w2c1.17"),
        ("followup --json x", "it was sent as s4h8w2c1.17"),
        ("new", "session s4h8w2c1 was made"),
        ("abort", "it was done all the same"),
    ],
)
def test_what_was_done_before_stdout_was_found_full_is_said(
    dshctl: Dshctl, fake: Fake, args: str, done: str
) -> None:
    from tests.dshctl.test_schemas import ABORTED

    created = {"type": "created", "exit": 0, "session": SESSION, "receipt": None}
    fake.answers |= {"session.send": RECEIPT, "session.create": created, "session.abort": ABORTED}
    with open("/dev/full", "wb") as full:
        ran = run(dshctl, *args.split(), stdout=full, stderr=subprocess.PIPE)
    assert ran.returncode == 1
    said = " ".join(ran.stderr.decode().split())
    assert said.endswith(f"dshctl: cannot write to standard output: no space left on device; {done}.")


@pytest.mark.parametrize(
    ("args", "done"), [("followup x", "; it was sent as s4h8w2c1.17"), ("status", ""), ("status --json", "")]
)
def test_a_closed_stdout_is_told_as_a_full_one_is(dshctl: Dshctl, fake: Fake, args: str, done: str) -> None:
    from tests.dshctl.test_views import STATUS

    fake.answers |= {"session.send": RECEIPT, "daemon.status": STATUS}
    script = f'"{sys.executable}" -m dshctl.cli {args} >&-'
    ran = subprocess.run(
        ["sh", "-c", script], env=dshctl.environ, capture_output=True, timeout=30, check=False
    )
    assert ran.returncode == 1
    said = " ".join(ran.stderr.decode().split())
    assert said == f"dshctl: cannot write to standard output: it is closed{done}."


def test_a_reader_that_went_away_is_no_error(dshctl: Dshctl) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run(dshctl, "--help", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 0


def test_output_is_utf8_in_the_posix_locale(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["answer.show"] = {**RESULT, "text": "ü你🌍"}
    posix = {**dshctl.environ, "LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert dshctl.process("answer", env=posix).out == "ü你🌍\n"
    assert json.loads(dshctl.process("answer", "--json", env=posix).out)["text"] == "ü你🌍"


def test_no_escapes_without_a_terminal(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["answer.show"] = {**RESULT, "text": "plain"}
    ran = dshctl.process("answer", env={**dshctl.environ, "TERM": "xterm", "FORCE_COLOR": "1"})
    assert "\x1b" not in ran.out + ran.err
