"""The rehearsal model: embedded, no key, no network, no AI. It says so itself.

It is there to see dshd work without a model: it does what the request's lines say, one line a step, with
real tool calls, repeats every steer and inject it was given, and answers *every* text, at least with what
it can do. Everything is derived from the request's messages alone, so the same log always gets the same
answers, and a retry or a restart goes on where the work stood.

How: the history is played from the start. Each message said to the agent puts *items* on a list (a line
of work, or something to repeat back); each earlier assistant message took items off it, exactly as `_take`
takes them now. What is left says what to do next. A message that opens a turn replaces the work that was
left of the turn before, as an abort leaves it.

With ``script = FILE`` it plays a script instead: a JSON list (or one object per line) of answers, number N
for a history with N assistant messages. An answer is ``{"text", "reasoning", "tools": [{"name",
"arguments"}], "wait": s, "error": {"code", "message"}, "finish", "usage"}``, all optional; ``chunks`` cuts
the text into so many pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import attrs
import orjson

from dshd.model.adapter import Emit, PreparedCall
from dshd.model.checker import check
from dshd.model.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from dshd.model.errors import CODES, ModelError
from dshd.model.request import Message, ModelRequest, text_of, tool_calls
from dshd.plural import count

CAN = "run: CMD, read FILE, write FILE: TEXT, what is in this directory?, wait D, fail, ask"
CLOSING = "(Rehearsal. No AI was asked. To use one: dshctl key deepseek, or see man dshd.)"
QUESTION = "What shall I do next? (You asked me to ask; answer with a followup.)"
SHOWN_NAMES, SHOWN_LINES, SHOWN_CHARS = 4, 12, 2000
SUMMED_CHARS = 80


@attrs.define
class Item:
    """Something to do or to say. ``call`` and ``result`` are filled in from the history."""

    kind: str
    text: str = ""
    rest: str = ""
    call: str | None = None
    result: Message | None = None


@attrs.frozen
class Pattern:
    """A line the rehearsal model understands. Groups: ``text`` and ``rest``."""

    kind: str
    regex: re.Pattern[str]


def _pattern(kind: str, regex: str) -> Pattern:
    return Pattern(kind, re.compile(regex, re.IGNORECASE | re.DOTALL))


PATTERNS = (
    _pattern("run", r"run:\s*(?P<text>\S.*)"),
    _pattern("write", r"write\s+(?P<text>[^:\s][^:]*?)\s*:\s?(?P<rest>.*)"),
    _pattern("read", r"read:?\s+(?P<text>\S.*)"),
    _pattern("list", r"what(?: is|'s|s)\s+in\s+(?:this|the)\s+(?:directory|folder)\s*\??"),
    _pattern("wait", r"wait:?\s+(?P<text>(?:\d+(?:\.\d+)?\s*(?:ms|[smhd])?\s*)+)"),
    _pattern("fail", r"fail"),
    _pattern("ask", r"ask"),
)
WORK = frozenset(pattern.kind for pattern in PATTERNS)
REPEATED = frozenset({"steered", "told"})

# {kind: (tool, arguments of an item)}; one of these ends a step
CALLS: dict[str, tuple[str, Callable[[Item], dict[str, Any]]]] = {
    "run": ("bash", lambda item: {"command": item.text}),
    "list": ("bash", lambda _: {"command": "ls"}),
    "read": ("read", lambda item: {"path": item.text}),
    "write": ("write", lambda item: {"path": item.text, "content": item.rest + "\n"}),
}

NOTE = re.compile(r"\[(.+)\]")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}


def parse_line(line: str) -> Item:
    """The item that a line of a request asks for; ``unknown`` if it isn't understood."""
    for pattern in PATTERNS:
        found = pattern.regex.fullmatch(line)
        if found:
            groups = found.groupdict()
            return Item(pattern.kind, (groups.get("text") or "").strip(), groups.get("rest") or "")
    return Item("unknown", line)


