"""A request in the chat-completions dialect. Deterministic: the same request gives the same bytes.

The order of members is fixed here and the history is made valid first (`checker.check`), so the bytes are
a function of the logged request, the call's model and limit, and its profile.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from dshd.model.adapter import PreparedCall
from dshd.model.checker import NO_OUTPUT, check
from dshd.model.errors import ModelError
from dshd.model.profiles import Profile
from dshd.model.request import Block, Memo, Message, ModelRequest, ToolSpec, tool_calls

Wire = dict[str, Any]
MAX_ID = 40  # OpenAI refuses longer call ids
BETWEEN = "(the results have been received)"


def encode(call: PreparedCall, request: ModelRequest) -> bytes:
    """The body. `ModelError` ``INVALID_REQUEST`` for what can't be sent."""
    try:
        return orjson.dumps(body_of(call, check(request)))
    except TypeError as error:
        raise ModelError("INVALID_REQUEST", f"the request can't be written as JSON: {error}") from error


def body_of(call: PreparedCall, request: ModelRequest) -> Wire:
    """The body as an object; members that have no value are left out, never null."""
    profile = call.profile
    limit = request.max_tokens if request.max_tokens is not None else call.max_tokens
    body: Wire = {"model": call.model, "messages": wire_messages(request, profile), "stream": True}
    if profile.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if tools := request.tools:
        body["tools"] = request.memo.once("openai tools", (tools,), lambda: _tools(tools))
    if limit is not None:
        body[profile.max_tokens_field] = limit
    return {**body, **request.settings}


def wire_messages(request: ModelRequest, profile: Profile) -> orjson.Fragment:
    """The checked history, system prompt first, as JSON."""
    loop = _loop_begin(request.messages) if profile.reasoning_back == "tools" else 0
    past, running = request.messages[:loop], request.messages[loop:]
    written = [orjson.dumps({"role": "system", "content": request.system})] if request.system else []
    if profile.alternate:
        history = [_wire(m, profile, False) for m in past] + [_wire(m, profile, True) for m in running]
        written += map(orjson.dumps, _alternating(history))
    else:
        written += [_written(request.memo, past, profile, False)] if past else []
        written += [_written(request.memo, running, profile, True)] if running else []
    return orjson.Fragment(b"[" + b",".join(written) + b"]")


def _loop_begin(messages: Sequence[Message]) -> int:
    """Where the running tool loop begins: behind the newest user message."""
    at = len(messages)
    while at and messages[at - 1]["role"] != "user":
        at -= 1
    return at


def _wire(message: Message, profile: Profile, in_loop: bool) -> Wire:
    return ENCODE[message["role"]](message, profile, in_loop)


def _written(memo: Memo, messages: Sequence[Message], profile: Profile, in_loop: bool) -> bytes:
    def write(message: Message) -> bytes:
        return orjson.dumps(_wire(message, profile, in_loop))

    return memo.text(("openai", profile, in_loop), messages, write)


def _tools(tools: Sequence[ToolSpec]) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps([_tool(tool) for tool in tools]))


def _tool(tool: ToolSpec) -> Wire:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _user(message: Message, profile: Profile, _: bool) -> Wire:
    blocks = message["content"]
    if profile.images and any("data" in block for block in blocks if block["type"] == "image"):
        return {"role": "user", "content": [_part(block) for block in blocks]}
    return {"role": "user", "content": _joined(blocks)}


def _result(message: Message, profile: Profile, _: bool) -> Wire:
    ident = wire_id(message["call"], strict=profile.strict_ids)
    return {"role": "tool", "tool_call_id": ident, "content": _joined(message["content"]) or NO_OUTPUT}


def _assistant(message: Message, profile: Profile, in_loop: bool) -> Wire:
    text = _joined(block for block in message["content"] if block["type"] == "text")
    calls = [_call(block, profile) for block in tool_calls(message)]
    wire: Wire = {
        "role": "assistant",
        "content": None if profile.null_content and calls and not text else text,
    }
    reasoning = "".join(block["text"] for block in message["content"] if block["type"] == "reasoning")
    if profile.reasoning_back == "always" or (
        profile.reasoning_back == "tools" and in_loop and calls and reasoning
    ):
        wire[profile.reasoning_field] = reasoning
    if calls:
        wire["tool_calls"] = calls
    return wire


ENCODE = {"user": _user, "assistant": _assistant, "tool": _result}


def _call(block: Block, profile: Profile) -> Wire:
    wire: Wire = {
        "id": wire_id(block["id"], strict=profile.strict_ids),
        "type": "function",
        "function": {"name": block["name"], "arguments": block["arguments"]},
    }
    if "extra_content" in block:
        wire["extra_content"] = block["extra_content"]  # a provider's signature of the call
    return wire


def wire_id(ident: str, *, strict: bool) -> str:
    """The call id as it is sent: itself where it may be, else a short hash of it."""
    legal = r"[A-Za-z0-9]{9}" if strict else rf"[A-Za-z0-9_-]{{1,{MAX_ID}}}"
    if re.fullmatch(legal, ident):
        return ident
    return hashlib.sha256(ident.encode()).hexdigest()[:9]


# -- blocks


def _joined(blocks: Sequence[Block] | Iterator[Block]) -> str:
    """Texts of blocks, each beginning on a line of its own."""
    out = ""
    for block in blocks:
        text = _as_text(block)
        out += ("\n" if out and text and not out.endswith("\n") else "") + text
    return out


def _as_text(block: Block) -> str:
    if block["type"] == "text":
        return str(block["text"])
    name = block.get("name") or block.get("path") or block.get("hash") or "without a name"
    return f"[{block['type']} {name}]"


def _part(block: Block) -> Wire:
    if block["type"] == "image" and "data" in block:
        url = f"data:{block.get('media_type', 'image/png')};base64,{block['data']}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": _as_text(block)}


# -- templates that know only user, assistant, user, ...


def _alternating(history: list[Wire]) -> list[Wire]:
    """Messages of one role in a row become one; between a result and a user message an assistant speaks."""
    out: list[Wire] = []
    for wire in history:
        before = out[-1] if out else {"role": ""}
        if wire["role"] == "user" and before["role"] == "tool":
            out.append({"role": "assistant", "content": BETWEEN})
        elif wire["role"] == before["role"] != "tool" and "tool_calls" not in before:
            out[-1] = {**before, **wire, "content": _merged(before["content"], wire["content"])}
            continue
        out.append(wire)
    return out


def _merged(first: Any, second: Any) -> Any:
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Wire]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
