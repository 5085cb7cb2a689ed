"""The oracle's half for the surface: what the model sees, and what a compaction may do to it.

`Surface` is told each event before `oracle.Oracle` handles it. Its rules:

- a compaction is a bracket, inside a turn that is not aborted, before a step or in one that is too large; or
  outside of any; one at a time, and numbered;
- inside of it nothing is claimed, and no step or call begins;
- what old results printed is cut short right at its beginning, one summary is put in right before its end,
  and only if it is done: so the surface is the one before or the one after;
- only what is balanced is hidden: in each request calls have their results, right behind them;
- it comes to an end: a summary is asked for three times at most, an open step is made smaller once, and who
  has failed to compact by himself doesn't try again before much was added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import attrs

MOST_ASKED = 3
MUCH = 0.1  # of the window
NOT_INSIDE = frozenset({
    "turn/start", "turn/end", "step/start", "step/end", "step/rejected", "tool/call", "approval/asked",
    "assistant/message", "session/closed", "session/forked", "session/imported",
})  # fmt: skip


@attrs.define
class Bracket:
    """``summed``: the events that its summary hides; ``last``: the type of its newest event."""

    number: int
    turn: int | None
    cause: str
    before: int
    window: int
    asked: int = 0
    pruned: int = 0
    summed: int | None = None
    text: bool = False


class Surface:
    """``need(holds, why)`` raises. ``hidden``: {compaction that is done: events that its summary hides}."""

    def __init__(self, need: Callable[[Any, str], None]) -> None:
        self.need = need
        self.events: list[Any] = []
        self.open: Bracket | None = None
        self.count = 0
        self.hidden: dict[int, int] = {}
        self.ends: Counter[str] = Counter()
        self._overflowed: tuple[Any, Any] | None = None  # (turn, step)
        self._not_before: dict[int, float] = {}  # {turn: tokens}

    def take(self, event: Any, turn: Any, *, history: bool = False) -> bool:
        """Follow it; whether it is a compaction's own, and nobody else's. ``history``: it is copied into a
        fork, which takes no brackets."""
        own = isinstance(event.surface, dict) or event.data.get("compaction") is not None
        if not history:
            self._judge(event, turn)
        on_surface(self.events, event, self.need)
        return own and event.type in ("request/sent", "user/message", "tool/result")

    def _judge(self, event: Any, turn: Any) -> None:
        inside = self.open
        self.need(inside is None or event.type not in NOT_INSIDE, "inside a compaction")
        claims = event.type == "inbox/spliced" and event.data["cause"] == "claim"
        self.need(inside is None or not claims, "a claim inside a compaction")
        if event.type == "session/opened":  # a turn that waited goes on with another driver
            self._not_before.clear()
        elif event.type == "compaction/start":
            self._start(event.data, turn)
        elif event.type == "compaction/summary":
            self.need(inside is not None and event.data["compaction"] == inside.number, "not the open one")
            self.need(inside is None or inside.summed is None, "a second summary")
            if inside is not None:
                inside.text = True
        elif event.type == "compaction/end":
            self._end(event.data)
        elif event.type == "request/sent":
            self._request(event)
        if isinstance(event.surface, dict):
            self._replaces(event)

    def _start(self, data: Any, turn: Any) -> None:
        here, number = (turn.number if turn else None), data["compaction"]
        self.need(self.open is None, "a compaction inside a compaction")
        self.need(number == self.count + 1, f"compaction {number} after {self.count}")
        self.need(data["turn"] == here, f"compaction in turn {data['turn']}, and {here} is open")
        self.need(turn is None or turn.abort is None, "a compaction after the abort")
        self.open, self.count = Bracket(number, here, data["cause"], data["before"], data["window"]), number
        step = turn is not None and turn.step_open
        self.need(step == (data["cause"] == "overflow"), f"{data['cause']} while a step is open: {step}")
        self.need(turn is not None or data["cause"] == "asked", "nobody asked for it")
        if data["cause"] == "overflow":
            self.need(self._overflowed != (here, turn.step), "the same step overflows twice")
            self._overflowed = (here, turn.step)
        elif data["cause"] == "threshold":
            least = self._not_before.get(here or 0, 0.0)
            self.need(data["before"] >= 0.8 * data["window"] - 1, "it is not so large")
            self.need(data["before"] >= least - 1, f"again at {data['before']}, not from {least:g} on")

    def _request(self, event: Any) -> None:
        number, inside = event.data.get("compaction"), self.open
        self.need(number == (inside.number if inside else None), f"a request of compaction {number}")
        seen = self.events
        if number is not None and inside is not None:
            inside.asked += 1
            self.need(inside.asked <= event.data["attempt"] <= MOST_ASKED, "asked for a summary so often")
            seen = seen[: event.data["messages"]]
            self.need(seen and inside.summed is None, "asked for a summary of nothing, or of a summary")
        self.need(paired(seen), "a request with calls and results that are not paired")

    def _replaces(self, event: Any) -> None:
        inside, sources = self.open, event.sources
        self.need(inside is not None, "hides what is on the surface, outside of a compaction")
        assert inside is not None
        if event.type == "user/message":
            self.need(inside.text and inside.summed is None, "stands for others, without a summary")
            inside.summed = len(sources)
        else:
            self.need(event.type == "tool/result" and len(sources) == 1, "may not hide anything")
            self.need(not inside.asked, "a result is cut short after the beginning")
            old = next((e for e in self.events if e.seq == sources[0]), None)
            whose = [(e.data["call"], e.data["turn"]) for e in (old, event) if e is not None]
            self.need(whose[0] == whose[-1] and old is not None, "stands for another call's")
            inside.pruned += 1

    def _end(self, data: Any) -> None:
        inside = self.open
        self.need(inside is not None and data["compaction"] == inside.number, "not the open one")
        assert inside is not None
        done = data["reason"] == "done"
        if done:
            self.need((inside.summed or 0) == data["hidden"], f"hides {inside.summed}, says {data['hidden']}")
            self.need(inside.pruned == data["pruned"], f"cut {inside.pruned}, says {data['pruned']}")
            self.need(inside.pruned or inside.summed, "is done, and changed nothing")
            self.need(data["after"] < data["before"], "is done, and made it larger")
            self.hidden[inside.number] = data["hidden"]
        else:
            self.need(inside.summed is None or data.get("recovery"), f"{data['reason']}, and summed up")
        if done or inside.pruned:  # another conversation, of which nothing is known
            self._not_before.pop(inside.turn or 0, None)
        elif inside.turn is not None and inside.cause != "overflow":
            self._not_before[inside.turn] = inside.before + MUCH * inside.window
        if data["reason"] == "interrupted":  # a step that waited goes on, and may compact again
            self._overflowed = None
        self.ends[f"{inside.cause}, {_how(inside, data)}"] += 1
        self.open = None


def _how(inside: Bracket, data: Any) -> str:
    if data["reason"] == "done":
        return "summed up" if inside.summed else "cut short"
    return str(data["reason"]) + (", recovery" if data.get("recovery") else "")


def on_surface(events: list[Any], event: Any, need: Callable[[Any, str], None] | None = None) -> None:
    """Put it where it says."""
    if event.surface == "append":
        events.append(event)
    elif event.surface is not None:
        first, last = event.surface["replace"]
        seqs = [e.seq for e in events]
        at = slice(seqs.index(first), seqs.index(last) + 1)
        if need is not None:
            need(seqs[at] == list(event.sources), f"hides {seqs[at]}, and says {event.sources}")
        events[at] = [event]


def paired(events: Iterable[Any]) -> bool:
    """Whether behind each answer with calls stand their results, each once, before anything else is asked or
    said."""
    waits: list[str] = []
    for event in events:
        if event.type == "tool/result":
            if event.data["call"] not in waits:
                return False
            waits.remove(event.data["call"])
        elif waits:
            return False
        elif event.type == "assistant/message":
            waits = [b["id"] for b in event.data["content"] if b["type"] == "tool-call"]
    return not waits
