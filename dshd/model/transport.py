"""A request, its response and their failures, as the other rooms know them: raw bytes and `ModelError`.

What the bytes mean is the adapter's. Silence is limited (``idle`` between any two reads, so comments
count), total time is not. Every failure comes out as a `ModelError`, in the words below.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import attrs

from dshd import __version__
from dshd.model.errors import ModelError

CONNECT_TIMEOUT = 30.0
KEPT = 16  # connections that wait for their next request
KEEP = 60.0  # s for which they wait
LINGER = 0.1  # s given to a server to end a response of which everything is known, to keep the connection
USER_AGENT = f"dshd/{__version__}"


@attrs.frozen
class Head:
    """``headers`` with lower-case names; of repeated ones the values are joined by ", "."""

    status: int
    headers: Mapping[str, str]


class Receiver(Protocol):
    """What takes a response. Exceptions pass through."""

    def head(self, head: Head) -> None:
        """Called once, first."""
        ...

    async def data(self, data: bytes) -> bool:
        """Called for each piece; True = nothing more is needed."""
        ...


@attrs.frozen(slots=True)
class Outgoing:
    """A request. ``idle``: s of silence before it has failed."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    idle: float

    @property
    def all_headers(self) -> dict[str, str]:
        # identity: a compressed stream would be held back by the compressor's buffers
        return {"user-agent": USER_AGENT, "accept-encoding": "identity", **self.headers}


def place(url: str) -> str:
    """Host and port of ``url``, for messages: never its user, password, or query."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that is none"
    return f"{parts.hostname or parts.path}{port}"


def shown(url: str) -> str:
    """``url`` for people: whole, but for a user and a password in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that is none"
    return url.replace(f"{parts.netloc.rpartition('@')[0]}@", "", 1) if "@" in parts.netloc else url


def acknowledger(sock: Any) -> Callable[[], None]:
    """What sends the TCP acknowledgement that the kernel would hold back for 40 ms.

    Many small servers write each event by itself with Nagle's algorithm on, so each waits for the
    acknowledgement of the one before. The kernel forgets the wish, so it is made anew for each read.
    """
    option = getattr(socket, "TCP_QUICKACK", None)  # Linux
    if sock is None or option is None or sock.family == socket.AF_UNIX:
        return lambda: None
    return lambda: sock.setsockopt(socket.IPPROTO_TCP, option, 1)


# -- failures, as the retry policy knows them


def unreachable(url: str, why: object) -> ModelError:
    return ModelError("TRANSPORT", f"can't connect to {place(url)}: {_words(why)}")


def silent(url: str, idle: float) -> ModelError:
    return ModelError("TIMEOUT", f"{place(url)} has said nothing for {idle:g} s")


def impossible(url: str, why: object) -> ModelError:
    return ModelError("INVALID_REQUEST", f"the request to {place(url)} can't be sent: {_words(why)}")


def undecodable(url: str, why: object) -> ModelError:
    return ModelError(
        "MALFORMED_RESPONSE", f"{place(url)} sent a response that can't be decoded: {_words(why)}"
    )


def dropped(url: str, why: object, *, started: bool) -> ModelError:
    """``started``: a response had begun."""
    if started:
        return ModelError(
            "STREAM_CLOSED", f"{place(url)} dropped the connection in the middle of its answer: {_words(why)}"
        )
    return ModelError("TRANSPORT", f"{place(url)} dropped the connection: {_words(why)}")


def _words(why: object) -> str:
    return " ".join(str(why).split()) or type(why).__name__
