"""What was said, as items: a line of work, or something to repeat back; and which of them are done."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from typing import Any

import attrs

from dshd.model.request import Message, text_of, tool_calls


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
    followups = [at for at, message in enumerate(batch) if verb_of(message) == "followup"]
    for at, message in enumerate(batch):
        if at in followups[:-1]:
            continue  # its turn ended before it was answered
        for item in ITEMS.get(verb_of(message), _nothing)(text_of(message["content"])):
            _put(kept, item)
    return kept


def _put(items: list[Item], item: Item) -> None:
    """Work goes to the end; what is to be repeated back goes before the work that is left."""
    ahead = (at for at, other in enumerate(items) if other.call is None and other.kind not in REPEATED)
    items.insert(next(ahead, len(items)) if item.kind in REPEATED else len(items), item)


def verb_of(message: Message) -> str:
    """The verb, as far as it matters here; "" for what nobody said (runtime context, notices)."""
    if (message.get("source") or {}).get("kind") == "system":
        return ""
    verb = message.get("verb") or "followup"
    return verb if verb in ITEMS else "followup"


def _opens(message: Message) -> bool:
    return verb_of(message) == "followup" or (verb_of(message) == "steer" and message.get("step") == 1)


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
        for call, item in zip(calls, (item for item in items if is_call(item)), strict=False):
            item.call = call["id"]
        _say_before_call(items)
    elif not any(is_call(item) for item in until_end(items)):
        del items[: len(until_end(items))]


def _play_result(items: list[Item], message: Message) -> None:
    for item in items:
        if item.call == message["call"]:
            item.result = message


PLAYED: dict[str, Callable[[list[Item], Message], None]] = {
    "assistant": _play_assistant,
    "tool": _play_result,
}


def is_call(item: Item) -> bool:
    return item.kind in CALLS and item.call is None


def until_end(items: list[Item]) -> list[Item]:
    """Items up to the one that ends the turn by itself."""
    ends = (at for at, item in enumerate(items) if item.kind in {"ask", "fail"})
    return items[: next(ends, len(items) - 1) + 1]


def _say_before_call(items: list[Item]) -> None:
    """What stood before the newest call has been said (and waited for) in that step."""
    last = max((at for at, item in enumerate(items) if item.call is not None), default=-1)
    for item in items[:last]:
        item.call = item.call or ""
