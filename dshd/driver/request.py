"""The request of a step: what is sent, and the events that say so.

What was sent is a function of the log: `request/header` holds the system prompt, the tools and
the settings, `request/context` all that the encoder reads of the route, and `request/sent` the
hash of the bytes. The first two are written only when they differ from the last ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import attrs

from dshd.model.adapter import PreparedCall
from dshd.model.errors import ModelError
from dshd.model.request import Memo, ModelRequest, ToolSpec
from dshd.prompt import tokens
from dshd.session.scratch import Scratch

TAIL: Final = 16 * 1024  # bytes; the tools are a third of it
BLOCK: Final = 16 * 1024


@attrs.frozen
class Prepared:
    """A request ready to go. ``problem``: why it must not be sent, if so (then ``body`` is empty);
    ``place``: the directory of the attachments that it speaks of."""

    call: PreparedCall
    request: ModelRequest
    header: dict[str, Any]
    body: bytes
    problem: ModelError | None = None
    place: str | None = None

    @property
    def sha256(self) -> str:
        return self.request.memo.once("digest", (), Digest).of(self.body)


class Digest:
    """SHA-256, in hex, of bodies each of which begins as the last one did, nearly to its end.

    What follows the messages moves along as they grow, so the beginning that is kept ends `TAIL` bytes
    before the end. A body that begins in another way, or ends in more, is hashed whole.
    """

    def __init__(self) -> None:
        self._begins = b""
        self._hash = hashlib.sha256()  # of that

    def of(self, body: bytes) -> str:
        if not body.startswith(self._begins):
            self._begins, self._hash = b"", hashlib.sha256()
        known, end = len(self._begins), (len(body) - TAIL) // BLOCK * BLOCK
        if end > known:
            self._begins = body[:end]
            self._hash.update(self._begins[known:])
        whole = self._hash.copy()
        whole.update(body[len(self._begins) :])
        return whole.hexdigest()


def prepare(
    call: PreparedCall,
    system: str,
    messages: Sequence[dict[str, Any]],
    tools: tuple[ToolSpec, ...],
    *,
    said: int | None = None,
    memo: Memo | None = None,
    place: str | None = None,
) -> Prepared:
    """Encode one request; a full window or an impossible request becomes its ``problem``.

    ``said``: the tokens of ``messages``, if they are known. ``memo``: the history's.
    """
    memo = memo or Memo()
    request = ModelRequest(system, tuple(messages), tools, call.max_tokens, memo=memo)
    header = {
        "system": system,
        "tools": memo.once("logged tools", (tools,), lambda: [attrs.asdict(tool) for tool in tools]),
        "settings": {"max_tokens": call.max_tokens},
    }
    around = memo.once("around", (system, tools), lambda: tokens.estimate_request(system, (), tools))
    counted = None if said is None else around + said
    try:
        tokens.fits(system, messages, tools, call.window, call.max_tokens, counted=counted)
        return Prepared(call, request, header, call.adapter.encode(call, request), place=place)
    except ModelError as error:
        return Prepared(call, request, header, b"", error, place)


def emit_request(s: Scratch, prepared: Prepared, turn: int, step: int, attempt: int) -> None:
    """The request's events, before the model is called."""
    if s.state.request_header != prepared.header:
        s.emit("request/header", prepared.header)
    context = prepared.call.context()
    if prepared.place is not None:
        context["attachments"] = prepared.place
    if s.state.request_context != context:
        s.emit("request/context", context)
    s.emit(
        "request/sent",
        {
            "turn": turn,
            "step": step,
            "attempt": attempt,
            "sha256": prepared.sha256,
            "bytes": len(prepared.body),
            "encoder": prepared.call.adapter.encoder,
            "profile": prepared.call.profile.name,
        },
    )
