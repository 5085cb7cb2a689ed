"""A request in the messages dialect. Deterministic: the same request gives the same bytes.

What the dialect wants beyond what `checker` sees to:

- user and assistant in turn: what stands between two answers (results, steers, snapshots) is one user
  message, its results first; between two answers with nothing between (one was interrupted) a user speaks;
- a thinking block goes back byte for byte or not at all: only to the route that made it, only whole, and
  with a signature only if that is not blank. One that came without a signature goes back without;
- models that demand it back (``reasoning_back``; DeepSeek refuses a history whose calls lack it) get that of
  other routes too, unsigned; where a call has none all the same, thinking is turned off for the request;
- call ids and tool names of ``[A-Za-z0-9_-]``; arguments as an object; tools, if calls are in the history;
- ``max_tokens`` always;
- ``cache_control`` at up to four places: behind the tools, behind the system prompt (both are the same from
  call to call), and at the ends of the two newest user messages, so that each step finds the one before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import orjson

from dshd import kept
from dshd.model.adapter import PreparedCall
from dshd.model.checker import GO_ON, NO_OUTPUT, check
from dshd.model.errors import ModelError
from dshd.model.profiles import Profile
from dshd.model.request import Block, Message, ModelRequest, ToolSpec, tool_calls

Wire = dict[str, Any]
DIALECT = "anthropic"  # the mark of reasoning blocks that came in it
LIMIT = 8192  # tokens of an answer, where nobody gave a limit
MAX_NAME = 128
CACHE: Wire = {"cache_control": {"type": "ephemeral"}}
CACHED_TURNS = 2  # newest user messages whose ends are marked; with tools and system prompt four, the most


def encode(call: PreparedCall, request: ModelRequest) -> bytes:
    """The body. `ModelError` ``INVALID_REQUEST`` for what can't be sent."""
    try:
        return orjson.dumps(body_of(call, check(request)))
    except TypeError as error:
        raise ModelError("INVALID_REQUEST", f"the request can't be written as JSON: {error}") from error


def body_of(call: PreparedCall, request: ModelRequest) -> Wire:
    """The body as an object; members that have no value are left out, never null."""
    limit = request.max_tokens if request.max_tokens is not None else call.max_tokens
    mark = CACHE if call.profile.cache_control else {}
    body: Wire = {"model": call.model, "max_tokens": limit or LIMIT, "stream": True}
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, **mark}]
    if tools := request.tools or _mentioned(request.messages):
        memo, purpose = request.memo, ("anthropic tools", bool(mark))
        body["tools"] = memo.once(purpose, (tools,), lambda: _tools(tools, mark))
    if tools and not request.tools:
        body["tool_choice"] = {"type": "none"}
    work = _Writer(call.route, call.profile)
    if any(request.memo.each(("anthropic lacks", work), request.messages, work.lacks_thought)):
        body["thinking"] = {"type": "disabled"}
    body["messages"] = _messages(work, request, mark)
    return {**body, **request.settings}


# -- tools


def _tools(tools: Sequence[ToolSpec], mark: Wire) -> orjson.Fragment:
    wires = [_tool(tool) for tool in tools]
    wires[-1] |= mark
    return orjson.Fragment(orjson.dumps(wires))


def _tool(tool: ToolSpec) -> Wire:
    return {"name": wire_name(tool.name), "description": tool.description, "input_schema": tool.schema}


def _mentioned(messages: Iterable[Message]) -> tuple[ToolSpec, ...]:
    """Tools that the history speaks of, for a request without any: calls need their tools."""
    names = {call["name"]: None for m in messages if m["role"] == "assistant" for call in tool_calls(m)}
    return tuple(ToolSpec(name, "", {"type": "object"}) for name in names)


# -- messages


@attrs.define
class _Turn:
    """A message as it is sent: ``blocks`` are JSON already."""

    role: str
    blocks: list[bytes] = attrs.field(factory=list)

    def to_json(self, mark: Wire) -> bytes:
        blocks = self.blocks
        if mark:
            blocks = [*blocks[:-1], orjson.dumps({**orjson.loads(blocks[-1]), **mark})]
        return b'{"role":"%s","content":[%s]}' % (self.role.encode(), b",".join(blocks))


def _messages(work: _Writer, request: ModelRequest, mark: Wire) -> orjson.Fragment:
    """The checked history as JSON."""
    written = request.memo.each(("anthropic", work), request.messages, work.blocks)
    turns = _turns(zip(request.messages, written, strict=True))
    marked = {id(turn) for turn in [turn for turn in turns if turn.role == "user"][-CACHED_TURNS:]}
    wires = [turn.to_json(mark if id(turn) in marked else {}) for turn in turns]
    return orjson.Fragment(b"[" + b",".join(wires) + b"]")


