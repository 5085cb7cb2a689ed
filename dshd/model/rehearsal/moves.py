"""What to do now, from the items: lines to say, waits, and the call that ends a step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import attrs

from dshd.model.errors import ModelError
from dshd.model.rehearsal.items import Item, is_call, seconds, until_end, verb_of
from dshd.model.request import Message, text_of
from dshd.plural import count

CAN = "run: CMD, read FILE, write FILE: TEXT, what is in this directory?, wait D, fail, ask"
CLOSING = "(Rehearsal. No AI was asked. To use one: dshctl key deepseek, or see man dshd.)"
QUESTION = "What shall I do next? (You asked me to ask; answer with a followup.)"
SHOWN_NAMES, SHOWN_LINES, SHOWN_CHARS = 4, 12, 2000
SUMMED_CHARS = 80
NOTE = re.compile(r"\[(.+)\]")


@attrs.frozen
class Wait:
    seconds: float


Move = str | Wait | Item | ModelError  # a line to say; a wait; a tool call (ends the step); a failure


def moves(items: list[Item]) -> Iterator[Move]:
    """This step. With a call in it: what is new, then the call. Else everything since the turn began."""
    ahead = until_end([item for item in items if item.call is None])
    call = next((item for item in ahead if is_call(item)), None)
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


def is_to_sum_up(messages: list[Message]) -> bool:
    """Whether the last message wants the conversation summed up (`driver.compacting`)."""
    last = messages[-1] if messages else {}
    return (last.get("source") or {}).get("via") == "compaction" and last.get("verb") is None


def summary(messages: list[Message]) -> Iterator[str]:
    """What was said to it, the newest last, in a line each; no AI reads anything into it."""
    said = [text_of(m["content"]) for m in messages if m["role"] == "user" and verb_of(m)]
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
