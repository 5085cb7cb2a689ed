"""The chat-completions dialect: OpenAI, DeepSeek, Ollama, llama.cpp, vLLM, OpenRouter and the rest.

Everybody speaks it a little differently. What was seen in the wild and is taken here:

- chunks with empty, null or no ``choices`` (usage, content-filter preambles, pings) mean nothing by
  themselves; usage is cumulative, the last one counts;
- an error may come in the middle of a stream, in ``error``, beside empty choices, in a choice, or as an
  event of that name; it wins over whatever follows, ``[DONE]`` included;
- the stream ends with ``[DONE]``; without it the answer is cut, whatever came before. With it the answer
  is whole, even if nobody gave a finish reason;
- tool calls are told apart by ``index``; where servers put all at index 0, or leave it out, a new id (or
  a name, when the arguments so far are complete) begins a new call; "" and null mean "not said";
- arguments may come as an object instead of text; calls may come with finish reason ``stop``: having
  calls decides;
- reasoning comes as ``reasoning_content`` or ``reasoning``, in the same delta as content or not;
- lines that aren't JSON are passed over, a bounded number of them.

`Reader` knows all that and does no IO; `OpenAI` sends and pushes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from dshd.model import sse
from dshd.model.adapter import Emit, PreparedCall
from dshd.model.answers import DELTA, AnswerReader, as_text, is_end_mark
from dshd.model.chunks import (
    BlockEnd,
    BlockStart,
    Kind,
    Reason,
    ToolCallDelta,
)
from dshd.model.errors import ModelError
from dshd.model.failures import broke_off
from dshd.model.http import Http
from dshd.model.openai_request import encode
from dshd.model.pieces import Joiner, loads
from dshd.model.receiver import attempt
from dshd.model.request import ModelRequest
from dshd.model.transport import place

FINISH: dict[str, Reason] = {
    "length": "max-tokens",
    "max_tokens": "max-tokens",
    "model_length": "max-tokens",
    "content_filter": "content-filter",
    "safety": "content-filter",
}
# finish reasons that are failures
BROKEN = {"insufficient_system_resource": "SERVER", "error": "SERVER", "network_error": "SERVER"}


@attrs.define
class Slot:
    """A block of the answer; ``wire`` is the tool call's index there, if it has one."""

    index: int
    kind: Kind
    wire: int | None = None
    id: str = ""
    name: str = ""
    parts: list[str] = attrs.field(factory=list)  # of a tool call: its arguments so far, but for blank ones
    extra: dict[str, Any] = attrs.field(factory=dict)
    joiner: Joiner = attrs.field(factory=Joiner)

    def complete(self) -> bool:
        """Whether the arguments are a whole JSON object already."""
        if not self.parts or not self.parts[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(loads("".join(self.parts)), dict)
        except ValueError:
            return False


class Reader(AnswerReader):
    """Of the chat-completions dialect. ``needs_end``: the answer is cut unless ``[DONE]`` came."""

    def __init__(self, where: str, *, max_tokens: int | None = None, needs_end: bool = True) -> None:
        super().__init__(where, max_tokens)
        self._needs_end = needs_end
        self._slots: dict[str, Slot] = {}  # {"text", "reasoning": the block}
        self._calls: list[Slot] = []
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None

    def _is_whole(self, left: Sequence[sse.Event]) -> bool:
        """An event without its blank line may be cut; only the end mark is believed."""
        return any(map(is_end_mark, left)) or (self._finish is not None and not self._needs_end)

    def _take_whole(self, answer: dict[str, Any]) -> None:
        for choice in answer.get("choices") or []:
            if isinstance(choice, dict):
                choice.setdefault("delta", choice.get("message"))
        self._object("", answer)

    def _marked(self) -> None:
        self._end()

    # -- one event

    def _object(self, name: str, data: dict[str, Any]) -> None:
        error = _error_in(name, data)
        if error is not None:
            raise broke_off(error, self._where)
        if isinstance(data.get("usage"), dict):
            self._usage = data["usage"]
        choices = data.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(choices[0])

    def _choice(self, choice: dict[str, Any]) -> None:
        if choice.get("error"):
            raise broke_off(choice["error"], self._where)
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._delta(delta)
        if isinstance(choice.get("finish_reason"), str) and choice["finish_reason"]:
            self._finish = choice["finish_reason"]

    def _delta(self, delta: dict[str, Any]) -> None:
        thought, said = _parts(delta.get("content"))
        reasoning = as_text(delta.get("reasoning_content")) or as_text(delta.get("reasoning")) or thought
        self._say("reasoning", reasoning)
        self._say("text", said or as_text(delta.get("refusal")))
        for entry in delta.get("tool_calls") or ():
            if isinstance(entry, dict):
                self._call(entry)
        if isinstance(delta.get("function_call"), dict):
            self._call({"index": 0, "function": delta["function_call"]})

    def _say(self, kind: Kind, text: str) -> None:
        if not text:
            return
        slot = self._slots.get(kind)
        if slot is None:
            slot = self._slots[kind] = self._new(kind)
            self._out.append(BlockStart(slot.index, kind))
        text = slot.joiner.feed(text)
        if text:
            self._out.append(DELTA[kind](slot.index, text))

    def _call(self, entry: dict[str, Any]) -> None:
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        ident, name = as_text(entry.get("id")), as_text(function.get("name"))
        arguments = _arguments(function.get("arguments"))
        slot = self._slot_of(entry.get("index"), ident, name, arguments)
        if slot is None:
            slot = self._new("tool-call")
            slot.wire, slot.id, slot.name = entry.get("index"), ident, name
            self._calls.append(slot)
            self._out.append(BlockStart(slot.index, "tool-call", ident or None, name or None))
        if isinstance(entry.get("extra_content"), dict):
            slot.extra["extra_content"] = entry["extra_content"]
        self._call_delta(slot, ident, name, arguments)

    def _call_delta(self, slot: Slot, ident: str, name: str, arguments: str) -> None:
        ident = ident if ident != slot.id else ""
        name = name if name != slot.name else ""
        slot.id, slot.name = ident or slot.id, name or slot.name
        arguments = slot.joiner.feed(arguments)
        if arguments.strip():
            slot.parts.append(arguments)
        if arguments or ident or name:
            self._out.append(ToolCallDelta(slot.index, arguments, ident or None, name or None))

    def _slot_of(self, wire: object, ident: str, name: str, arguments: str) -> Slot | None:
        """The call that a fragment belongs to; None if it begins a new one."""
        if isinstance(wire, int):
            same = [slot for slot in self._calls if slot.wire == wire]
        else:
            same = [slot for slot in self._calls if slot.id == ident] if ident else self._calls
        if not same:
            return None
        slot = same[-1]
        if ident and slot.id and ident != slot.id:
            return next((other for other in same if other.id == ident), None)
        begins = bool(name) and bool(arguments.strip()) and slot.complete()
        return None if begins else slot

    def _new(self, kind: Kind) -> Slot:
        return Slot(len(self._slots) + len(self._calls), kind)

    # -- the end

    def _end(self) -> None:
        if self._finish in BROKEN:
            raise ModelError(BROKEN[self._finish], f"{self._where} broke off: {self._finish}")
        if not self._slots and not self._calls and FINISH.get(self._finish or "") != "content-filter":
            raise ModelError("EMPTY_RESPONSE", f"{self._where} finished without an answer")
        for slot in sorted([*self._slots.values(), *self._calls], key=lambda slot: slot.index):
            self._close_slot(slot)
        self._finished(None if self._usage is None else usage_of(self._usage), self._reason())

    def _close_slot(self, slot: Slot) -> None:
        owed = slot.joiner.end()
        if slot.kind == "tool-call":
            if not slot.parts and not owed:
                owed = "{}"
            slot.parts.append(owed)
        if owed:
            self._out.append(DELTA[slot.kind](slot.index, owed))
        self._out.append(BlockEnd(slot.index, slot.extra or None))

    def _reason(self) -> Reason:
        named = FINISH.get((self._finish or "").lower())
        if named is not None:
            return named
        if not self._calls:
            return "stop"
        return "max-tokens" if self._cut() else "tool-calls"

    def _cut(self) -> bool:
        """A call cut by the limit, which some servers report as a finished one."""
        if self._max_tokens is None or self._usage is None or self._calls[-1].complete():
            return False
        return usage_of(self._usage)["output"] >= self._max_tokens


def _error_in(name: str, data: dict[str, Any]) -> Any:
    """The error that an event carries, None if it carries none."""
    if data.get("error"):
        return data["error"]
    if name == "error" or data.get("object") == "error" or data.get("type") == "error":
        return data
    return None


def _parts(content: object) -> tuple[str, str]:
    """``(reasoning, text)`` of content, which may be text, a list of parts, or null."""
    if not isinstance(content, list):
        return "", as_text(content)
    parts = [part for part in content if isinstance(part, dict)]
    thoughts = (_parts(part.get("thinking"))[1] for part in parts if part.get("type") == "thinking")
    return "".join(thoughts), "".join(
        as_text(part.get("text")) for part in parts if part.get("type") == "text"
    )


def _arguments(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def usage_of(wire: Mapping[str, Any]) -> dict[str, int]:
    """``{input (uncached), cached, output, reasoning}`` in tokens, from whatever names the server uses."""
    cached = _count(wire.get("prompt_tokens_details"), "cached_tokens") or _count(
        wire, "prompt_cache_hit_tokens"
    )
    return {
        "input": max(0, _count(wire, "prompt_tokens") - cached),
        "cached": cached,
        "output": _count(wire, "completion_tokens"),
        "reasoning": _count(wire.get("completion_tokens_details"), "reasoning_tokens"),
    }


def _count(table: object, key: str) -> int:
    value = table.get(key) if isinstance(table, Mapping) else None
    return int(value) if isinstance(value, int | float) and 0 <= value < 2**53 else 0


# -- sending


class OpenAI:
    """The adapter."""

    name = "openai"
    encoder = "openai/1"

    def __init__(self, http: Http) -> None:
        self._http = http

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        """See `openai_request.encode`."""
        return encode(call, request)

    async def stream(self, call: PreparedCall, body: bytes, emit: Emit) -> None:
        """One attempt. *Cancellation*: at any point; see `Http.post`."""
        url = call.base_url.rstrip("/") + "/chat/completions"
        reader = Reader(place(url), max_tokens=call.max_tokens, needs_end=call.profile.end_mark)
        await attempt(self._http, call, url, _headers, body, reader, emit)


def _headers(key: str | None) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    return {**headers, "authorization": f"Bearer {key}"} if key else headers
