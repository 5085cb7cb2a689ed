"""The line that is typed: bytes of a terminal in, what the person did out. Knows no terminal.

A paste between the brackets that terminals put around it (``ESC [200~``, ``ESC [201~``) is text, its newlines
too: three pasted lines are one message. A key that means nothing here is passed over, and never becomes text;
so is Escape alone, whatever is pressed behind it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from dshctl.output import visible, width

PASTE, PASTED = "\x1b[200~", "\x1b[201~"
MOST_KEPT: Final = 500  # lines of the history
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[ -~]|(?=\x1b)|[^\[O])", re.DOTALL)
_HALF = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|O)?\Z")


class Did(NamedTuple):
    """What a person did: ``line`` (with the text), ``interrupt``, ``leave``, ``suspend``, ``redraw``."""

    what: str
    text: str = ""


class Row(NamedTuple):
    """The line as it is shown: one row, and the column of the cursor in it."""

    text: str
    column: int


class Editor:
    """One line, its cursor and its history."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""  # the beginning of a sequence that is not whole yet
        self._paste: str | None = None
        self._history: list[str] = []
        self._place = 0  # in the history; its length is the line that is typed
        self._typed = ""  # that line, while an older one is shown

    def feed(self, data: bytes) -> Iterator[Did]:
        """What these bytes of the terminal do."""
        self._rest += self._decoder.decode(data)
        while self._rest:
            key = self._next()
            if key is None:
                return
            if self._paste is not None or key == PASTE:
                self._pasted(key)
            elif (did := self._press(key)) is not None:
                yield did

    def _next(self) -> str | None:
        """The next key: a character, or a whole sequence; None while one is not whole."""
        if self._rest[0] != "\x1b":
            key = self._rest[0]
        elif found := _SEQUENCE.match(self._rest):
            key = found[0]
        elif _HALF.match(self._rest):
            return None
        else:
            key = self._rest[0]
        self._rest = self._rest[len(key) :]
        return key

    def _pasted(self, key: str) -> None:
        if key == PASTE:
            self._paste = self._paste or ""
        elif key == PASTED:
            text, self._paste = self._paste or "", None
            self._insert(text.replace("\r\n", "\n").replace("\r", "\n"))
        else:
            self._paste = f"{self._paste}{key}"

    def _press(self, key: str) -> Did | None:
        if key in _DOES:
            return _DOES[key](self)
        if len(key) == 1 and (key >= " " and key != "\x7f"):
            self._insert(key)
        return None

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.at] + text + self.text[self.at :]
        self.at += len(text)

    # Keys.

    def _enter(self) -> Did:
        return Did("line", self.take())

    def take(self) -> str:
        """The line, which is empty from now on; it can be called back."""
        text = self.text
        self.keep(text)
        self.put("")
        return text

    def keep(self, text: str) -> None:
        """Into the history, unless it is the newest there."""
        if text.strip() and self._history[-1:] != [text]:
            self._history = [*self._history, text][-MOST_KEPT:]
        self._place = len(self._history)

    def put(self, text: str) -> None:
        """This text instead of the one that is there."""
        self.text, self.at = text, len(text)

    def _interrupt(self) -> Did | None:
        """Clears the line; on an empty one it is for the turn."""
        if not self.text:
            return Did("interrupt")
        self.take()
        return None

    def _leave(self) -> Did | None:
        if not self.text:
            return Did("leave")
        self._delete()
        return None

    def _delete(self) -> None:
        end = self._right()
        self.text = self.text[: self.at] + self.text[end:]

    def _backspace(self) -> None:
        start = self._left()
        self.text, self.at = self.text[:start] + self.text[self.at :], start

    def _left(self) -> int:
        """Where the character before the cursor begins, with what combines with it."""
        at = self.at - 1
        while at > 0 and self.text[at] != "\n" and width(self.text[at]) == 0:
            at -= 1
        return max(at, 0)

    def _right(self) -> int:
        at = self.at + 1
        while at < len(self.text) and self.text[at] != "\n" and width(self.text[at]) == 0:
            at += 1
        return min(at, len(self.text))

    def _word_left(self) -> int:
        before = self.text[: self.at].rstrip()
        return len(before) - len(before.split()[-1]) if before else 0

    def _word_right(self) -> int:
        behind = self.text[self.at :]
        found = re.match(r"\s*\S+", behind)
        return self.at + (found.end() if found else len(behind))

    def _move(self, to: int) -> None:
        self.at = to

    def _kill(self, start: int, end: int) -> None:
        self.text, self.at = self.text[:start] + self.text[end:], start

    def _go(self, by: int) -> None:
        """Older lines with -1, newer ones with 1."""
        place = self._place + by
        if not 0 <= place <= len(self._history):
            return
        if self._place == len(self._history):
            self._typed = self.text
        self._place = place
        self.put(self._typed if place == len(self._history) else self._history[place])

    # Showing.

    def row(self, columns: int, prompt: str, newline: str) -> Row:
        """The line in one row of less than ``columns``, moved so far that the cursor is in it. A prompt
        that would take more than half of the row is left out but for its end."""
        cells = [newline if char == "\n" else visible(char) for char in self.text]
        prompt = prompt if width(prompt) <= columns // 2 else prompt[-2:]
        room = max(columns - width(prompt) - 1, 2)
        start, before = self.at, 0
        while start > 0 and before + width(cells[start - 1]) < room:
            start -= 1
            before += width(cells[start])
        end, used = self.at, before
        while end < len(cells) and used + width(cells[end]) <= room - 1:
            used += width(cells[end])
            end += 1
        return Row(prompt + "".join(cells[start:end]), width(prompt) + before)


_Key = Callable[[Editor], "Did | None"]
# What a key does; by what terminals send for it.
_DOES: dict[str, _Key] = {
    "\r": Editor._enter,
    "\n": Editor._enter,
    "\x1b\r": lambda line: line._insert("\n"),
    "\x1b\n": lambda line: line._insert("\n"),
    "\x03": Editor._interrupt,
    "\x04": Editor._leave,
    "\x1a": lambda line: Did("suspend"),
    "\x0c": lambda line: Did("redraw"),
    "\x7f": Editor._backspace,
    "\x08": Editor._backspace,
    "\x1b[3~": Editor._delete,
    "\x01": lambda line: line._move(0),
    "\x05": lambda line: line._move(len(line.text)),
    "\x02": lambda line: line._move(line._left()),
    "\x06": lambda line: line._move(line._right()),
    "\x0b": lambda line: line._kill(line.at, len(line.text)),
    "\x15": lambda line: line._kill(0, line.at),
    "\x17": lambda line: line._kill(line._word_left(), line.at),
    "\x10": lambda line: line._go(-1),
    "\x0e": lambda line: line._go(1),
    "\x1b\x7f": lambda line: line._kill(line._word_left(), line.at),
    "\x1bb": lambda line: line._move(line._word_left()),
    "\x1bf": lambda line: line._move(line._word_right()),
    "\x1b[1;5D": lambda line: line._move(line._word_left()),
    "\x1b[1;5C": lambda line: line._move(line._word_right()),
}
for _start in ("\x1b[", "\x1bO"):
    _DOES |= {
        f"{_start}A": lambda line: line._go(-1),
        f"{_start}B": lambda line: line._go(1),
        f"{_start}C": lambda line: line._move(line._right()),
        f"{_start}D": lambda line: line._move(line._left()),
        f"{_start}H": lambda line: line._move(0),
        f"{_start}F": lambda line: line._move(len(line.text)),
    }
_DOES |= {"\x1b[1~": _DOES["\x01"], "\x1b[4~": _DOES["\x05"]}