def seconds(duration: str) -> float:
    """``1m30s`` as 90.0; a bare number is seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|[smhd]?)", duration.lower())
    return sum(float(number) * UNITS[unit] for number, unit in parts)


# -- the history, played


def plan(messages: tuple[Message, ...] | list[Message]) -> list[Item]:
    """What there is to do and to say now, in order; items with a ``call`` are behind us."""
    items: list[Item] = []
    for is_user, run in groupby(messages, key=lambda message: message["role"] == "user"):
        if is_user:
            for _, turn in groupby(run, key=lambda message: message.get("turn")):
                items = _told(items, list(turn))
            continue
        for message in run:
            PLAYED[message["role"]](items, message)
    return items


def _told(items: list[Item], batch: list[Message]) -> list[Item]:
    """Items after a batch of messages that came in together."""
    kept = [] if any(_opens(message) for message in batch) else items
    followups = [at for at, message in enumerate(batch) if _verb(message) == "followup"]
    for at, message in enumerate(batch):
        if at in followups[:-1]:
            continue  # its turn ended before it was answered
        for item in ITEMS.get(_verb(message), _nothing)(text_of(message["content"])):
            _put(kept, item)
    return kept


def _put(items: list[Item], item: Item) -> None:
    """Work goes to the end; what is to be repeated back goes before the work that is left."""
    ahead = (at for at, other in enumerate(items) if other.call is None and other.kind not in REPEATED)
    items.insert(next(ahead, len(items)) if item.kind in REPEATED else len(items), item)


def _verb(message: Message) -> str:
    """The verb, as far as it matters here; "" for what nobody said (runtime context, notices)."""
    if (message.get("source") or {}).get("kind") == "system":
        return ""
    verb = message.get("verb") or "followup"
    return verb if verb in ITEMS else "followup"


def _opens(message: Message) -> bool:
    return _verb(message) == "followup" or (_verb(message) == "steer" and message.get("step") == 1)


def _lines(text: str) -> list[Item]:
    return [parse_line(line.strip()) for line in text.split("\n") if line.strip()]


def _asked(text: str) -> list[Item]:
    return _lines(text) or [Item("unknown", text)]


def _steered(text: str) -> list[Item]:
    return [Item("steered", text), *(item for item in _lines(text) if item.kind in WORK)]


def _injected(text: str) -> list[Item]:
    return [Item("told", text)]


def _nothing(_: str) -> list[Item]:
    return []


ITEMS: dict[str, Callable[[str], list[Item]]] = {
    "followup": _asked,
    "steer": _steered,
    "inject": _injected,
}


def _play_assistant(items: list[Item], message: Message) -> None:
    """Take off what an earlier answer of ours took; one that was cut took nothing."""
    if message.get("interrupted"):
        return
    calls = tool_calls(message)
    if calls:
        for call, item in zip(calls, (item for item in items if _is_call(item)), strict=False):
            item.call = call["id"]
        _say_before_call(items)
    elif not any(_is_call(item) for item in _until_end(items)):
        del items[: len(_until_end(items))]


def _play_result(items: list[Item], message: Message) -> None:
    for item in items:
        if item.call == message["call"]:
            item.result = message


PLAYED: dict[str, Callable[[list[Item], Message], None]] = {
    "assistant": _play_assistant,
    "tool": _play_result,
}


def _is_call(item: Item) -> bool:
    return item.kind in CALLS and item.call is None


def _until_end(items: list[Item]) -> list[Item]:
    """Items up to the one that ends the turn by itself."""
    ends = (at for at, item in enumerate(items) if item.kind in {"ask", "fail"})
    return items[: next(ends, len(items) - 1) + 1]


def _say_before_call(items: list[Item]) -> None:
    """What stood before the newest call has been said (and waited for) in that step."""
    last = max((at for at, item in enumerate(items) if item.call is not None), default=-1)
    for item in items[:last]:
        item.call = item.call or ""


# -- what to do now


@attrs.frozen
class Wait:
    seconds: float


Move = str | Wait | Item | ModelError  # a line to say; a wait; a tool call (ends the step); a failure


def moves(items: list[Item]) -> Iterator[Move]:
    """This step. With a call in it: what is new, then the call. Else everything since the turn began."""
    ahead = _until_end([item for item in items if item.call is None])
    call = next((item for item in ahead if _is_call(item)), None)
    if call is not None:
        for item in ahead[: ahead.index(call)]:
            yield from _say(item, again=False)
        yield call
        return
    behind = [item for item in items if item.call is not None]
    for item in behind + ahead:
        yield from _say(item, again=item.call is not None)
    unknown = any(item.kind == "unknown" for item in ahead)
    if unknown or not (behind or ahead):
        yield f"I can: {CAN} (a line each)."
    yield CLOSING


def _is_to_sum_up(messages: list[Message]) -> bool:
    """Whether the last message wants the conversation summed up (`driver.compacting`)."""
    last = messages[-1] if messages else {}
    return (last.get("source") or {}).get("via") == "compaction" and last.get("verb") is None


def summary(messages: list[Message]) -> Iterator[str]:
    """What was said to it, the newest last, in a line each; no AI reads anything into it."""
    said = [text_of(m["content"]) for m in messages if m["role"] == "user" and _verb(m)]
    yield f"## Task: {count(len(said), 'message')}, the newest last:"
    for text in said[-SHOWN_NAMES:]:
        yield f"- {' '.join(text.split())[:SUMMED_CHARS]}"
    answers = sum(message["role"] == "assistant" for message in messages)
    yield f"## Done: {count(answers, 'answer')}. (Rehearsal: no AI summed it up.)"


def _say(item: Item, *, again: bool) -> Iterator[Move]:
    if item.kind == "wait":
        yield f"{'waited' if again else 'waiting'} {item.text}"
        if not again:
            yield Wait(seconds(item.text))
    elif item.kind == "fail":
        yield ModelError("INVALID_REQUEST", "the rehearsal model was told to fail")
    else:
        yield SAID[item.kind](item)


def _say_listing(item: Item) -> str:
    names, notes = _output(item)
    if _failed(item, notes):
        return _report("ls", names, notes)
    if not names:
        return "0 entries: this directory is empty."
    more = ["..."] if len(names) > SHOWN_NAMES else []
    return f"{len(names)} {'entries' if len(names) > 1 else 'entry'}: {', '.join(names[:SHOWN_NAMES] + more)}"


def _say_output(head: str) -> Callable[[Item], str]:
    def say(item: Item) -> str:
        lines, notes = _output(item)
        return _report(head.format(item.text), lines, notes or ["failed" if _failed(item, notes) else "done"])

    return say


def _report(title: str, lines: list[str], notes: list[str]) -> str:
    return "\n".join([f"{title}: {'; '.join(notes)}", *_shown(lines)])


SAID: dict[str, Callable[[Item], str]] = {
    "list": _say_listing,
    "run": _say_output("$ {}"),
    "read": _say_output("read {}"),
    "write": _say_output("write {}"),
    "steered": lambda item: f"you steered: {item.text}",
    "told": lambda item: f"I was told: {item.text}",
    "unknown": lambda item: f"you asked: {item.text}\nI can't do that: I am not an AI.",
    "ask": lambda _: QUESTION,
}


def _output(item: Item) -> tuple[list[str], list[str]]:
    """Lines of the result, and what the tool noted in brackets below them (how a command ended)."""
    if item.result is None:
        return [], ["no result"]
    lines = text_of(item.result["content"]).strip("\n").split("\n")
    notes: list[str] = []
    while lines and (note := NOTE.fullmatch(lines[-1])):
        notes.insert(0, note.group(1))
        lines.pop()
    return ([] if lines in ([""], ["(no output)"]) else lines), notes


def _failed(item: Item, notes: list[str]) -> bool:
    ended_well = not notes or notes[0].startswith("exit 0")
    return item.result is None or bool(item.result.get("is_error")) or not ended_well


def _shown(lines: list[str]) -> list[str]:
    shown = "\n".join("  " + line for line in lines[:SHOWN_LINES])[:SHOWN_CHARS].split("\n")
    more = len(lines) - SHOWN_LINES
    return [*(shown if lines else []), *([f"  ... {more} more lines"] if more > 0 else [])]


# -- the adapter


class Rehearsal:
    """The adapter. ``encode`` writes the neutral request itself."""

    name = "rehearsal"
    encoder = "rehearsal/1"

    def encode(self, call: PreparedCall, request: ModelRequest) -> bytes:
        """The checked request as JSON."""
        request = check(request)
        written = request.memo.each("rehearsal", request.messages, orjson.dumps)
        return orjson.dumps(
            {
                "model": call.model,
                "system": request.system,
                "messages": orjson.Fragment(b"[" + b",".join(written) + b"]"),
                "tools": [tool.name for tool in request.tools],
            }
        )

    async def stream(self, call: PreparedCall, body: bytes, emit: Emit) -> None:
        """Plays the answer. *Cancellation*: at any point."""
        messages = orjson.loads(body)["messages"]
        if call.script:
            await _play_script(await _load(call.script), messages, body, emit)
        else:
            await _answer(messages, body, emit)


async def _answer(messages: list[Message], body: bytes, emit: Emit) -> None:
    import trio

    said = 0
    call: Item | None = None
    for move in summary(messages) if _is_to_sum_up(messages) else moves(plan(messages)):
        if isinstance(move, ModelError):
            raise move
        if isinstance(move, Item):
            call = move
        elif isinstance(move, Wait):
            await trio.sleep(move.seconds)
        else:
            said += await _say_line(move, said, emit)
    if said:
        await emit(BlockEnd(0))
    if call is not None:
        tool, arguments = CALLS[call.kind]
        await _emit_call(1, _call_id(messages, 0), tool, orjson.dumps(arguments(call)).decode(), emit)
    await _end(body, said, "tool-calls" if call else "stop", None, emit)


async def _say_line(line: str, said: int, emit: Emit) -> int:
    if not said:
        await emit(BlockStart(0, "text"))
    text = ("\n" if said else "") + line
    await emit(TextDelta(0, text))
    return len(text)


async def _emit_call(index: int, ident: str, name: str, arguments: str, emit: Emit) -> None:
    await emit(BlockStart(index, "tool-call", ident, name))
    await emit(ToolCallDelta(index, arguments))
    await emit(BlockEnd(index))


async def _end(body: bytes, said: int, reason: Any, usage: dict[str, int] | None, emit: Emit) -> None:
    """Usage is estimated (4 bytes a token), so that budgets can be rehearsed too."""
    guess = {"input": len(body) // 4, "cached": 0, "output": said // 4 + 1, "reasoning": 0}
    await emit(Usage({**guess, **(usage or {})}))
    await emit(Finish(reason))


def _call_id(messages: list[Message], at: int) -> str:
    return f"r{_answers(messages)}-{at}"


def _answers(messages: list[Message]) -> int:
    return sum(message["role"] == "assistant" for message in messages)


# -- scripts


async def _load(path: str) -> list[dict[str, Any]]:
    import trio

    try:
        raw = await trio.Path(path).read_bytes()
        return parse_script(raw)
    except (OSError, ValueError) as error:
        raise ModelError(
            "INVALID_REQUEST", f"the rehearsal script {path} can't be played: {error}"
        ) from error


def parse_script(raw: bytes) -> list[dict[str, Any]]:
    """The answers in a script. ValueError if it is neither a JSON list nor JSON lines of objects."""
    text = raw.strip()
    items = orjson.loads(text) if text.startswith(b"[") else [orjson.loads(x) for x in text.split(b"\n") if x]
    if not all(isinstance(item, dict) for item in items):
        raise ValueError("every answer must be an object")
    return list(items)


async def _play_script(
    script: list[dict[str, Any]], messages: list[Message], body: bytes, emit: Emit
) -> None:
    import trio

    number = _answers(messages)
    item: dict[str, Any] = script[number] if number < len(script) else {"text": "end of script"}
    await trio.sleep(float(item.get("wait", 0)))
    for chunk in scripted(item, messages):
        await emit(chunk)
    if "error" in item:
        raise _scripted_error(item["error"])
    tools = item.get("tools", [])
    reason = item.get("finish", "tool-calls" if tools else "stop")
    await _end(body, len(item.get("text", "")), reason, item.get("usage"), emit)


def scripted(item: dict[str, Any], messages: list[Message]) -> Iterator[Chunk]:
    """The chunks of an answer's blocks, in the order reasoning, text, tools."""
    if item.get("reasoning"):
        yield from (BlockStart(0, "reasoning"), ReasoningDelta(0, item["reasoning"]), BlockEnd(0))
    if item.get("text"):
        yield BlockStart(1, "text")
        yield from (TextDelta(1, piece) for piece in _pieces(item["text"], int(item.get("chunks", 1))))
        yield BlockEnd(1)
    for at, tool in enumerate(item.get("tools", [])):
        raw = tool.get("arguments", {})
        yield BlockStart(2 + at, "tool-call", tool.get("id") or _call_id(messages, at), tool["name"])
        yield ToolCallDelta(2 + at, raw if isinstance(raw, str) else orjson.dumps(raw).decode())
        yield BlockEnd(2 + at)


def _pieces(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, count)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _scripted_error(error: dict[str, Any]) -> ModelError:
    code = error.get("code", "INVALID_REQUEST")
    return ModelError(
        code if code in CODES else "UNKNOWN",
        str(error.get("message", "the script says so")),
        retry_after=error.get("retry_after"),
    )
