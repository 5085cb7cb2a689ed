"""A session's log as a conversation.

`Chat` takes the events of a log in order, from any `turn/start` on, and gives lines of text. It is
the same engine for `log` (whole turns), `log -f` (as they come) and the progress of `run`, which
leaves out the headings and the answer, for that goes to standard output alone.

Rules. A turn has a heading (number, time, who opened it), what was asked, and, two columns in, what
the agent said and did; a tool call is one line, its outcome at the right; the end of a failed
command follows it, four columns in. What was said to a running turn stands where it entered, after
a ``>``. Reasoning and the output of what went well are left out unless asked for. Lines of prose
are wrapped, lines inside ``` fences and of tools never.

Nothing is printed before it is certain where it belongs: the first step's messages wait until the
step goes on (only then is it known which of them opened the turn), and with `hold_answer` what the
agent said waits until it is known whether it was the last thing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, Final

from dshctl import times
from dshctl.excerpts import (
    EXIT_NOTE,
    budget_words,
    call_line,
    cost_parts,
    error_word,
    failed,
    text_of,
    tokens_of,
    tokens_text,
)  # fmt: skip
from dshctl.output import cut, one_line, pad, width
from dshctl.sentences import count, when, who, you
from dshd import wire

Json = dict[str, Any]

TAIL_LINES: Final = 3  # of a failed command's output


class Chat:
    """Events in, lines out. ``columns`` is the width; ``now`` gives Unix ms."""

    def __init__(
        self, columns: int, *, full: bool = False, reasoning: bool = False, progress: bool = False,
        limit: bool = True, ellipsis: str = "...", now: Callable[[], int] = times.now_ms, session: str = "",
    ) -> None:  # fmt: skip
        self.columns = columns
        self.full = full
        self.reasoning = reasoning
        self.progress = progress
        self.limit = limit  # cut lines of tools to the width
        self.ellipsis = ellipsis
        self.now = now
        self.session = session  # for commands in hints
        self.place = ""  # where long texts of the session are kept
        self.turn: int | None = None
        self._started = 0
        self._step = 0
        self._opened = False
        self._first: list[tuple[int, Json]] = []  # (time, message) of the first step, until it goes on
        self._early: list[str] = []  # what happened before the first step
        self._calls: dict[str, Json] = {}
        self._answer: list[str] = []
        self._tokens = 0
        self._abort: Json | None = None
        self._abort_at = 0

    # Events.

    def feed(self, event: Json) -> list[str]:
        """The lines that this event adds."""
        kind, data = event.get("type"), event.get("data") or {}
        handler = _HANDLERS.get(str(kind))
        stands_for_others = event.get("surface") not in (None, "append")  # for the model; nobody said it
        if handler is None or stands_for_others:
            return []
        lines = [] if kind == "user/message" else self._flush_first()
        lines += handler(self, data, int(event.get("time") or 0))
        if self._opened and self._early:
            lines, self._early = lines + self._early, []
        return lines

    def end(self, stopped: bool = False) -> list[str]:
        """What is still held when no more events come; the turn may go on, unless it is ``stopped``: no
        daemon runs it."""
        lines = self._flush_first() + self._flush_answer()
        if self.turn is None or self.progress:
            return lines
        calls = (
            call_line(str(call.get("name")), str(call.get("arguments") or ""))
            for call in self._calls.values()
        )
        lines += [self._across(f"  {call}", "stopped" if stopped else "...") for call in calls]
        return [*lines, self._rule("stopped: no daemon runs"), ""] if stopped else lines

    def _turn_start(self, data: Json, time: int) -> list[str]:
        lines = self._flush_first() + self._flush_answer()
        self.turn, self._started, self._step = data.get("turn"), time, 0
        self._opened, self._tokens, self._abort = False, 0, None
        self._calls.clear()
        self._early = []
        if data.get("retry_of"):
            lines += self._heading(time, f"goes on with turn {data['retry_of']}")
        return lines

    def _step_start(self, data: Json, time: int) -> list[str]:
        self._step = int(data.get("step") or self._step + 1)
        return self._flush_answer()

    def _user_message(self, data: Json, time: int) -> list[str]:
        self.turn = data.get("turn") or self.turn
        if (data.get("source") or {}).get("via") == "context":
            return []
        if self._opened or self.progress:
            return self._flush_answer() + self._aside(data, time)
        self._first.append((time, data))
        return []

    def _flush_first(self) -> list[str]:
        """The heading and what opened the turn, then what came along with it."""
        if not self._first or self._opened:
            return []
        waiting, self._first = self._first, []
        opener = next((said for said in reversed(waiting) if said[1].get("verb") == "followup"), waiting[-1])
        lines = self._heading(self._started or opener[0], who(opener[1].get("source")))
        lines += [*self._prose(text_of(opener[1], self.place), ""), ""]
        lines, self._early = lines + self._early, []
        for time, data in waiting:
            if data is not opener[1]:
                lines += self._aside(data, time)
        return lines

    def _heading(self, time: int, by: str) -> list[str]:
        self._opened = True
        if self.progress:
            return []
        return [self._rule(f"turn {self.turn} -- {times.moment(time, self.now())} -- {by}")]

    def _rule(self, words: str) -> str:
        line = f"-- {one_line(words)} "
        if self.limit and not self.full:
            line = cut(line, self.columns - 3, self.ellipsis + " ")
        return line + "-" * max(2, self.columns - width(line))

    def _aside(self, data: Json, time: int) -> list[str]:
        """What was said to a turn that runs. Progress leaves out what its own command said."""
        if self.progress and data.get("verb") == "followup":
            return []
        said = _SAID.get(str(data.get("verb")), "said")
        source = data.get("source") or {}
        kind = str(source.get("kind") or "user")
        by = f"you {said}" if kind == "user" else f"{who(source)}"
        head = f"> {times.clock(time, self.now())} {by}: "
        lines = self._prose(text_of(data, self.place), head, "  ")
        return self._shortened(lines) if kind == "job" else lines

    def _shortened(self, lines: list[str]) -> list[str]:
        """What a job printed is no conversation: how it ended, and the last of it."""
        left_out = len(lines) - 1 - TAIL_LINES
        if self.full or left_out < 2:
            return lines
        more = f"  ... {count(left_out, 'line')}: dshctl log{self.session} --turn {self.turn} --full"
        return [lines[0], self._cut(more), *lines[-TAIL_LINES:]]

    def _assistant(self, data: Json, time: int) -> list[str]:
        before = self._flush_answer()
        lines: list[str] = []
        for block in data.get("content") or ():
            lines += self._block(block)
        if data.get("interrupted"):
            lines.append("  (interrupted)")
        self._usage(data.get("usage"))
        calls = any(block.get("type") == "tool-call" for block in data.get("content") or ())
        if self.progress and not calls:
            self._answer = lines
            return before
        return before + lines

    def _block(self, block: Json) -> list[str]:
        kind, text = block.get("type"), str(block.get("text") or "")
        if kind == "tool-call":
            self._calls[str(block.get("id"))] = block
        elif kind == "text" and text.strip():
            return self._prose(text.strip("\n"), "  ")
        elif kind == "reasoning" and self.reasoning and text.strip():
            return self._prose(text.strip("\n"), "  | ", "  | ")
        return []

    def _flush_answer(self) -> list[str]:
        lines, self._answer = self._answer, []
        return lines

    def _usage(self, usage: Json | None) -> None:
        usage = usage or {}
        self._tokens += tokens_of(usage)

    def _result(self, data: Json, time: int) -> list[str]:
        call = self._calls.pop(str(data.get("call")), {})
        name = str(data.get("name") or call.get("name") or "tool")
        left = call_line(name, str(call.get("arguments") or ""))
        right = str(data.get("summary") or (error_word(data) if data.get("is_error") else ""))
        return [self._across(f"  {left}", right), *self._output(data, name)]

    def _across(self, left: str, right: str) -> str:
        """Something at the left, something at the right margin."""
        room = self.columns - 4 - width(right)
        if self.limit:
            left = cut(left, max(room - 1, 12), self.ellipsis)
        return f"{pad(left, room)}  {right}".rstrip() if right else left

    def _output(self, data: Json, name: str) -> list[str]:
        lines = text_of(data).strip("\n").split("\n")
        if self.full:
            return [f"    {line}" for line in lines]
        if not failed(data, name):
            return []
        if EXIT_NOTE.match(lines[-1]):  # the heading says it
            lines.pop()
        shown = [line for line in lines if line.strip()][-TAIL_LINES:]
        hint = f"dshctl log{self.session} --turn {self.turn} --full"
        more = [f"    ... {count(len(lines), 'line')}: {hint}"] if len(lines) > TAIL_LINES else []
        return more + [self._cut(f"    {line}") for line in shown]

    def _cut(self, line: str) -> str:
        return cut(line, self.columns - 1, self.ellipsis) if self.limit else line

    def _retry(self, data: Json, time: int) -> list[str]:
        why = data.get("message") or data.get("code") or "the provider failed"
        if data.get("waits") and data.get("until"):
            until = when(int(data["until"]), self.now())
            return [self._cut(f"  (waits until {until}: {one_line(str(why))})")]
        delay = data.get("delay_ms")
        soon = f" in {times.age(delay) if delay >= 1000 else f'{delay / 1000:.1f} s'}" if delay else ""
        return [self._cut(f"  (again{soon}: {one_line(str(why))})")]

    def _compacted(self, data: Json, time: int) -> list[str]:
        """Where the model's view of what stands above was made smaller; between turns a rule of its own."""
        if data.get("reason") != "done":
            why = one_line(str((data.get("error") or {}).get("message") or data.get("reason")))
            words = f"not compacted: {why}"
        else:
            before, after = (tokens_text(data.get(which) or 0) for which in ("before", "after"))
            words = f"compacted: {before} -> {after} tokens"
        if data.get("turn") is None and not self.progress:
            return [*self._flush_answer(), self._rule(words), ""]
        line = self._cut(f"  ({words})")
        if data.get("turn") is not None and not self._opened and not self.progress:
            self._early.append(line)
            return []
        return [*self._flush_answer(), line]

    def _rejected(self, data: Json, time: int) -> list[str]:
        reason = f": {data['reason']}" if data.get("reason") else ""
        lines = [] if self._opened else self._heading(self._started or time, f"rejected by {data.get('by')}")
        return [*lines, f"> {times.clock(time, self.now())} rejected by {data.get('by')}{reason}"]

    def _hook(self, data: Json, time: int) -> list[str]:
        """Of hooks only what went wrong, and what they have to say to a person."""
        name, words = f"hook {data.get('hook')}", [data.get("says"), data.get("remark")]
        if data.get("outcome") == "failed":
            name, words = f"{name} ({data.get('event')}) failed", [data.get("reason")]
        lines = [self._cut(f"  ({name}: {one_line(str(word))})") for word in words if word]
        if self.turn is None or self._opened or self.progress:
            return lines
        self._early += lines
        return []

    def _asked(self, data: Json, time: int) -> list[str]:
        return [self._cut(f"  ? {data.get('id')} asks: {one_line(str(data.get('what') or ''))}")]

    def _answered(self, data: Json, time: int) -> list[str]:
        word = _ANSWERS.get(str(data.get("answer")), str(data.get("answer")))
        by = data.get("by") or {}
        whose = f" by {you(by)}" if by.get("kind") != "system" else ""
        why = f": {one_line(str(data['reason']))}" if data.get("reason") else ""
        return [self._cut(f"  ? {times.clock(time, self.now())} {data.get('id')} {word}{whose}{why}")]

    def _aborting(self, data: Json, time: int) -> list[str]:
        self._abort, self._abort_at = data, time
        return []

    def _spliced(self, data: Json, time: int) -> list[str]:
        """An interrupt is a send that stops the turn; the first cause wins."""
        if data.get("interrupts") is not None and self._abort is None:
            self._abort, self._abort_at = {**data, "cause": "interrupt"}, time
        return []

    def _turn_end(self, data: Json, time: int) -> list[str]:
        if self.progress and data.get("reason") == "completed":
            self._answer = []
        lines = self._flush_answer()
        if self.progress:
            return lines
        if not self._opened:
            self.turn = data.get("turn")
            lines += self._heading(self._started or time, "nothing entered")
        lines += [self._rule(self._ending(data, time)), ""]
        self.turn = None
        return lines

    def _ending(self, data: Json, time: int) -> str:
        parts = [self._reason(data)]
        if self._step:
            parts.append(count(self._step, "step"))
        if self._started:
            parts.append(times.age(int(data.get("ended_at") or time) - self._started))
        return ", ".join(parts + self._spent(data.get("usage") or {}))

    def _spent(self, usage: Json) -> list[str]:
        tokens = tokens_of(usage) or self._tokens
        return ([f"{tokens_text(tokens)} tokens"] if tokens else []) + cost_parts(usage)

    def _reason(self, data: Json) -> str:
        reason, error = str(data.get("reason")), data.get("error") or {}
        if reason == "aborted" and self._abort:
            parked = f" ({data['parked']} parked)" if data.get("parked") else ""
            return f"{self._stopped(self._abort)}{parked}"
        words = budget_words(data.get("budget")) if reason == "budget" else _REASONS.get(reason, reason)
        if data.get("recovery"):
            words += f" ({_DEATHS.get(str(data.get('cause')), 'dshd ended before it could close it')})"
        return f"{words}: {one_line(str(error['message']))}" if error.get("message") else words

    def _stopped(self, abort: Json) -> str:
        at = times.clock(self._abort_at, self.now())
        if abort.get("reason") == wire.GONE:
            return f"aborted at {at}: its client, to which it was tied, went away"
        verb = "interrupted" if abort.get("cause") == "interrupt" else "aborted"
        why = f": {one_line(str(abort['reason']))}" if abort.get("reason") else ""
        return f"{verb} by {you(abort.get('by'))} at {at}{why}"

    def _gap(self, data: Json, time: int) -> list[str]:
        where = f", kept in {data['file']}" if data.get("file") else ""
        # Lines count from 1, as fsck counts them; events from 0.
        first, last = int(data.get("first") or 0) + 1, int(data.get("last") or 0) + 1
        lines = f"line {first} was" if first == last else f"lines {first}-{last} were"
        return [*self._flush_answer(), self._rule(f"{lines} damaged{where}"), ""]

    def _forked(self, data: Json, time: int) -> list[str]:
        words = f"forked from {data.get('session')} at event {data.get('seq')}"
        return [*self._flush_answer(), self._rule(words), ""]

    def _imported(self, data: Json, time: int) -> list[str]:
        words = f"imported {times.moment(time, self.now())} by {you(data.get('by'))}"
        return [*self._flush_answer(), self._rule(words), ""]

    # Text.

    def _prose(self, text: str, first: str, rest: str | None = None) -> list[str]:
        """Text with its lines wrapped, but for those in fences; ``first`` stands before the first line."""
        rest = first if rest is None else rest
        lines: list[str] = []
        fenced = False
        for line in text.split("\n"):
            start = rest if lines else first
            fence = line.lstrip().startswith("```")
            fenced ^= fence
            lines += [start + line] if fenced or fence else self._wrap(line, start, rest)
        return [line.rstrip() for line in lines]

    def _wrap(self, line: str, first: str, rest: str) -> list[str]:
        if width(first + line) < self.columns:
            return [first + line]
        indent = " " * (len(line) - len(line.lstrip()))
        wrapped = textwrap.wrap(
            line.strip(), max(20, self.columns - 1),
            initial_indent=first + indent, subsequent_indent=rest + indent,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        return wrapped or [first]


_HANDLERS: Final[dict[str, Callable[[Chat, Json, int], list[str]]]] = {
    "turn/start": Chat._turn_start,
    "turn/end": Chat._turn_end,
    "step/start": Chat._step_start,
    "step/rejected": Chat._rejected,
    "hook/ran": Chat._hook,
    "user/message": Chat._user_message,
    "assistant/message": Chat._assistant,
    "tool/result": Chat._result,
    "llm/retry": Chat._retry,
    "compaction/end": Chat._compacted,
    "approval/asked": Chat._asked,
    "approval/answered": Chat._answered,
    "abort/requested": Chat._aborting,
    "inbox/spliced": Chat._spliced,
    "log/gap": Chat._gap,
    "session/forked": Chat._forked,
    "session/imported": Chat._imported,
}

_ANSWERS: Final = {"allow": "allowed", "deny": "denied"}
_SAID: Final = {"steer": "steered", "inject": "told it", "followup": "asked", "interrupt": "interrupted"}
_DEATHS: Final = {"import": "it was exported while it ran"}
_REASONS: Final = {
    "error": "ended in an error",
    "max-tokens": "ran into the output limit",
    "blocked": "blocked",
}
