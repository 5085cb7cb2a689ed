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

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import orjson

from dshd import nesting
from dshd.model.errors import ModelError
from dshd.model.grown import Grown, shared
from dshd.model.request import Block, Memo, Message, ModelRequest, ToolSpec, tool_calls

NO_OUTPUT = "(no output)"
EARLIER = "(what was said before is not shown)"
GO_ON = "Go on."
GIVEN = frozenset({"text", "image", "file"})  # blocks that a message to the model may hold
MADE = frozenset({"text", "reasoning", "tool-call"})  # and one from it
NO_RESULT = "no result: the call was interrupted; it may have run in part. Check before repeating it."


def check(request: ModelRequest) -> ModelRequest:
    """The request as it may be sent. `ModelError` ``INVALID_REQUEST`` if nothing is left to answer."""
    cleaned = request.memo.each("checked", request.messages, _clean_message)
    messages = _framed(_paired(cleaned, request.memo))
    if not messages:
        raise ModelError("INVALID_REQUEST", "there is nothing to send: the conversation is empty")
    return attrs.evolve(
        request,
        system=clean_text(request.system),
        messages=messages,
        tools=request.memo.once("clean tools", (request.tools,), lambda: _clean_tools(request.tools)),
    )


def _framed(messages: Grown[Message]) -> Grown[Message]:
    """Providers want a user to begin, and something to answer at the end."""
    if messages and messages[0]["role"] != "user":
        messages = Grown([_said(EARLIER), *messages])
    if messages and messages[-1]["role"] == "assistant":
        messages = messages.plus([_said(GO_ON)])
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
    """``value`` with every string in it cleaned; itself if it is clean."""
    try:
        orjson.dumps(value)  # refuses exactly what has to be replaced, and is fast
    except TypeError:
        return _cleaned(value)
    return value


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): _cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(inner) for inner in value]
    return value


def _clean_tools(tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    return tuple(ToolSpec(clean_text(t.name), clean_text(t.description), clean(t.schema)) for t in tools)


# -- single messages


def _clean_message(message: Message) -> Message | None:
    return CLEANERS.get(message.get("role", ""), _refuse)(clean(message))


def _clean_user(message: Message) -> Message | None:
    content = _worth(message, GIVEN)
    return _with(message, content) if content else None


def _clean_assistant(message: Message) -> Message | None:
    content = [_sendable(block) for block in _worth(message, MADE)]
    speaks = any(block["type"] != "reasoning" for block in content)
    return _with(message, content) if speaks else None


def _clean_result(message: Message) -> Message | None:
    content = _worth(message, GIVEN)
    return _with(message, content or [{"type": "text", "text": NO_OUTPUT}])


def _with(message: Message, content: list[Block]) -> Message:
    return message if content == message["content"] else {**message, "content": content}


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
    """The raw text if it is a JSON object, else ``{}``: a cut call would spoil every later request, and so
    would one that is nested too deeply."""
    try:
        return arguments if isinstance(nesting.shallow(orjson.loads(arguments)), dict) else "{}"
    except ValueError:  # no JSON, or deeper than any server takes
        return "{}"


# -- calls and results


@attrs.define
class _Pairing:
    """A history being put in order; None stands for a message that isn't sent. ``settled``: every call so far
    has its result, so more may follow."""

    source: Sequence[Message | None] = ()
    out: Grown[Message] = attrs.field(factory=Grown)
    used: set[str] = attrs.field(factory=set)  # call ids
    settled: bool = True


def _paired(messages: Grown[Message | None], memo: Memo) -> Grown[Message]:
    """Each assistant message with calls, then its results; everything else in its old order.

    Goes on from the last history, if this one begins with it and nothing in it was left open.
    """
    pairing: _Pairing = memo.kept.pop("paired", None) or _Pairing()
    known = len(pairing.source)
    if not pairing.settled or shared(pairing.source, messages) < known:
        pairing, known = _Pairing(), 0
    pairing.source = messages
    taken: set[int] = set()  # positions of results that stand with their calls already
    new: list[Message] = []
    for at in range(known, len(messages)):
        new += _pair(pairing, at, taken)
    pairing.out = pairing.out.plus(new)
    memo.kept["paired"] = pairing
    return pairing.out


def _pair(pairing: _Pairing, at: int, taken: set[int]) -> Iterator[Message]:
    message = pairing.source[at]
    if message is None or message["role"] == "tool":
        return
    calls = tool_calls(message) if message["role"] == "assistant" else []
    found = [_result_for(call, pairing.source, at, taken) for call in calls]
    ids = [_unique(call["id"], pairing.used) for call in calls]
    pairing.settled = pairing.settled and None not in found
    yield _renamed(message, calls, ids)
    results = (result or no_result(call) for result, call in zip(found, calls, strict=True))
    yield from map(_answering, results, ids)


def _result_for(
    call: Block, messages: Sequence[Message | None], after: int, taken: set[int]
) -> Message | None:
    """The first result for the call that stands after it, before its id is used for another call."""
    for at in range(after + 1, len(messages)):
        message = messages[at]
        if message is None:
            continue
        if message["role"] == "tool":
            if message["call"] == call["id"] and at not in taken:
                taken.add(at)
                return message
        elif message["role"] == "assistant" and any(c["id"] == call["id"] for c in tool_calls(message)):
            break
    return None


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
    base = found = ident or "call"
    number = 1
    while found in used:
        number += 1
        found = f"{base}-{number}"
    used.add(found)
    return found


def _renamed(message: Message, calls: list[Block], ids: list[str]) -> Message:
    """The same object if its ids are what they were."""
    if [call["id"] for call in calls] == ids:
        return message
    names = iter(ids)
    content = [
        {**block, "id": next(names)} if block["type"] == "tool-call" else block
        for block in message["content"]
    ]
    return {**message, "content": content}


def _answering(result: Message, ident: str) -> Message:
    return result if result["call"] == ident else {**result, "call": ident}
