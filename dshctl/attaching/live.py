"""Events to lines while they come, with the text that streams.

A streamed line is given out as soon as it is whole, or as soon as a row of it is full; the rest of it is
`tail`, which grows. The message that stands in the log afterwards is not told again if it is what streamed,
word for word; if it isn't, all of it is.
"""

from __future__ import annotations

from typing import Any, Final

from dshctl.chat import Chat

Json = dict[str, Any]
INDENT: Final = "  "
_TELLING: Final = ("request/sent", "step/start", "assistant/chunk")


class LiveChat(Chat):
    """`Chat`, with ``assistant/chunk`` events. ``asks``: approvals are asked elsewhere, not told here."""

    def __init__(self, columns: int, *, asks: bool = False, **more: Any) -> None:
        super().__init__(columns, **more)
        self._asks = asks
        self._texts: dict[int, str] = {}  # {block: its text, as it streamed}
        self._block_now = -1
        self._line = ""  # what is not given out yet
        self._blank = 0  # empty lines that are only told if something follows them
        self._fence = False

    @property
    def tail(self) -> str:
        """The row that grows; empty when nothing streams."""
        return INDENT + self._line if self._line.strip() else ""

    def feed(self, event: Json) -> list[str]:
        kind, data = event.get("type"), event.get("data") or {}
        if kind == "approval/asked" and self._asks:
            return self._finish()
        if kind in _TELLING:
            before = [*self._flush_first(), *self._early] if self._first else []
            self._early = [] if before else self._early
            return before + (self._chunks(data) if kind == "assistant/chunk" else super().feed(event))
        lines = self._finish()
        if kind == "assistant/message":
            event = {**event, "data": {**data, "content": self._untold(data.get("content") or [])}}
        if kind in ("assistant/message", "llm/retry", "step/end", "turn/end"):
            self._texts.clear()
        return lines + super().feed(event)

    def reset(self) -> list[str]:
        """What followed was withdrawn."""
        lines = self._finish()
        self._texts.clear()
        return lines

    def end(self, stopped: bool = False) -> list[str]:
        return self._finish() + super().end(stopped)

    def _untold(self, content: list[Json]) -> list[Json]:
        told = list(self._texts.values())
        left = []
        for block in content:
            if block.get("type") == "text" and block.get("text") in told:
                told.remove(str(block["text"]))
            else:
                left.append(block)
        return left

    def _chunks(self, data: Json) -> list[str]:
        lines: list[str] = []
        for chunk in data.get("chunks") or ():
            if chunk.get("type") == "text-delta":
                lines += self._delta(int(chunk["index"]), str(chunk["text"]))
        return lines

    def _delta(self, index: int, text: str) -> list[str]:
        lines = self._finish() if index != self._block_now else []
        self._block_now = index
        self._texts[index] = self._texts.get(index, "") + text
        *whole, rest = (self._line + text).split("\n")
        for line in whole:
            lines += self._whole(line)
        self._line = rest
        return lines + self._full_rows()

    def _whole(self, line: str) -> list[str]:
        self._line = ""
        if not line.strip():
            self._blank += bool(self._told)
            return []
        fence = line.lstrip().startswith("```")
        self._fence ^= fence
        return self._telling([INDENT + line] if fence or self._fence else self._wrap(line, INDENT, INDENT))

    _told = False  # whether this block has given out a line

    def _telling(self, rows: list[str]) -> list[str]:
        blank, self._blank, self._told = self._blank, 0, True
        return [""] * blank + [row.rstrip() for row in rows]

    def _full_rows(self) -> list[str]:
        """Rows that can't change any more, for words are only ever added."""
        if self._fence or self._line.lstrip().startswith("`"):
            return []
        rows = self._wrap(self._line, INDENT, INDENT)
        if len(rows) < 2:
            return []
        last = rows[-1].strip()
        self._line, line = "", self._line
        indent = line[: len(line) - len(line.lstrip())]
        self._line = indent + line[line.rstrip().rindex(last) :]
        return self._telling(rows[:-1])

    def _finish(self) -> list[str]:
        """No more of this block comes."""
        line, self._line = self._line, ""
        rows = self._whole(line) if line.strip() else []
        self._blank, self._told, self._fence, self._block_now = 0, False, False, -1
        return rows
