"""The request of a step: what is sent, and the events that say so.

What was sent is a function of the log: `request/header` holds the system prompt, the tools and
the settings, `request/context` all that the encoder reads of the route, and `request/sent` the
hash of the bytes. The first two are written only when they differ from the last ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dshd.model.adapter import PreparedCall
from dshd.model.errors import ModelError
from dshd.model.request import Memo, ModelRequest, ToolSpec
from dshd.prompt import tokens
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold.compactions import Correction


@attrs.frozen
class Prepared:
    """A request ready to go. ``problem``: why it must not be sent, if so (then ``body`` is empty);
    ``place``: the directory of the attachments that it speaks of; ``tokens``: how large it is, about,
    uncorrected; ``sha256``: of the body."""

    call: PreparedCall
    request: ModelRequest
    header: dict[str, Any]
    body: bytes
    problem: ModelError | None = None
    place: str | None = None
    tokens: int | None = None
    sha256: str = ""


def prepare(
    call: PreparedCall,
    system: str,
    messages: Sequence[dict[str, Any]],
    tools: tuple[ToolSpec, ...],
    *,
    said: int | None = None,
    memo: Memo | None = None,
    place: str | None = None,
    correction: Correction | None = None,
) -> Prepared:
    """Encode one request; a full window or an impossible request becomes its ``problem``.

    ``said``: the tokens of ``messages``, if they are known. ``memo``: the history's. ``correction``: of
    estimates, for this call's model.
    """
    memo = memo or Memo()
    request = ModelRequest(system, messages, tools, call.max_tokens, memo=memo)
    header = {
        "system": system,
        "tools": memo.once("logged tools", (tools,), lambda: [attrs.asdict(tool) for tool in tools]),
        "settings": {"max_tokens": call.max_tokens},
    }
    around = memo.once("around", (system, tools), lambda: tokens.estimate_request(system, (), tools))
    said = sum(map(tokens.estimate_message, messages)) if said is None else said
    counted = around + said
    try:
        tokens.fits(system, messages, tools, call.window, call.max_tokens, correction, counted)
        body = call.adapter.encode(call, request)
        return Prepared(call, request, header, body, None, place, counted, memo.sha256(body))
    except ModelError as error:
        return Prepared(call, request, header, b"", error, place, counted)


def emit_request(
    s: Scratch, prepared: Prepared, turn: int, step: int, attempt: int, more: Mapping[str, Any] | None = None
) -> bool:
    """The request's events, before the model is called; none, and False, after an abort of its turn.
    ``turn`` 0: it is part of none. ``more``: of one that asks for a summary, what it was made of besides the
    surface."""
    if turn and (s.state.turn is None or s.state.turn.abort is not None):
        return False
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
            "turn": turn or None,
            "step": step or None,
            "attempt": attempt,
            "sha256": prepared.sha256,
            "bytes": len(prepared.body),
            "encoder": prepared.call.adapter.encoder,
            "profile": prepared.call.profile.name,
            "tokens": prepared.tokens,
            **(more or {}),
        },
    )
    return True
