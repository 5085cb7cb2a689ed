"""What the daemon and a call's supervisor say to each other, over a socket pair of their own.

To the spawner goes one byte with the descriptor of the supervisor's end; everything else passes it by.
Frames on the pair: 4 bytes big-endian length, that many bytes of JSON, then as many raw bytes as the
JSON's ``blobs`` (a list of lengths) add up to.

    daemon -> supervisor   the request (stdin as blob), then at most one frame ``{"stop": true}``;
                           closing the pair means the same
    supervisor -> daemon   ``{"supervisor": pid}`` before the command is started, then one of
                           ``{"done": {...}}`` (head, tail and stderr as blobs) and ``{"failed": sentence}``;
                           the spawner writes the latter, with ``lost``, for one that was killed

Strings may hold surrogate escapes: argv and environment are bytes to the kernel.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
from typing import Any

Frame = tuple[dict[str, Any], list[bytes]]  # (message, blobs)
LONGEST_JSON = 64 * 1024 * 1024


@dataclasses.dataclass(slots=True, kw_only=True)
class Request:
    """One command. Times in s, sizes in bytes. ``wrapper``: the main process is a sandbox that must
    not get SIGTERM itself, or it would take its inhabitants down before they have seen theirs."""

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


def receive_socket(channel: socket.socket) -> socket.socket | None:
    """One byte with one descriptor; None at the end. (socket.recv_fds drops its flags, and with them
    close-on-exec.)"""
    data, control, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
    if not data or not control:
        return None
    return socket.socket(fileno=struct.unpack("=i", control[0][2])[0])


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
