"""The messages dialect: Anthropic, and whoever serves it (DeepSeek, Moonshot, relays) under ``base_url``.

A stream is `message_start`, for each block a start, deltas and a stop, `message_delta` with the stop reason,
`message_stop`. What was seen beside that and is taken here:

- pings, and events, blocks and deltas of unknown type mean nothing (the dialect reserves the right to
  add some; a tool that the provider runs itself is one);
- an error may come at any time, as an event of that name; what it calls itself says whether trying again
  helps, the 200 above it says nothing;
- usage is cumulative and comes in two places; the last number counts, but a 0 takes back nothing;
- thinking has a signature, which comes as a delta of its own, or not at all, or blank;
- a tool's input comes as fragments of JSON, or whole in the start of its block, or not at all;
- with a stop reason and every block stopped the answer is whole, also without its `message_stop`;
- an answer may come whole from who doesn't stream.

`Reader` knows all that and does no IO; `Anthropic` sends and pushes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dshd.model import sse
from dshd.model.adapter import Emit, PreparedCall
from dshd.model.answers import DELTA, AnswerReader, as_text
from dshd.model.anthropic_request import DIALECT, encode
from dshd.model.chunks import (
    BlockEnd,
    BlockStart,
    Kind,
    Reason,
)
from dshd.model.errors import ModelError
from dshd.model.failures import broke_off
from dshd.model.http import Http
from dshd.model.pieces import Joiner, loads
from dshd.model.receiver import attempt
from dshd.model.request import ModelRequest
from dshd.model.transport import place

VERSION = "2023-06-01"
HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}

# {content block type: our kind}; all others are passed over
KINDS: dict[str, Kind] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "tool-call",
}
# {delta type: (the kind of its block, the member with the text)}
DELTAS: dict[str, tuple[Kind, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("reasoning", "thinking"),
    "input_json_delta": ("tool-call", "partial_json"),
}
STOPS: dict[str, Reason] = {
    "max_tokens": "max-tokens",
    "model_context_window_exceeded": "max-tokens",
    "refusal": "content-filter",
}
COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


@attrs.define
class Slot:
    """A block of the answer. ``kind`` None: of a type that is passed over."""

    index: int
    kind: Kind | None
    given: dict[str, Any] = attrs.field(factory=dict)  # a tool's input, from the start of its block
    parts: list[str] = attrs.field(factory=list)
    extra: dict[str, Any] = attrs.field(factory=dict)
    joiner: Joiner = attrs.field(factory=Joiner)
    open: bool = True

    def complete(self) -> bool:
        """Whether the arguments are a JSON object."""
        try:
            return isinstance(loads("".join(self.parts)), dict)
        except ValueError:
            return False


class Reader(AnswerReader):
    """Of the messages dialect."""

    def __init__(self, where: str, *, max_tokens: int | None = None) -> None:
        super().__init__(where, max_tokens)
        self._slots: dict[int, Slot] = {}  # {index on the wire: the newest block there}
        self._order: list[Slot] = []
        self._stop: str | None = None
        self._counts: dict[str, int] = {}

    def _is_whole(self, left: Sequence[sse.Event]) -> bool:
        return self._stop is not None and not any(slot.open for slot in self._order)

    def _take_whole(self, answer: dict[str, Any]) -> None:
        if "content" not in answer:
            self._object("", answer)
        for at, block in enumerate(_list(answer.get("content"))):
            self._start(at, block)
            self._stopped(at)
        self._message(answer)
        self._delta_of_message(answer)

    def _marked(self) -> None:
        """By relays that speak both dialects."""
        if self._stop is not None:
            self._end()

    # -- one event

    def _object(self, name: str, data: dict[str, Any]) -> None:
        kind = data.get("type") or name
        if kind == "error" or data.get("error"):
            raise broke_off(data.get("error") or data, self._where)
        index = data.get("index")
        at = index if isinstance(index, int) else 0
        match kind:
            case "message_start":
                self._message(_dict(data.get("message")))
            case "content_block_start":
                self._start(at, _dict(data.get("content_block")))
            case "content_block_delta":
                self._delta(at, _dict(data.get("delta")))
            case "content_block_stop":
                self._stopped(at)
            case "message_delta":
                self._delta_of_message({**data, **_dict(data.get("delta"))})
            case "message_stop":
                self._end()

    def _message(self, message: dict[str, Any]) -> None:
        self._count(message.get("usage"))

    def _delta_of_message(self, data: dict[str, Any]) -> None:
        self._count(data.get("usage"))
        if isinstance(data.get("stop_reason"), str):
            self._stop = data["stop_reason"]

    def _count(self, usage: object) -> None:
        for name in COUNTS:
            value = _dict(usage).get(name)
            if isinstance(value, int | float) and 0 < value < 2**53:
                self._counts[name] = int(value)

    # -- blocks

    def _start(self, at: int, block: dict[str, Any]) -> None:
        self._stopped(at)  # of a server that leaves the stop out
        slot = self._open(at, KINDS.get(as_text(block.get("type"))))
        if slot.kind is None:
            return
        ident, name = as_text(block.get("id")) or None, as_text(block.get("name")) or None
        call = slot.kind == "tool-call"
        self._out.append(BlockStart(slot.index, slot.kind, ident if call else None, name if call else None))
        if slot.kind == "reasoning":
            self._signed(slot, block)
        if call:
            slot.given = _dict(block.get("input"))
        else:
            self._say(slot, as_text(block.get("text")) or as_text(block.get("thinking")))

    def _open(self, at: int, kind: Kind | None) -> Slot:
        slot = self._slots[at] = Slot(len(self._order), kind)
        self._order.append(slot)
        return slot

    def _signed(self, slot: Slot, block: dict[str, Any]) -> None:
        """What has to come back with a thinking block; a member that is missing stays missing."""
        slot.extra["dialect"] = DIALECT
        if isinstance(block.get("signature"), str):
            slot.extra["signature"] = block["signature"]
        if block.get("type") == "redacted_thinking":
            slot.extra["redacted"] = as_text(block.get("data"))

    def _delta(self, at: int, delta: dict[str, Any]) -> None:
        kind, member = DELTAS.get(as_text(delta.get("type")), (None, ""))
        slot = self._slots.get(at)
        if delta.get("type") == "signature_delta" and slot is not None and slot.kind == "reasoning":
            slot.extra["signature"] = slot.extra.get("signature", "") + as_text(delta.get("signature"))
        if kind is None:
            return
        if slot is None:  # of a server that leaves the start out
            slot = self._open(at, kind)
            slot.extra |= {"dialect": DIALECT} if kind == "reasoning" else {}
        if slot.kind == kind and slot.open:
            self._say(slot, as_text(delta.get(member)))

    def _say(self, slot: Slot, text: str) -> None:
        text = slot.joiner.feed(text)
        if text and slot.kind is not None:
            slot.parts.append(text)
            self._out.append(DELTA[slot.kind](slot.index, text))

    def _stopped(self, at: int) -> None:
        slot = self._slots.get(at)
        if slot is None or not slot.open:
            return
        slot.open = False
        owed = slot.joiner.end()
        if slot.kind == "tool-call" and not "".join(slot.parts).strip():
            owed = json.dumps(slot.given, ensure_ascii=False, separators=(",", ":")) + owed
        self._say(slot, owed)
        if slot.kind is not None:
            self._out.append(BlockEnd(slot.index, slot.extra or None))

    # -- the end

    def _end(self) -> None:
        for at, slot in list(self._slots.items()):
            if slot.open and slot.kind == "reasoning":
                slot.extra["incomplete"] = True  # nobody said that it was whole
            self._stopped(at)
        self._check_there_is_an_answer()
        self._finished(usage_of(self._counts) if self._counts else None, self._reason())

    def _check_there_is_an_answer(self) -> None:
        if self._stop == "refusal" or any(slot.kind and (slot.parts or slot.extra) for slot in self._order):
            return
        if self._stop == "model_context_window_exceeded":
            why = f"{self._where} has no room for an answer: the context window is full"
            raise ModelError("CONTEXT_WINDOW_EXCEEDED", why)
        raise ModelError("EMPTY_RESPONSE", f"{self._where} finished without an answer")

    def _reason(self) -> Reason:
        named = STOPS.get(self._stop or "")
        calls = [slot for slot in self._order if slot.kind == "tool-call"]
        if named is not None or not calls:
            return named or "stop"
        long = self._max_tokens is not None and self._counts.get("output_tokens", 0) >= self._max_tokens
        return "max-tokens" if long and not calls[-1].complete() else "tool-calls"


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return [block for block in value if isinstance(block, dict)] if isinstance(value, list) else []


def usage_of(counts: Mapping[str, int]) -> dict[str, int]:
    """``{input, cached, output, reasoning}`` in tokens. What was written to the cache was read as input;
    reasoning is part of the output and not counted apart."""
    return {
        "input": counts.get("input_tokens", 0) + counts.get("cache_creation_input_tokens", 0),
        "cached": counts.get("cache_read_input_tokens", 0),
        "output": counts.get("output_tokens", 0),
        "reasoning": 0,
    }


# -- sending


class Anthropic:
    """The adapter."""

    name = DIALECT
    encoder = "anthropic/1"

    def __init__(self, http: Http) -> None:
        self._http = http

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        """See `anthropic_request.encode`."""
        return encode(call, request)

    async def stream(self, call: PreparedCall, body: bytes, emit: Emit) -> None:
        """One attempt. *Cancellation*: at any point; see `Http.post`."""
        url = address(call.base_url, "messages")
        reader = Reader(place(url), max_tokens=call.max_tokens)

        def headers(key: str | None) -> dict[str, str]:
            return {**HEADERS, **key_headers(key, bearer=call.profile.bearer)}

        await attempt(self._http, call, url, headers, body, reader, emit)


def address(base_url: str, what: str) -> str:
    """``base_url`` may end in ``/v1`` or before it, as others' settings do."""
    root = base_url.rstrip("/").removesuffix("/messages")
    return f"{root}/{what}" if root.endswith("/v1") else f"{root}/v1/{what}"


def key_headers(key: str | None, *, bearer: bool = False) -> dict[str, str]:
    """The dialect's version, and the key where the server looks for it."""
    named = {"authorization": f"Bearer {key}"} if bearer else {"x-api-key": key or ""}
    return {"anthropic-version": VERSION, **(named if key else {})}
