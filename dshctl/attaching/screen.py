"""Where it is shown: on a terminal, what has come stands above and the line that is typed below; elsewhere
there are only lines.

The lower part of a terminal is ours (`Below`): it is taken away before lines are written, and drawn again
behind them. Nothing scrolls but what a terminal scrolls by itself, so what was told stays in its memory.
Foreign text goes through `visible`, and every row of ours is cut to the width.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dshctl.attaching.editor import Row
from dshctl.output import Out, cut, visible, width

_PASTES, _NO_PASTES = "\x1b[?2004h", "\x1b[?2004l"


class Below(NamedTuple):
    """What stands below all that was told: rows that still change, and the line that is typed."""

    rows: tuple[str, ...]
    line: Row


NOTHING: Final = Below((), Row("", 0))


class Plain:
    """No terminal: lines out, and nothing else."""

    reads_keys = False

    def __init__(self, out: Out) -> None:
        self._out = out

    @property
    def columns(self) -> int:
        return self._out.columns

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def tell(self, lines: list[str]) -> None:
        self._out.lines(lines)

    def draw(self, below: Below) -> None:
        """There is no below."""

    def clear(self) -> None:
        pass

    def suspend(self) -> None:
        pass


class Terminal:
    """A terminal, its keys as they are pressed while this is entered; as it was, whatever happens, behind."""

    reads_keys = True

    def __init__(self, out: Out, fd: int) -> None:
        self._out = out
        self._fd = fd
        self._below = NOTHING
        self._before: list[Any] = []

    @property
    def columns(self) -> int:
        """How wide the terminal is, whatever COLUMNS says and however narrow: rows of ours are taken away
        by their number, so none may be longer. A terminal that doesn't know counts as `Out.columns`."""
        try:
            wide = os.get_terminal_size(self._fd).columns
        except OSError:
            wide = 0
        return wide or self._out.columns

    def __enter__(self) -> Terminal:
        self._before = termios.tcgetattr(self._fd)
        self._keys()
        return self

    def __exit__(self, *exc: object) -> None:
        self._give_back()

    def _keys(self) -> None:
        """Every key as it is pressed, nothing done about it by the kernel; output stays as it was."""
        mode = termios.tcgetattr(self._fd)
        mode[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON | termios.ISTRIP)
        mode[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        self._write(_PASTES)

    def _give_back(self) -> None:
        self._write(self._away() + _NO_PASTES)
        with contextlib.suppress(termios.error):  # it may be gone
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def suspend(self) -> None:
        """As Ctrl-Z does; returns when we are in front again."""
        self._give_back()
        os.kill(0, signal.SIGTSTP)
        self._keys()

    def clear(self) -> None:
        """An empty screen, the lower part on it."""
        below, self._below = self._below, NOTHING
        self._write("\x1b[H\x1b[2J")
        self.draw(below)

    def tell(self, lines: list[str]) -> None:
        """Lines that stay, above the lower part."""
        if lines:
            below = self._below
            shown = "".join(f"{visible(line)}\n" for line in lines)
            self._write(self._away() + shown + self._drawn(below))

    def draw(self, below: Below) -> None:
        if below != self._below:
            self._write(self._away() + self._drawn(below))

    def _away(self) -> str:
        """What takes the lower part away, however wide the terminal is by now."""
        below, self._below = self._below, NOTHING
        if below is NOTHING:
            return ""
        columns = self.columns
        up = sum(_height(row, columns) for row in below.rows) + below.line.column // columns
        return "\r" + (f"\x1b[{up}A" if up else "") + "\x1b[J"

    def _drawn(self, below: Below) -> str:
        if below is NOTHING:
            return ""
        room = self.columns - 1
        rows = tuple(cut(visible(row), room, self._out.ellipsis) for row in below.rows)
        self._below = below._replace(rows=rows)
        at = f"\x1b[{below.line.column}C" if below.line.column else ""
        return "".join(f"{row}\n" for row in rows) + f"{below.line.text}\r{at}"

    def _write(self, text: str) -> None:
        if text:
            self._out.out.write(text)


def _height(row: str, columns: int) -> int:
    return max(1, -(-width(row) // columns))


class Woken:
    """A pipe that a signal, or another thread, wakes a `select` with."""

    def __init__(self) -> None:
        self.fd, self._ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Woken:
        self._winch = signal.signal(signal.SIGWINCH, lambda *_: None)
        self._old = signal.set_wakeup_fd(self._ring, warn_on_full_buffer=False)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.set_wakeup_fd(self._old)
        signal.signal(signal.SIGWINCH, self._winch)
        ring, self._ring = self._ring, -1
        os.close(ring)
        os.close(self.fd)

    def ring(self) -> None:
        """From any thread."""
        with contextlib.suppress(OSError):
            os.write(self._ring, b"!")

    def heard(self) -> None:
        """Forget what woke us."""
        with contextlib.suppress(OSError):
            os.read(self.fd, 4096)


Screen = Plain | Terminal
Tell = Callable[[list[str]], None]
