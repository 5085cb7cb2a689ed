"""Standard output and error as bytes: what may go wrong with them, and who may leave."""

from __future__ import annotations

import os
import select
import stat
from typing import Any, BinaryIO


class Unwritable(Exception):
    """Standard output can't be written to; ``str()`` is why."""


class Stream:
    """A file descriptor's end of ours: bytes out, nothing raised when nobody reads any more."""

    def __init__(self, raw: BinaryIO | None, tty: bool) -> None:
        self._raw = raw  # None: it was closed when we came
        self.tty = tty
        self.gone = False  # its reader went away
        self._broken = False

    def write(self, text: str) -> None:
        """Write and flush. A reader that went away is noted; raises Unwritable for other failures."""
        if self.gone:
            return
        if self._raw is None:
            raise Unwritable("it is closed")
        try:
            self._raw.write(text.encode("utf-8", "replace"))
            self._raw.flush()
        except BrokenPipeError:
            self.silence()
        except OSError as error:
            raise Unwritable((error.strerror or str(error)).lower()) from None

    def data(self, raw: bytes) -> None:
        """Bytes as they are, whole or not at all: raises Unwritable, also if nobody reads them."""
        if self._raw is None:
            raise Unwritable("it is closed")
        try:
            self._raw.write(raw)
            self._raw.flush()
        except BrokenPipeError:
            self._broken = True
            raise Unwritable("nobody reads it") from None
        except OSError as error:
            raise Unwritable((error.strerror or str(error)).lower()) from None

    def passed(self, raw: bytes) -> None:
        """Bytes as they are, for a reader that may go away. Raises Unwritable for other failures."""
        try:
            self.data(raw)
        except Unwritable:
            if not self._broken:
                raise
            self.silence()

    def end_with_reader(self) -> None:
        """From now on the process ends (0) when nobody reads this pipe any more, though nothing is written:
        for what only shows, and may have nothing to show for hours. A terminal hangs up by a signal."""
        if self._raw is None or self.tty:
            return
        try:
            fd = self._raw.fileno()
        except OSError:  # it is no file of the system's
            return
        if _is_pipe(fd):
            from threading import Thread

            # a descriptor of its own: `silence` puts another thing behind ours
            Thread(target=_end_with_reader, args=(os.dup(fd),), daemon=True).start()

    def silence(self) -> None:
        """Nothing more goes out, not even what the interpreter would flush on exit."""
        self.gone = True
        if self._raw is not None:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._raw.fileno())
            os.close(null)


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _end_with_reader(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, 0)  # what is left then are errors, and that the other end is gone
    poll.poll()
    os._exit(0)


def stream(file: Any) -> Stream:
    if file is None or getattr(file, "closed", False):
        return Stream(None, False)
    return Stream(getattr(file, "buffer", None), file.isatty())
