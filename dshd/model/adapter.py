"""What an adapter is: code that speaks one provider's wire protocol.

An adapter is split where the log is: `encode` makes the bytes, a pure function of the call's logged
context and the request (so that ``fsck --requests`` can make them again and compare), and `stream` sends
them once and pushes what comes back. Retrying, waiting and falling back are the driver's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import attrs

from dshd.model.chunks import Chunk
from dshd.model.credentials import Credentials
from dshd.model.profiles import DEFAULT, Profile
from dshd.model.request import ModelRequest
from dshd.model.retry import RetryPolicy

Emit = Callable[[Chunk], Awaitable[None]]


class Adapter(Protocol):
    """One provider's protocol.

    ``encoder`` names what `encode` does, with a version: bytes of another encoder are not comparable.
    """

    name: str
    encoder: str

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        """The body to send. Deterministic; no key in it. `ModelError` ``INVALID_REQUEST``."""
        ...

    async def stream(self, call: PreparedCall, body: bytes, emit: Emit) -> None:
        """Send ``body`` once; await ``emit`` for each chunk; return after `Finish`.

        Raises `ModelError`. What was emitted before an error is not an answer. *Cancellation*: at any
        point; the connection is closed, nothing is left in the pool.
        """
        ...


@attrs.frozen
class PreparedCall:
    """All that one model call is pinned to, so that a reload in the middle changes nothing of it.

    ``window`` and ``max_tokens`` in tokens, None if not known (then no limit is sent or checked);
    ``idle_timeout`` and ``patience`` in s; ``price`` per million tokens, with ``currency``;
    ``fallback``: routes to try next. ``script``: the rehearsal model's file.
    """

    route: str
    adapter: Adapter = attrs.field(eq=False)
    model: str
    base_url: str = ""
    max_tokens: int | None = None
    window: int | None = None
    profile: Profile = DEFAULT
    credentials: Credentials = attrs.field(factory=Credentials, eq=False)
    idle_timeout: float = 300.0
    patience: float = 6 * 3600.0
    retry: RetryPolicy = attrs.field(factory=RetryPolicy)
    fallback: tuple[str, ...] = ()
    price: Mapping[str, Any] | None = None
    script: str | None = None

    @property
    def rehearsal(self) -> bool:
        """Whether no AI is asked."""
        return self.adapter.name == "rehearsal"

    def context(self) -> dict[str, Any]:
        """What `request/context` records: all that `encode` reads of this call, and no secret."""
        return {
            "route": self.route,
            "adapter": self.adapter.name,
            "model": self.model,
            "window": self.window,
            "max_tokens": self.max_tokens,
            "profile": self.profile.to_json(),
        }
