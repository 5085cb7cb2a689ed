"""What is said on the spawner's socket, and on the one that daemon and supervisor have for each call.

On the spawner's (SOCK_SEQPACKET): the daemon says `MORE`; the answer is one more supervisor, as a message
with its pid (4 bytes) and the daemon's end of its socket, or a message without a descriptor: a sentence.

On a call's, frames: 4 bytes big-endian length, that many bytes of JSON, then as many raw bytes as the
JSON's ``blobs`` (a list of lengths) add up to.

    daemon -> supervisor   the request (stdin as blob), then ``{"free": true}`` (no time limit any more,
                           and all output to the file at once), ``{"keep": path}`` (outlive the daemon,
                           and leave word of the end there) and ``{"stop": true}``; closing the socket
                           means stop, too, unless it is kept
    supervisor -> daemon   ``{"supervisor": pid}`` before the command is started, ``{"kept": true}`` as the
                           last frame of one that is kept, else one of
                           ``{"done": {...}}`` (head, tail and stderr as blobs) and ``{"failed": sentence}``,
                           with ``"again": true`` if it takes another call; the spawner writes the
                           latter, with ``"lost": true``, for one that was killed

Strings may hold surrogate escapes: argv and environment are bytes to the kernel.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

Frame = tuple[dict[str, Any], list[bytes]]  # (message, blobs)
MORE = b"more"
NO_PROCESS = "no process can be started"
LONGEST_JSON = 64 * 1024 * 1024


@dataclasses.dataclass(slots=True, kw_only=True)
class Request:
    """One command. Times in s, sizes in bytes. ``wrapper``: the main process is a sandbox that must
    not get SIGTERM itself, or it would take its inhabitants down before they have seen theirs.
    ``follow``: somebody reads along in the spill file."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    timeout: float | None
    grace: float
    head: int
    tail: int
    spill: str | None
    merge: bool = True
    umask: int = 0o022
    wrapper: bool = False
    landlock: dict[str, Any] | None = None
    follow: bool = False


@dataclasses.dataclass(slots=True, kw_only=True)
class Done:
    """How it ended. ``cause``: exit, timeout, stop or orphaned. ``status``: the raw wait status of the
    main process, None if even it survived."""

    cause: str
    status: int | None
    total: int
    kept: bool
    spilled: int
    spill_error: str | None
    duration: float
    survivors: list[int]
    left: int


def fate(survivors: Sequence[int]) -> str:
    """What became of a command whose watchers died, for a sentence."""
    return "not all that it ran could be ended" if survivors else "what it ran was ended"


def plain(message: Request | Done) -> dict[str, Any]:
    """As a dict. (dataclasses.asdict copies everything inside, an environment's strings one by one.)"""
    return {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}


def send_supervisor(spawner: socket.socket, pid: int, sock: socket.socket) -> None:
    """From the spawner to the daemon."""
    socket.send_fds(spawner, [struct.pack("=i", pid)], [sock.fileno()])


def receive_supervisor(spawner: socket.socket) -> tuple[int, socket.socket] | str:
    """In the daemon; does not wait (BlockingIOError). A sentence if there is none: the last words of a
    spawner that failed, or "" of one that is gone."""
    flags = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT  # (socket.recv_fds drops its flags)
    data, control, _, _ = spawner.recvmsg(8192, socket.CMSG_SPACE(4), flags)
    if not control:
        return data.decode(errors="replace")
    (fd,) = struct.unpack("=i", control[0][2])
    return struct.unpack("=i", data)[0], socket.socket(fileno=fd)


def encode(message: dict[str, Any], blobs: list[bytes] | None = None) -> bytes:
    """One frame."""
    blobs = blobs or []
    text = json.dumps({**message, "blobs": [len(blob) for blob in blobs]}).encode()
    return b"".join([struct.pack(">I", len(text)), text, *blobs])


class Decoder:
    """Bytes in any pieces to frames. Raises ValueError on what is no frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack_from(">I", self._buffer)
        if length > LONGEST_JSON:
            raise ValueError(f"a frame of {length} bytes")
        if len(self._buffer) < 4 + length:
            return None
        message = json.loads(self._buffer[4 : 4 + length])
        sizes: list[int] = message.pop("blobs")
        if len(self._buffer) < 4 + length + sum(sizes):
            return None
        return message, self._take(4 + length, sizes)

    def _take(self, start: int, sizes: list[int]) -> list[bytes]:
        blobs = []
        for size in sizes:
            blobs.append(bytes(self._buffer[start : start + size]))
            start += size
        del self._buffer[:start]
        return blobs
