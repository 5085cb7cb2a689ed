"""The line that is typed, key by key, without a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshctl.attaching.editor import Did, Editor
from dshctl.output import width


def typed(*data: str | bytes) -> tuple[Editor, list[Did]]:
    editor = Editor()
    did = [one for each in data for one in editor.feed(each if isinstance(each, bytes) else each.encode())]
    return editor, did


def test_enter_gives_the_line_and_empties_it() -> None:
    editor, did = typed("héllo\r")
    assert did == [Did("line", "héllo")]
    assert editor.text == ""


def test_a_character_may_come_byte_by_byte() -> None:
    _, did = typed(*(bytes([byte]) for byte in "日本é\r".encode()))
    assert did == [Did("line", "日本é")]


def test_three_pasted_lines_are_one_message() -> None:
    _, did = typed("see: \x1b[200~one\r\ntwo\rthree\x1b[201~", "\r")
    assert did == [Did("line", "see: one\ntwo\nthree")]


def test_what_is_pasted_is_never_a_key() -> None:
    editor, did = typed("\x1b[200~a\x03\x04\x1b[Ab", "\x1b[201", "~")
    assert did == []
    assert editor.text == "a\x03\x04\x1b[Ab"


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("abc\x1b[D\x1b[DX", "aXbc"),
        ("abc\x01X\x05Y", "XabcY"),
        ("one two\x17three", "one three"),
        ("one two\x01\x0b", ""),
        ("one two\x15", ""),
        ("ab\x7f", "a"),
        ("a\u0301b\x7f\x7f", ""),
        ("abc\x1b[D\x1b[3~", "ab"),
        ("abc\x01\x04", "bc"),
        ("one\x1b\rtwo", "one\ntwo"),
        ("x\x1b[20~\x1b[1;2P\x1bOQy", "xy"),
        ("\x7f\x1b[D\x1b[C\x1b[3~", ""),
        ("one\r\x1b\x1b[A", "one"),
        ("\x1b[200~a\x1b\x1b[201~b", "a\x1bb"),
    ],
)
def test_keys_change_the_line(keys: str, text: str) -> None:
    assert typed(keys)[0].text == text


def test_ctrl_c_clears_a_line_that_can_be_called_back_and_on_an_empty_one_is_for_the_turn() -> None:
    editor, did = typed("half a thought\x03")
    assert (editor.text, did) == ("", [])
    assert list(editor.feed(b"\x03")) == [Did("interrupt")]
    assert list(editor.feed(b"\x1b[A\r")) == [Did("line", "half a thought")]


def test_ctrl_d_leaves_only_from_an_empty_line() -> None:
    editor, did = typed("x\x04")
    assert (editor.text, did) == ("x", [])
    assert list(editor.feed(b"\x7f\x04")) == [Did("leave")]


def test_older_lines_come_back_and_the_typed_one_is_still_there() -> None:
    editor, _ = typed("one\r", "two\r", "new")
    list(editor.feed(b"\x1b[A\x1b[A\x1b[A"))
    assert editor.text == "one"
    list(editor.feed(b"\x1b[B\x1b[B\x1b[B"))
    assert editor.text == "new"


@pytest.mark.parametrize("columns", [8, 12, 20, 35])
def test_however_narrow_the_terminal_the_line_is_one_row_of_it(columns: int) -> None:
    editor = Editor()
    editor.put("日本 word " * 8)
    for prompt in ("work> ", "a-long-name (no daemon)> "):
        row = editor.row(columns, prompt, "^J")
        assert width(row.text) < columns
        assert row.column <= width(row.text)


@given(st.text(max_size=60), st.integers(0, 60), st.integers(8, 60))
def test_the_row_fits_and_has_the_cursor_in_it(text: str, back: int, columns: int) -> None:
    editor = Editor()
    editor.put(text)
    editor.at = max(0, len(text) - back)
    row = editor.row(columns, "> ", "^J")
    assert "\n" not in row.text
    assert "\x1b" not in row.text
    assert row.column <= width(row.text)
    longest = max([width(f"<U+{ord(char):04X}>") for char in text], default=1)
    assert width(row.text) < columns + longest


@given(st.binary(max_size=80))
def test_no_bytes_break_it(data: bytes) -> None:
    editor = Editor()
    list(editor.feed(data))
    assert 0 <= editor.at <= len(editor.text)
