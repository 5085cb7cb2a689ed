"""What is said: words, standard input, attached files.

Rules. Words are joined by single spaces. A word that is exactly ``-`` stands for standard input.
With no words, standard input is the message if it is not a terminal; with words and no ``-`` it
is not touched, so an inherited pipe that never ends can't hang the command. Bytes that are not
UTF-8 and NULs become U+FFFD, counted. A text of nothing but white space is empty, and that is an
error of usage. Otherwise a text is sent as it came, its last newline included.

argv is handled as bytes decoded by UTF-8 with surrogate escapes (see `cli.utf8_argv`), whatever
the locale, so a bad byte arrives here as a lone surrogate.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, BinaryIO, NamedTuple

from dshd import wire
from dshd.errors import Full, Invalid, NotFound

MAX_TEXT = 8 * 1024 * 1024  # bytes; what the daemon takes in one message
_BAD = re.compile("[\0\ud800-\udfff]")
_LINES = re.compile(r"^(?P<path>.+):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?$", re.ASCII)


class Text(NamedTuple):
    """A text that can be sent, and how many characters had to be replaced in it."""

    text: str
    replaced: int


def clean(raw: bytes) -> Text:
    """UTF-8 with U+FFFD for each NUL and each bad sequence."""
    return _scrub(raw.decode("utf-8", "replace"), _bad_sequences(raw))


def clean_word(word: str) -> Text:
    """The same for a word of argv, whose bad bytes are lone surrogates."""
    return clean(word.encode("utf-8", "surrogateescape"))


def _bad_sequences(raw: bytes) -> int:
    """How many replacement characters decoding puts in, not counting those that were typed."""
    return raw.decode("utf-8", "replace").count("\ufffd") - raw.count(b"\xef\xbf\xbd")


def _scrub(text: str, replaced: int) -> Text:
    cleaned, count = _BAD.subn("\ufffd", text)
    return Text(cleaned, replaced + count)


def gather(
    words: tuple[str, ...],
    stdin: BinaryIO | None,
    stdin_is_tty: bool,
    *,
    optional: bool = False,
    typed: str = "dshctl followup",
) -> Text:
    """The text that these words and this standard input make.

    Raises Invalid if there is none (unless optional: then it may be empty), Full over 8 MiB.
    """
    if words.count("-") > 1:
        raise Invalid("standard input can be taken once, and - stands there twice")
    text = _gather(words, stdin, stdin_is_tty)
    if not text.text.strip() and not optional:
        raise Invalid(_empty(words, stdin_is_tty), hint=f"{typed} 'TEXT'     or: ... | {typed}")
    if len(text.text.encode()) > MAX_TEXT:
        raise Full(f"not sent: the text is over {MAX_TEXT // 1024 // 1024} MiB", outcome="not-written")
    return text


def _gather(words: tuple[str, ...], stdin: BinaryIO | None, stdin_is_tty: bool) -> Text:
    if not words:
        return Text("", 0) if stdin is None or stdin_is_tty else _read(stdin)
    parts = [_read(stdin) if word == "-" else clean_word(word) for word in words]
    return Text(" ".join(part.text for part in parts), sum(part.replaced for part in parts))


def _read(stdin: BinaryIO | None) -> Text:
    # One byte more than fits, so that an endless pipe ends in an error and not in no memory.
    return Text("", 0) if stdin is None else clean(stdin.read(4 * MAX_TEXT + 1))


def _empty(words: tuple[str, ...], stdin_is_tty: bool) -> str:
    if words:
        return "the text is empty"
    return "no text" if stdin_is_tty else "no text, and standard input is empty"


def standard_input() -> tuple[BinaryIO | None, bool]:
    """Standard input as bytes (None if it is closed), and whether it is a terminal."""
    if sys.stdin is None:
        return None, False
    return sys.stdin.buffer, sys.stdin.isatty()


def file_block(spec: str) -> dict[str, Any]:
    """``F`` or ``F:A-B`` (lines, from 1) as a text block that holds a snapshot of the file.

    A file really named ``F:3`` wins over line 3 of F. Raises NotFound with the absolute path, Invalid for
    lines that it doesn't have; what goes beyond its end ends there.
    """
    path, first, last = _span(spec)
    raw = _load(path)
    if first:
        lines = raw.removesuffix(b"\n").split(b"\n") if raw else []
        if first > len(lines):
            has = "no lines" if not lines else f"{len(lines)} line{'s' if len(lines) > 1 else ''}"
            raise Invalid(f"--file {spec}: {shown_path(path)} has {has}")
        last = min(last, len(lines))
        raw = b"\n".join(lines[first - 1 : last])
    body, _ = clean(raw)
    return {"type": "text", "text": f"{_title(path, first, last)}\n{body}"}


def _span(spec: str) -> tuple[str, int, int]:
    found = _LINES.match(spec)
    if found is None or os.path.exists(_bytes(spec)):
        return spec, 0, 0
    first = int(found["first"])
    last = int(found["last"] or first)
    if not 1 <= first <= last:
        raise Invalid(f"--file {spec}: lines count from 1 and go up")
    return found["path"], first, last


def _load(path: str) -> bytes:
    absolute = shown_path(path)
    try:
        with open(_bytes(path), "rb") as file:
            raw = file.read(MAX_TEXT + 1)
    except OSError as error:
        raise NotFound(f"--file {absolute}: {(error.strerror or str(error)).lower()}") from None
    if len(raw) > MAX_TEXT:
        raise Full(f"not sent: {absolute} is over {MAX_TEXT // 1024 // 1024} MiB", outcome="not-written")
    return raw


def _title(path: str, first: int, last: int) -> str:
    lines = f", lines {first}-{last}" if first else ""
    return f"File {shown_path(path)}{lines}, as it is now:"


def ref_block(path: str) -> dict[str, Any]:
    """A file that is only named: the agent reads it when it wants to."""
    if not os.path.exists(_bytes(path)):
        raise NotFound(f"--ref {shown_path(path)}: no such file or directory")
    return {"type": "text", "text": f"See the file {shown_path(path)}"}


def short(path: str) -> str:
    """A path as a person writes it: the other way round."""
    return wire.tilde(path, os.environ.get("HOME", ""))


def absolute(path: str) -> str:
    """An absolute path, for the daemon has another current directory."""
    if os.path.isabs(path):
        return os.path.normpath(path)
    try:
        here = os.fsencode(os.getcwd()).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        raise Invalid(f"{path}: the current directory is gone, so the path must be absolute") from None
    return os.path.normpath(os.path.join(here, path))


def shown_path(path: str) -> str:
    """The absolute path as text that can be sent."""
    return clean_word(absolute(path)).text


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