def _turns(written: Iterable[tuple[Message, list[bytes]]]) -> list[_Turn]:
    """User and assistant in turn."""
    turns: list[_Turn] = []
    for message, blocks in written:
        role = "assistant" if message["role"] == "assistant" else "user"
        if not blocks:
            continue
        if turns and turns[-1].role == role == "assistant":
            turns.append(_Turn("user", [orjson.dumps({"type": "text", "text": GO_ON})]))
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role))
        turns[-1].blocks += blocks
    return turns


@attrs.frozen
class _Writer:
    """Blocks of single messages, for a route and a profile."""

    route: str
    profile: Profile

    def blocks(self, message: Message) -> list[bytes]:
        """Each block as JSON."""
        return [kept.written(wire) for wire in ENCODE[message["role"]](self, message)]

    def user(self, message: Message) -> list[Wire]:
        return [self.given(block) for block in message["content"]]

    def result(self, message: Message) -> list[Wire]:
        content = [self.given(block) for block in message["content"]] or [{"type": "text", "text": NO_OUTPUT}]
        wire: Wire = {"type": "tool_result", "tool_use_id": wire_id(message["call"]), "content": content}
        return [{**wire, "is_error": True} if message.get("is_error") else wire]

    def assistant(self, message: Message) -> list[Wire]:
        blocks = self.kept(message)
        while blocks and blocks[-1]["type"] == "reasoning":  # an answer may not end in it
            blocks.pop()
        return [MADE[block["type"]](block) for block in blocks]

    def kept(self, message: Message) -> list[Block]:
        """What of an answer goes back."""
        blocks: list[Block] = message["content"]
        if message.get("model") == self.route:
            return [block for block in blocks if block["type"] != "reasoning" or _is_whole(block)]
        thoughts = [block for block in blocks if block["type"] == "reasoning" and block["text"]]
        taken = thoughts if self.demanded else []
        return [_unsigned(block) for block in blocks if block["type"] != "reasoning" or block in taken]

    @property
    def demanded(self) -> bool:
        """Whether the model refuses a history whose calls lack their thinking."""
        return self.profile.reasoning_back != "never"

    def lacks_thought(self, message: Message) -> bool:
        if not self.demanded or message["role"] != "assistant" or not tool_calls(message):
            return False
        return not any(block["type"] == "reasoning" for block in self.kept(message))

    def given(self, block: Block) -> Wire:
        if block["type"] == "image" and "data" in block and self.profile.images:
            kind = block.get("media_type", "image/png")
            return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": block["data"]}}
        return {"type": "text", "text": _as_text(block)}


ENCODE = {"user": _Writer.user, "assistant": _Writer.assistant, "tool": _Writer.result}


def _is_whole(block: Block) -> bool:
    """Of the dialect, and not with a blank signature."""
    return block.get("dialect") == DIALECT and block.get("signature") != ""


def _unsigned(block: Block) -> Block:
    """Another's reasoning as plain thinking."""
    return {"type": "reasoning", "text": block["text"]} if block["type"] == "reasoning" else block


def _as_text(block: Block) -> str:
    if block["type"] == "text":
        return str(block["text"])
    name = block.get("name") or block.get("path") or block.get("hash") or "without a name"
    return f"[{block['type']} {name}]"


def _thinking(block: Block) -> Wire:
    if "redacted" in block:
        return {"type": "redacted_thinking", "data": block["redacted"]}
    wire = {"type": "thinking", "thinking": block["text"]}
    return {**wire, "signature": block["signature"]} if "signature" in block else wire


def _said(block: Block) -> Wire:
    return {"type": "text", "text": block["text"]}


def _call(block: Block) -> Wire:
    given = orjson.Fragment(block["arguments"])  # an object: `checker` sees to it
    return {"type": "tool_use", "id": wire_id(block["id"]), "name": wire_name(block["name"]), "input": given}


MADE = {"reasoning": _thinking, "text": _said, "tool-call": _call}


# -- names


def wire_id(ident: str) -> str:
    """The call id as it is sent: itself where it may be, else a short hash of it."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", ident):
        return ident
    return "toolu_" + hashlib.sha256(ident.encode()).hexdigest()[:16]


def wire_name(name: str) -> str:
    """The tool's name as it may stand in a request; only a model that made one up has another."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME]
