"""Makes a history into one that every provider takes; each request passes here before it is encoded.

A provider that refuses a history refuses it for ever, so what a crash, an abort or an odd model left
behind is straightened here, in what is sent, while the log keeps what happened:

- every tool call is followed at once by the results of all calls of its message, in the calls' order; what
  came between (a steer) comes after them; a call without a result gets one that says so; a result without
  a call is left out;
- call ids are unique; arguments are a JSON object, else ``{}``;
- no empty blocks: an assistant message without text or calls is left out, a silent tool's result is
  ``(no output)``, a blank user message is left out;
- half a reasoning block (cut before its end) is left out;
- a user speaks first, and the model never last;
- block types that don't belong into a message of its role are left out; no lone surrogates anywhere.

What is right already comes back equal, and checking twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import orjson

from dshd.model.errors import ModelError
from dshd.model.request import Block, Message, ModelRequest, ToolSpec, tool_calls

NO_OUTPUT = "(no output)"
EARLIER = "(what was said before is not shown)"
GO_ON = "Go on."
GIVEN = frozenset({"text", "image", "file"})  # blocks that a message to the model may hold
MADE = frozenset({"text", "reasoning", "tool-call"})  # and one from it
NO_RESULT = "no result: the call was interrupted; it may have run in part. Check before repeating it."


def check(request: ModelRequest) -> ModelRequest:
    """The request as it may be sent. `ModelError` ``INVALID_REQUEST`` if nothing is left to answer."""
    messages = tuple(_framed(list(_pair(_clean_messages(request.messages)))))
    if not messages:
        raise ModelError("INVALID_REQUEST", "there is nothing to send: the conversation is empty")
    return attrs.evolve(
        request,
        system=clean_text(request.system),
        messages=messages,
        tools=tuple(_clean_tool(tool) for tool in request.tools),
    )


def _framed(messages: list[Message]) -> list[Message]:
    """Providers want a user to begin, and something to answer at the end."""
    if messages and messages[0]["role"] != "user":
        messages.insert(0, _said(EARLIER))
    if messages and messages[-1]["role"] == "assistant":
        messages.append(_said(GO_ON))
    return messages


def _said(text: str) -> Message:
    content = [{"type": "text", "text": text}]
    return {"role": "user", "content": content, "verb": None, "source": {"kind": "system"}}


def clean_text(text: str) -> str:
    """``text`` with lone surrogates as U+FFFD (a pair written as two halves becomes its character)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean(value: Any) -> Any:
    """``value`` with every string in it cleaned."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean(inner) for inner in value]
    return value


def _clean_tool(tool: ToolSpec) -> ToolSpec:
    return ToolSpec(clean_text(tool.name), clean_text(tool.description), clean(tool.schema))


# -- single messages


def _clean_messages(messages: tuple[Message, ...]) -> Iterator[Message]:
    for message in messages:
        cleaned = CLEANERS.get(message.get("role", ""), _refuse)(clean(message))
        if cleaned is not None:
            yield cleaned


def _clean_user(message: Message) -> Message | None:
    content = _worth(message, GIVEN)
    return {**message, "content": content} if content else None


def _clean_assistant(message: Message) -> Message | None:
    content = [_sendable(block) for block in _worth(message, MADE)]
    speaks = any(block["type"] != "reasoning" for block in content)
    return {**message, "content": content} if speaks else None


def _clean_result(message: Message) -> Message | None:
    content = _worth(message, GIVEN)
    return {**message, "content": content or [{"type": "text", "text": NO_OUTPUT}]}


def _refuse(message: Message) -> Message | None:
    raise ModelError("INVALID_REQUEST", f"a message of role {message.get('role')!r} can't be sent")


CLEANERS = {"user": _clean_user, "assistant": _clean_assistant, "tool": _clean_result}


def _worth(message: Message, kinds: frozenset[str]) -> list[Block]:
    return [block for block in message["content"] if block.get("type") in kinds and _says_something(block)]


def _says_something(block: Block) -> bool:
    kind = block.get("type")
    if kind == "text":
        return bool(str(block.get("text", "")).strip())
    if kind == "reasoning":
        return not block.get("incomplete") and (bool(block.get("text")) or len(block) > 2)
    return kind != "tool-call" or bool(block.get("name"))


def _sendable(block: Block) -> Block:
    if block["type"] != "tool-call":
        return block
    return {**block, "arguments": _object(block.get("arguments", ""))}


def _object(arguments: str) -> str:
    """The raw text if it is a JSON object, else ``{}``: a cut call would spoil every later request."""
    try:
        return arguments if isinstance(orjson.loads(arguments), dict) else "{}"
    except orjson.JSONDecodeError:
        return "{}"


# -- calls and results


def _pair(messages: Iterator[Message]) -> Iterator[Message]:
    """Each assistant message with calls, then its results; everything else in its old order."""
    waiting = list(messages)
    used: set[str] = set()
    taken: set[int] = set()  # positions of results that stand with their calls already
    for at, message in enumerate(waiting):
        if message["role"] == "tool":
            continue
        calls = tool_calls(message) if message["role"] == "assistant" else []
        if not calls:
            yield message
            continue
        results = [_result_for(call, waiting, at, taken) for call in calls]
        ids = [_unique(call["id"], used) for call in calls]
        yield _renamed(message, ids)
        yield from ({**result, "call": ident} for result, ident in zip(results, ids, strict=True))


def _result_for(call: Block, messages: list[Message], after: int, taken: set[int]) -> Message:
    """The first result for the call that stands after it, before its id is used for another call."""
    for at in range(after + 1, len(messages)):
        message = messages[at]
        if message["role"] == "tool" and message["call"] == call["id"] and at not in taken:
            taken.add(at)
            return message
        if any(other["id"] == call["id"] for other in tool_calls_of(message)):
            break
    return no_result(call)


def tool_calls_of(message: Message) -> list[Block]:
    """Tool calls of any message; only an assistant has some."""
    return tool_calls(message) if message["role"] == "assistant" else []


def no_result(call: Block) -> Message:
    """Stands for the result that a call never got."""
    return {
        "role": "tool",
        "call": call["id"],
        "name": call["name"],
        "content": [{"type": "text", "text": NO_RESULT}],
        "is_error": True,
    }


def _unique(ident: str, used: set[str]) -> str:
    """``ident``, or with ``-2``, ``-3``, ... if it was used before."""
    base = ident or "call"
    candidates = (base if n == 1 else f"{base}-{n}" for n in range(1, len(used) + 2))
    found = next(candidate for candidate in candidates if candidate not in used)
    used.add(found)
    return found


def _renamed(message: Message, ids: list[str]) -> Message:
    names = iter(ids)
    content = [
        {**block, "id": next(names)} if block["type"] == "tool-call" else block
        for block in message["content"]
    ]
    return {**message, "content": content}
