"""What dshctl writes, and to whom.

Rules. Standard output carries results (ids, answers, tables, or with `--json` one object per
line); standard error carries sentences. Both are UTF-8 bytes whatever the locale says, because a
pipe has no locale; what the locale decides is only whether our own ornaments (``…``) may be more
than ASCII. Nothing is ever written with escape sequences unless it goes to a terminal.

Text that somebody else wrote (a model, a tool, a file name) may hold control characters and
bidirectional overrides. On a terminal they are made visible, in a pipe they are left alone; JSON
escapes those that a terminal would act on even when only `cat` stands between.

The last object of a command carries `exit`. So the writer holds one object back until the next or
the end comes, except in a stream that somebody watches (`hold=False`), which ends in an object of
type `end` instead.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dshctl.streams import Stream, Unwritable, stream
from dshd.errors import DshError

MIN_COLUMNS: Final = 36
MAX_COLUMNS: Final = 1000
LAST_COLUMN: Final = 12  # columns that others make room for, before
NARROWEST: Final = 14  # they would be less

# C0 but newline and tab, DEL, C1; and what reorders or hides text: bidi controls, zero widths,
# line and paragraph separators, tags. A joiner (U+200D) between emoji hides nothing: it makes one of them.
_EMOJI = "\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
    f"|(?<![{_EMOJI}\ufe0f])\u200d|\u200d(?![{_EMOJI}])"
)
_JSON_CONTROL = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_LONE = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """Foreign text for a terminal: control characters as ``^[`` or ``<U+202E>``; tabs expanded."""
    return _CONTROL.sub(_show, text.replace("\r\n", "\n")).expandtabs(8)


def _show(match: re.Match[str]) -> str:
    point = ord(match[0])
    if point < 0x20:
        return "^" + chr(point + 0x40)
    return "^?" if point == 0x7F else f"<U+{point:04X}>"


def dump(value: Any) -> str:
    """One line of JSON, readable as text, with nothing in it that a terminal obeys."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _JSON_CONTROL.sub(_escape, _LONE.sub("\ufffd", text))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def given_environ(started_with: str = "/proc/self/environ") -> dict[str, str]:
    """The environment as the user set it.

    Python sets LC_CTYPE to C.UTF-8 when it finds the C locale; that isn't the user's word, and no
    session should take it for that. What the process was started with still stands in /proc.
    """
    environ = dict(os.environ)
    if environ.get("LC_CTYPE") == "C.UTF-8":
        try:
            with open(started_with, "rb") as file:
                if b"LC_CTYPE=" not in file.read():
                    del environ["LC_CTYPE"]
        except OSError:
            pass
    return environ


def utf8_locale(environ: Mapping[str, str]) -> bool:
    """Whether the locale is UTF-8."""
    chosen = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    return "utf8" in chosen.lower().replace("-", "")


def columns(environ: Mapping[str, str]) -> int:
    """How wide: COLUMNS, else the terminal's width, else 80; from 36 to 1000. A COLUMNS that is no width
    counts as 80."""
    said = environ.get("COLUMNS", "")
    try:
        wide = int(said) if said else _terminal_columns()
    except ValueError:
        wide = 0
    return min(max(MIN_COLUMNS, wide if wide > 0 else 80), MAX_COLUMNS)


def _terminal_columns() -> int:
    for fd in (1, 2):
        try:
            return os.get_terminal_size(fd).columns
        except OSError:
            continue
    return 0


class Out:
    """Where a command's words go. One per run of dshctl."""

    def __init__(self, environ: Mapping[str, str] | None = None, *, out: Stream | None = None,
                 err: Stream | None = None) -> None:  # fmt: skip
        self.environ = given_environ() if environ is None else environ
        self.out = out or stream(sys.stdout)
        self.err = err or stream(sys.stderr)
        self.json = False
        self.quiet = False
        self.verbose = False
        self.unicode = utf8_locale(self.environ)
        self.achieved = ""  # what has been done already, for when its result can't be written
        self._held: dict[str, Any] | None = None

    @property
    def columns(self) -> int:
        return columns(self.environ)

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "..."

    @property
    def colour(self) -> bool:
        plain = self.environ.get("NO_COLOR") or self.environ.get("TERM", "dumb") == "dumb"
        return self.out.tty and not plain

    def bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    # Standard output.

    def line(self, text: str = "") -> None:
        """A line for people (nothing under `--json`)."""
        if not self.json:
            self.out.write(self.shown(text) + "\n")

    def lines(self, texts: Sequence[str]) -> None:
        if not self.json and texts:
            self.out.write("".join(self.shown(text) + "\n" for text in texts))

    def heading(self, text: str) -> None:
        if not self.json:
            self.out.write(self.bold(self.shown(text)) + "\n")

    def raw(self, text: str) -> None:
        """As it is, on a pipe; made harmless on a terminal. Used for lines that are JSON already."""
        self.out.write((_JSON_CONTROL.sub(_escape, text) if self.out.tty else text) + "\n")

    def piece(self, text: str) -> None:
        """Part of a text, which may end in the middle of a line (nothing under `--json`)."""
        if not self.json:
            self.out.write(self.shown(text))

    def shown(self, text: str) -> str:
        return visible(text) if self.out.tty else text

    def item(self, value: dict[str, Any], *, hold: bool = True) -> None:
        """An object of `--json`; the last one held back gets `exit`."""
        if not self.json:
            return
        self._release()
        if hold:
            self._held = value
        else:
            self._put(value)

    def finish(self, code: int) -> None:
        """The end of the command: the last object says what it exits with."""
        if not self.json:
            return
        last = self._held or {"type": "end"}
        self._held = None
        self._put({**last, "exit": code})

    def _release(self) -> None:
        if self._held is not None:
            self._put(self._held)
            self._held = None

    def _put(self, value: dict[str, Any]) -> None:
        self.out.write(dump(value) + "\n")

    # Standard error.

    def say(self, sentence: str) -> None:
        """A sentence for people on standard error; `-q` silences it."""
        if not self.quiet:
            self._tell(sentence)

    def fail(self, sentence: str) -> None:
        """What went wrong; `-q` does not silence it."""
        self._tell(sentence)

    def tell(self, sentence: str) -> None:
        """A sentence that only a terminal gets."""
        if self.err.tty:
            self.say(sentence)

    def detail(self, sentence: str) -> None:
        """What `-v` shows."""
        if self.verbose:
            self._tell(f"dshctl: {sentence}")

    def _tell(self, sentence: str) -> None:
        try:
            self.err.write((visible(sentence) if self.err.tty else sentence) + "\n")
        except Unwritable:  # nowhere left to say it
            self.err.gone = True

    def error_sentence(self, error: DshError) -> None:
        """The sentence alone: a warning beside a result that is there all the same."""
        self._tell(words_of(error))

    def error(self, error: DshError) -> None:
        """The sentence on standard error, also under `-q`, and with `--json` an object as well."""
        self.error_sentence(error)
        self.item(error_item(error))


def words_of(error: DshError) -> str:
    """What a person reads of it. An error may have something to be told behind its message, and instead of
    its hint (``told``): what else there is, or the command in a sentence, if that fits one line. One that
    ends in a colon leads to the hint."""
    from dshctl.times import told_here

    message, told = told_here(error.message), error.data.get("told")
    if not told:
        return error_text(message, error.hint)
    if told.endswith(":"):
        below = [f"      {line}" for line in error.hint.split("\n")]
        return "\n".join([*_wrapped(f"dshctl: {message}"), *_wrapped(f"    {told}"), *below])
    words = f"{message.rstrip('.')}. {told}"
    whole = error_text(words)
    if "\n" not in whole or error.hint not in told:
        return whole
    return error_text(words.removesuffix(error.hint).rstrip(), error.hint)


def error_text(message: str, hint: str = "") -> str:
    """``dshctl: WHAT.`` and, indented below it, what to type; lines stay under 80.

    What stands in the message behind a newline is quoted: indented like a command, and not wrapped. A command
    at its end is to be typed as it stands, without a full stop.
    """
    first, *quoted = message.strip().split("\n")
    if not quoted and not first.endswith((".", "?", "!", ":")) and not _COMMAND.search(first):
        first += "."
    below = [line.strip() for line in (*quoted, *hint.splitlines())]
    return "\n".join([*_wrapped(f"dshctl: {first}"), *(f"      {line}" for line in below if line)])


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 79, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


_COMMAND: Final = re.compile(r": dshctl [^.:]+$")

# Further members that an error may have, by its kind; null where it has none. See the schema.
FACTS: Final = (
    "candidates", "close", "differs", "directory", "id", "nearest", "protocol", "reset_to", "room",
)  # fmt: skip


def error_item(error: DshError) -> dict[str, Any]:
    """The `error` object, all that has one is made by this; members that a newer daemon adds come along."""
    return {
        "type": "error",
        **dict.fromkeys(FACTS),
        **{name: value for name, value in error.data.items() if name != "told"},
        "code": error.code,
        "message": error.message,
        "hint": error.hint or None,
        "retryable": error.retryable,
        "retry_at": error.retry_at,
        "outcome": error.outcome,
    }


# Tables.


def width(text: str) -> int:
    """Columns that a text takes: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(_cell(unicodedata, char) for char in text)


def _cell(unicodedata: Any, char: str) -> int:
    if unicodedata.combining(char) or char in "\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def pad(text: str, cells: int, right: bool = False) -> str:
    gap = " " * max(0, cells - width(text))
    return gap + text if right else text + gap


def cut(text: str, cells: int, ellipsis: str) -> str:
    """At most that many columns; the end is replaced by the ellipsis."""
    if width(text) <= cells:
        return text
    room = max(0, cells - len(ellipsis))
    kept = ""
    for char in text:
        if width(kept + char) > room:
            break
        kept += char
    return kept.rstrip() + ellipsis


def one_line(text: str) -> str:
    """A text as one line of a table."""
    return " ".join(text.split())


def table(
    rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset(), gap: str = "  ",
    limit: int | None = None, ellipsis: str = "...",
) -> list[str]:  # fmt: skip
    """Rows in columns. The last column is never padded. If there is a limit (a terminal) it is cut, and
    where it had no room, the widest of the others too."""
    if not rows:
        return []
    widths = [max(width(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
    if limit is not None:
        widths = _narrowed(widths, limit - len(gap) * len(widths) - LAST_COLUMN)
    return [_row(row, widths, right, gap, limit, ellipsis) for row in rows]


def _narrowed(widths: list[int], room: int) -> list[int]:
    """The widest made narrower, until all have room together; none below `NARROWEST`."""
    widths = list(widths)
    while sum(widths) > room and (widest := max(widths)) > NARROWEST:
        widths[widths.index(widest)] -= 1
    return widths


def _row(row: Sequence[str], widths: list[int], right: frozenset[int], gap: str, limit: int | None,
         ellipsis: str) -> str:  # fmt: skip
    cells = row[:-1] if limit is None else [cut(row[at], room, ellipsis) for at, room in enumerate(widths)]
    head = gap.join(pad(cell, widths[at], at in right) for at, cell in enumerate(cells))
    line = f"{head}{gap}{row[-1]}" if row[-1] else head
    line = line.rstrip()
    return line if limit is None else cut(line, limit, ellipsis)
