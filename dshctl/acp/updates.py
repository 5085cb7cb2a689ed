"""Events of a log as ``session/update``.

What streamed is told as it comes, and the message that stands in the log afterwards only where it says
something else. A tool call is told when the model has asked for it (``pending``), when it begins
(``in_progress``) and when its result is there. With ``replays`` what people said is told, too: an editor
that loads a session knows none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any, Final

from dshctl import approvals
from dshctl.excerpts import call_line, text_of

Json = dict[str, Any]
MOST: Final = 20_000  # characters of a result that an editor is shown
KINDS: Final = {
    "bash": "execute", "read": "read", "write": "edit", "edit": "edit", "glob": "search", "grep": "search",
    "fetch": "fetch", "todo": "think",
}  # fmt: skip
STATES: Final = {"pending": "pending", "active": "in_progress", "done": "completed"}


class Updates:
    """One session's. ``dir`` is the session's directory; ``ended`` the last turn whose end was told."""

    def __init__(self, dir: str) -> None:
        self._dir = dir
        self._texts: dict[int, str] = {}  # {block: what streamed of it}
        self._calls: dict[str, Json] = {}  # {id: the call, as it was told last}
        self.ended = 0
        self.replays = False

    def feed(self, event: Json) -> list[Json]:
        """The updates that this event makes."""
        handler = _HANDLERS.get(str(event.get("type")))
        hidden = event.get("surface") not in (None, "append")  # a summary, for the model
        return [] if handler is None or hidden else list(handler(self, event.get("data") or {}))

    def call(self, approval: Json, session: str) -> Json:
        """The tool call that an approval is about, as much as is known of it; that of a subagent is none of
        ``session``'s own."""
        own = approval.get("session") == session
        id = str(approval.get("call")) if own else f"{approval.get('session')}:{approval.get('call')}"
        text = "\n".join(approvals.body(approval))
        known = self._calls.get(id) or {
            "toolCallId": id, "title": str(approval.get("what") or approval.get("tool")),
            "kind": KINDS.get(str(approval.get("tool")), "other"), "status": "pending",
        }  # fmt: skip
        return {**known, "content": known.get("content") or [_content(text)]}

    def reset(self) -> None:
        self._texts.clear()

    def _chunks(self, data: Json) -> Iterator[Json]:
        for chunk in data.get("chunks") or ():
            told = _STREAMS.get(str(chunk.get("type")))
            if told is not None and chunk.get("text"):
                index = int(chunk.get("index") or 0)
                self._texts[index] = self._texts.get(index, "") + chunk["text"]
                yield _message(told, chunk["text"])

    def _retry(self, data: Json) -> Iterator[Json]:
        self._texts.clear()
        return iter(())

    def _said(self, data: Json) -> Iterator[Json]:
        source = data.get("source") or {}
        if self.replays and source.get("via") != "context" and source.get("kind") != "system":
            yield _message("user_message_chunk", text_of(data))

    def _assistant(self, data: Json) -> Iterator[Json]:
        streamed = list(self._texts.values())
        self._texts.clear()
        for block in data.get("content") or ():
            kind, text = block.get("type"), str(block.get("text") or "")
            if kind == "tool-call":
                yield self._asked(block)
            elif text in streamed:
                streamed.remove(text)
            elif text.strip() and kind in _BLOCKS:
                yield _message(_BLOCKS[kind], text)

    def _asked(self, block: Json) -> Json:
        id, name = str(block.get("id")), str(block.get("name"))
        arguments = _arguments(block.get("arguments"))
        call: Json = {
            "toolCallId": id, "title": call_line(name, str(block.get("arguments") or "")) or name,
            "kind": KINDS.get(name, "other"), "status": "pending", "rawInput": arguments,
        }  # fmt: skip
        path = arguments.get("path")
        if isinstance(path, str) and path:
            call["locations"] = [{"path": os.path.join(self._dir, path)}]
        diff = self._diff(name, arguments)
        self._calls[id] = {**call, "content": [diff]} if diff else call
        return {"sessionUpdate": "tool_call", **self._calls[id]}

    def _diff(self, name: str, arguments: Json) -> Json | None:
        """What an edit or a write is about to do, as editors show it."""
        old, new = {"edit": ("old_string", "new_string"), "write": (None, "content")}.get(name, (None, None))
        path = arguments.get("path")
        if new is None or not isinstance(path, str) or not isinstance(arguments.get(new), str):
            return None
        before = arguments.get(old) if old else None
        return {
            "type": "diff",
            "path": os.path.join(self._dir, path),
            "oldText": before,
            "newText": arguments[new],
        }

    def _begun(self, data: Json) -> Iterator[Json]:
        if data.get("call") in self._calls:
            yield {"sessionUpdate": "tool_call_update", "toolCallId": data["call"], "status": "in_progress"}

    def _result(self, data: Json) -> Iterator[Json]:
        call = self._calls.pop(str(data.get("call")), None)
        if call is None:
            return
        text = text_of(data)
        shown = text if len(text) <= MOST else f"{text[:MOST]}\n[... {len(text) - MOST} characters more]"
        failed = bool(data.get("is_error"))
        diffs = [one for one in call.get("content") or () if not failed]
        yield {
            "sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"],
            "status": "failed" if failed else "completed", "content": diffs or [_content(shown)],
        }  # fmt: skip

    def _plan(self, data: Json) -> Iterator[Json]:
        entries = [
            {"content": str(item.get("text")), "priority": "medium",
             "status": STATES.get(str(item.get("state")), "pending")}
            for item in data.get("items") or ()
        ]  # fmt: skip
        yield {"sessionUpdate": "plan", "entries": entries}

    def _changed(self, data: Json) -> Iterator[Json]:
        mode = (data.get("values") or data).get("mode")
        if mode:
            yield {"sessionUpdate": "current_mode_update", "currentModeId": mode}

    def _end(self, data: Json) -> Iterator[Json]:
        self._texts.clear()
        self._calls.clear()
        self.ended = int(data.get("turn") or 0)
        return iter(())


_HANDLERS: Final[dict[str, Callable[[Updates, Json], Iterator[Json]]]] = {
    "assistant/chunk": Updates._chunks,
    "assistant/message": Updates._assistant,
    "llm/retry": Updates._retry,
    "user/message": Updates._said,
    "tool/call": Updates._begun,
    "tool/result": Updates._result,
    "todo/write": Updates._plan,
    "session/changed": Updates._changed,
    "turn/end": Updates._end,
}
_STREAMS: Final = {"text-delta": "agent_message_chunk", "reasoning-delta": "agent_thought_chunk"}
_BLOCKS: Final = {"text": "agent_message_chunk", "reasoning": "agent_thought_chunk"}


def _message(update: str, text: str) -> Json:
    return {"sessionUpdate": update, "content": {"type": "text", "text": text}}


def _content(text: str) -> Json:
    return {"type": "content", "content": {"type": "text", "text": text}}


def _arguments(raw: Any) -> Json:
    try:
        found = json.loads(str(raw or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
