"""Where a conversation is cut when it grows too large, and what may stand for its older part. Sans-IO.

Rules:

- **The newest stays.** At least `KEEP` of the window is kept as it is, always the newest message and what
  it belongs to. Where the conversation may be cut is a matter of calls alone: behind a call there is no cut
  until its result is there (`balanced`), whatever was said in between.
- **Results first.** What old tool calls printed is seldom needed again: of a result that is longer than
  `LONG_RESULT` its head and tail are kept. Often that is enough, and no model is asked. Of new results, too,
  but only if the window was exceeded with them.
- **One summary.** All that is older than the cut becomes one message. The model that is asked for it gets the
  very request that it has seen already (system prompt, tools, messages), up to the cut, and the instruction
  after it: so a provider's cache holds.
- **It must pay.** A summary that isn't smaller than what it stands for is refused; by itself a compaction
  begins only if it frees at least `WORTH` of the window.
- **It ends.** A summary is asked for `ATTEMPTS` times at most, each time of less if it was too much, and it
  fails for a reason that a person can read. Then nothing has changed.

Sizes are tokens, estimated, and corrected by what the provider reported (`session.compactions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from dshd.model.errors import ModelError
from dshd.prompt.tokens import estimate, estimate_message
from dshd.session.fold.events import text_block
from dshd.session.fold.surface import Entry

THRESHOLD: Final = 0.8  # of the window: a request that would be larger is compacted before it is sent
KEEP: Final = 0.16
WORTH: Final = 0.1
ATTEMPTS: Final = 3
LEAST: Final = 250  # tokens: less is not worth a summary, whoever asks
LONG_RESULT: Final = 8 * 1024  # bytes of a block's text
HEAD: Final = 4 * 1024  # of those, what is kept
TAIL: Final = 1024
PRUNED: Final = "[... {left} bytes were left out here when the conversation was compacted ...]"

INSTRUCTION: Final = (
    "Notice from dshd: the conversation has grown too long for your context window. What you answer now takes"
    " the place of everything above this line; you will go on with it and what came after. Write down what"
    " you need for that, as short lines under these headings; leave out a heading that has nothing:\n"
    "## Task: what people asked for, in their own words where these matter, with every later correction\n"
    "## Done: what was done, what was decided, and why\n"
    "## Files and commands: names and paths, exactly, and what is in them that matters\n"
    "## Problems: what failed, how it was solved, what is still broken\n"
    "## Open: what remains to be done, and the very next step\n"
    "If there is a summary of something earlier above, take over what still holds. Call no tool, answer"
    " nobody, and write nothing besides these lines."
)
PREAMBLE: Final = (
    "Notice from dshd: what was said and done before this was summed up to make room. It is background: go on"
    " from here, and don't answer it."
)


class Refused(Exception):
    """There is no summary to be used; the text says why."""


# --- cuts ------------------------------------------------------------------------------------------


def balanced(entries: Iterable[Entry]) -> list[int]:
    """Where the surface may be cut: before these indexes, 0 and the end not among them.

    A newer answer closes what an older one left open: it will have no results any more.
    """
    waits: set[str] = set()
    found = []
    for index, entry in enumerate(entries):
        if index and not waits:
            found.append(index)
        if entry.type == "assistant/message":
            waits = {str(b["id"]) for b in entry.data["content"] if b.get("type") == "tool-call"}
        elif entry.type == "tool/result":
            waits.discard(str(entry.data["call"]))
    return found


def kept_from(sizes: Sequence[int], keep: int) -> int:
    """The index from which on at least ``keep`` tokens stand, never less than the newest message."""
    total, at = 0, len(sizes)
    while at > 0 and (total < keep or at == len(sizes)):
        at -= 1
        total += sizes[at]
    return at


def cut(sizes: Sequence[int], places: Sequence[int], keep: int, most: int | None = None) -> int | None:
    """The newest of ``places`` that keeps at least ``keep`` tokens behind it, with at most ``most`` before
    it; None if there is none."""
    newest, before = kept_from(sizes, keep), [0]
    for size in sizes:
        before.append(before[-1] + size)
    fit = (at for at in reversed(places) if at <= newest and (most is None or before[at] <= most))
    return next(fit, None)


# --- old results -----------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Pruning:
    """A `tool/result` as it is to stand instead of ``entry``; ``data`` is all of it."""

    entry: Entry
    data: Mapping[str, Any]


def pruned(entries: Sequence[Entry], end: int) -> list[Pruning]:
    """The oversized results among the first ``end`` entries, cut short. Doing it twice changes nothing."""
    found = []
    for entry in entries[:end]:
        if entry.type == "tool/result":
            content = [_shortened(block) for block in entry.data["content"]]
            if content != list(entry.data["content"]):
                found.append(Pruning(entry, {**entry.data, "content": content, "pruned": True}))
    return found


def _shortened(block: Mapping[str, Any]) -> Mapping[str, Any]:
    raw = str(block.get("text", "")).encode("utf-8", "replace") if block.get("type") == "text" else b""
    if len(raw) <= LONG_RESULT:
        return block
    head, tail = raw[:HEAD].decode("utf-8", "ignore"), raw[-TAIL:].decode("utf-8", "ignore")
    return {**block, "text": f"{head}\n{PRUNED.format(left=len(raw) - HEAD - TAIL)}\n{tail}"}


# --- the summary -----------------------------------------------------------------------------------


def asking(instruction: str) -> dict[str, Any]:
    """The last message of a request for a summary (see `model.request`)."""
    return {
        "role": "user",
        "content": [text_block(instruction)],
        "verb": None,
        "source": {"kind": "system", "via": "compaction"},
    }


def framed(summary: str) -> list[dict[str, Any]]:
    """The blocks of the message that stands for what was summed up."""
    return [text_block(f"{PREAMBLE}\n\n<summary>\n{summary.strip()}\n</summary>")]


def summary_of(content: Sequence[Mapping[str, Any]], finish: str | None) -> str:
    """The summary in an answer. Raises `Refused`, and `ModelError` for one that a filter stopped."""
    if finish == "content-filter":
        raise ModelError("CONTENT_FILTERED", "the provider's content filter stopped the summary")
    if finish == "max-tokens":
        raise Refused("the summary was longer than the model may answer")
    text = "\n".join(str(b.get("text", "")).strip() for b in content if b.get("type") == "text").strip()
    if not text:
        tools = any(block.get("type") == "tool-call" for block in content)
        raise Refused("the model called tools instead of summing up" if tools else "the summary was empty")
    return text


def size_of(content: Sequence[Mapping[str, Any]]) -> int:
    return estimate_message({"content": content})


def check_smaller(content: Sequence[Mapping[str, Any]], hidden: int) -> None:
    """Raises `Refused` unless the message is smaller than the ``hidden`` tokens that it is to stand for."""
    size = size_of(content)
    if size >= hidden:
        raise Refused(f"the summary is not smaller ({size:,} tokens instead of {hidden:,})")


# --- how much --------------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Measure:
    """A conversation as it is about to be sent. ``around``: system prompt, tools and what is said with it;
    ``sizes``: of the messages, in order; both as estimated. ``window`` and ``answer`` in the model's own
    tokens, None where nobody knows; ``factor`` makes the first into the second."""

    sizes: Sequence[int]
    around: int
    window: int | None
    answer: int
    factor: float = 1.0

    @property
    def total(self) -> int:
        """Of the whole request, in the model's tokens."""
        return self.real(self.around + sum(self.sizes))

    def real(self, estimated: int) -> int:
        return round(estimated * self.factor)

    @property
    def full(self) -> bool:
        """Whether it can't be sent."""
        return self.window is not None and self.total + min(self.answer, self.window // 4) > self.window

    @property
    def over(self) -> bool:
        """Whether it is larger than it should be."""
        return self.window is not None and self.total >= THRESHOLD * self.window

    def keep(self, surely: bool) -> int:
        """Estimated tokens that must stay. ``surely``: below the threshold, too, for somebody asked, or the
        provider says that this is too much for a window smaller than we know: then at most half of what there
        is stays."""
        window = self.window or self.total
        most = sum(self.sizes) // 2 if surely and not self.over else sum(self.sizes)
        return min(round(KEEP * window / self.factor), most)

    def room(self) -> int | None:
        """Estimated tokens of messages that a request for a summary may hold."""
        if self.window is None:
            return None
        free = (self.window - min(self.answer, self.window // 4)) / self.factor
        return max(0, int(free) - self.around - estimate(INSTRUCTION))

    def worth(self, freed: int) -> bool:
        """Whether so many estimated tokens are worth a call that nobody asked for."""
        return self.window is None or self.real(freed) >= WORTH * self.window
