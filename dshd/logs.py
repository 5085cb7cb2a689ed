"""The daemon's own log: lines on standard error, for people, the journal or programs.

Sessions and messages are named by id, and what was said never stands in it. Where standard error is a
file (a daemon that dshctl started), it is kept from growing for ever: beyond `MOST` bytes it is set aside
as ``NAME.old``, and one that was deleted or renamed is made anew, instead of filling a disk invisibly.

A line that can't be written is dropped. Logging is never a reason to stop.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import time
from typing import Final, Literal

Shape = Literal["text", "json", "journal"]

MOST: Final = 8 * 1024 * 1024  # bytes in a log file
_PRIORITIES: Final = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))  # (from level, syslog's)


class Text(logging.Formatter):
    """``12:04:11 warning: what``"""

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {level}{_message(self, record)}"


class Journal(logging.Formatter):
    """``<4>what``, each line with its priority; the journal knows the time."""

    def format(self, record: logging.LogRecord) -> str:
        priority = next((p for level, p in _PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in _message(self, record).split("\n"))


class Json(logging.Formatter):
    """One object per line: ``time`` (Unix ms), ``level``, ``where``, ``message``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": int(record.created * 1000),
            "level": record.levelname.lower(),
            "where": record.name,
            "message": _message(self, record),
        }
        return json.dumps(fields, ensure_ascii=False)


def _message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = record.getMessage()
    return f"{text}\n{formatter.formatException(record.exc_info)}" if record.exc_info else text


_SHAPES: Final[dict[Shape, type[logging.Formatter]]] = {"text": Text, "json": Json, "journal": Journal}


class Descriptor(logging.Handler):
    """Writes whole lines to a descriptor, and looks after the file behind it, if there is one."""

    def __init__(self, descriptor: int = 2, most: int = MOST) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._most = most
        self._path = _file_behind(descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
        except Exception:
            line = f"{record.name}: a line could not be written\n"
        with contextlib.suppress(OSError):
            self._look_after()
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line.encode("utf-8", "replace"))

    def _look_after(self) -> None:
        if self._path is None:
            return
        ours = os.fstat(self._descriptor)
        if _is_at(self._path, ours) and ours.st_size < self._most:
            return
        if _is_at(self._path, ours):
            os.replace(self._path, f"{self._path}.old")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fresh = os.open(self._path, flags, 0o600)
        os.dup2(fresh, self._descriptor)
        os.close(fresh)


def _file_behind(descriptor: int) -> str | None:
    with contextlib.suppress(OSError):
        found = os.fstat(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if stat.S_ISREG(found.st_mode) and _is_at(path, found):
            return path
    return None


def _is_at(path: str, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), found)
    except OSError:
        return False


def start(shape: Shape) -> None:
    """Log to standard error in this shape, from now on."""
    handler = Descriptor()
    handler.setFormatter(_SHAPES[shape]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it names URLs at info, once a request
    logging.getLogger("httpcore").setLevel(logging.WARNING)
