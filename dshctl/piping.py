"""Standard input to the daemon's socket, and the socket to standard output: lines as they are.

When input ends the daemon is told so, and answers what is under way; it hangs up when there is nothing more
to say. What counts at the end is whether all that was asked was answered: an answer that never came leaves
open whether its request was carried out.
"""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Final

from dshctl.client import Deadline
from dshctl.streams import Stream

_PIECE: Final = 1 << 16
_ANSWER: Final = b'{"jsonrpc":"2.0","id":'  # so each of the daemon's answers begins, and nothing else


class Pipe:
    """One socket's. ``asked``: the requests whose answers have not come."""

    def __init__(self, sock: socket.socket, out: Stream, deadline: Deadline) -> None:
        self._sock = sock
        self._out = out
        self._deadline = deadline
        self._input: int | None = 0
        self._to_send = bytearray()
        self._line = bytearray()  # of the input, what is not whole yet
        self._head = bytearray()  # of the line that comes, its beginning
        self.asked = 0
        self.ended = False  # input has

    def run(self) -> None:
        """Until the daemon hangs up, or nobody reads what it says. Raises TimedOut."""
        self._sock.setblocking(False)
        while not self._out.gone:
            reads: list[int] = [self._sock.fileno()]
            if self._input is not None and not self._to_send:
                reads.append(self._input)
            writes = [self._sock.fileno()] if self._to_send else []
            ready, takes, _ = select.select(reads, writes, [], self._deadline.left())
            if takes:
                self._send()
            if self._input in ready:
                self._read()
            if self._sock.fileno() in ready and not self._hear():
                return

    def _read(self) -> None:
        assert self._input is not None
        data = os.read(self._input, _PIECE)
        if not data:
            self._input, self.ended = None, True
            if self._line:  # the last line may lack its newline
                self._count(bytes(self._line))
                self._to_send += b"\n"
                self._send()
            self._finish()
            return
        self._to_send += data
        *lines, rest = (bytes(self._line) + data).split(b"\n")
        self._line = bytearray(rest)
        for line in lines:
            self._count(line)
        self._send()

    def _count(self, line: bytes) -> None:
        """A request without an id is not answered; what is no request is."""
        if not line.strip():
            return
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        self.asked += not (isinstance(request, dict) and "id" not in request and "method" in request)

    def _send(self) -> None:
        try:
            sent = self._sock.send(self._to_send)
        except BlockingIOError:
            return
        except OSError:  # it has hung up; what it said before is still to be read
            self._to_send.clear()
            return
        del self._to_send[:sent]
        self._finish()

    def _finish(self) -> None:
        """Tell that this was all, once it has gone."""
        if self.ended and not self._to_send:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                return

    def _hear(self) -> bool:
        """Pass on what has come; False at the end."""
        try:
            data = self._sock.recv(_PIECE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if data:
            self._out.passed(data)
            self._count_answers(data)
        return bool(data)

    def _count_answers(self, data: bytes) -> None:
        first, *more = data.split(b"\n")
        room = len(_ANSWER) - len(self._head)
        self._head += first[: max(0, room)]
        for line in more:
            self.asked -= self._head == _ANSWER
            self._head = bytearray(line[: len(_ANSWER)])
