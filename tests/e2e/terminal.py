"""A person at a terminal: a program on a pty of its own, its keys and what it shows."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
from typing import Any, Self

from tests.e2e.harness import TIMEOUT, Home, eventually

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_KEYS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(.)", re.DOTALL)


def screen(raw: str) -> list[str]:
    """The rows that are there in the end, of a terminal that is high enough."""
    rows, row, column = [""], 0, 0
    for found in _KEYS.finditer(raw):
        number, command, char = found.groups()
        if command == "A":
            row -= int(number or 1)
        elif command == "C":
            column += int(number or 1)
        elif command == "J":
            rows[row:] = [rows[row][:column]]
        elif char == "\r":
            column = 0
        elif char == "\n":
            row += 1
            rows += [""] * (row - len(rows) + 1)
        elif char:
            rows[row] = rows[row][:column].ljust(column) + char + rows[row][column + 1 :]
            column += 1
    return rows


class Person:
    """``dshctl ARGS`` on a terminal of 80 columns, until the block ends."""

    def __init__(self, home: Home, *args: str, columns: int = 80) -> None:
        self.fd, theirs = os.openpty()
        self.resize(columns)
        env = {**home.env, "TERM": "xterm"}
        self.process: subprocess.Popen[Any] = home.popen(
            *args, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=env
        )
        os.close(theirs)
        self.shown = ""  # all of it, without what moves the cursor
        self.raw = ""
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT)
        os.close(self.fd)

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def line(self, text: str) -> None:
        self.type(f"{text}\r")

    def sees(self, what: str) -> None:
        """Wait until it is shown, behind what was waited for before."""

        def look() -> bool:
            self._read()
            found = self.shown.find(what, self._seen)
            if found >= 0:
                self._seen = found + len(what)
            return found >= 0

        eventually(look, what=f"{what!r} on the terminal, behind {self.shown[self._seen :]!r}")

    def _read(self) -> None:
        if not select.select([self.fd], [], [], 0.01)[0]:
            return
        try:
            self.raw += os.read(self.fd, 65536).decode(errors="replace")
        except OSError:  # it has ended
            return
        self.shown = _ESCAPES.sub("", self.raw).replace("\r", "")

    def ended(self) -> bool:
        self._read()
        return self.process.poll() is not None

    def ends(self) -> int:
        """Its exit code."""
        eventually(self.ended)
        self._read()
        return int(self.process.returncode)
