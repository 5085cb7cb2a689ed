"""What a hook reads: one JSON object, with our names and those of existing agents side by side.

| event         | hook_event_name  | what is theirs                                                    |
|---------------|------------------|-------------------------------------------------------------------|
| session_start | SessionStart     | source                                                            |
| pre_step      | UserPromptSubmit | prompt                                                            |
| pre_tool      | PreToolUse       | tool_name, tool_input, tool_use_id                                |
| post_tool     | PostToolUse      | the same, tool_response                                           |
| turn_stopping | Stop             | stop_hook_active, last_assistant_message                          |
| turn_end      | TurnEnd          | (they have none)                                                  |
| attention     | Notification     | message, title, notification_type                                 |

Their scripts look for their tools: ``tool_name`` is ``Bash`` for our bash, and ``tool_input`` has a
``file_path`` beside our ``path``. Ours are in ``tool`` and ``arguments``, as called.

Sans-IO.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from dshd.config.hooks import EVENTS

Json = dict[str, Any]

FOREIGN: Final = EVENTS
TOOLS: Final = {
    "bash": "Bash", "read": "Read", "write": "Write", "edit": "Edit", "glob": "Glob", "grep": "Grep",
    "todo": "TodoWrite", "agent": "Task", "fetch": "WebFetch",
}  # fmt: skip
_ON_A_FILE: Final = frozenset(("read", "write", "edit"))
_MODES: Final = {"read-only": "plan", "full": "bypassPermissions"}


@attrs.frozen(slots=True, kw_only=True)
class About:
    """The session that a hook is run for. ``log`` is the path of its log."""

    session: str = ""
    name: str = ""
    dir: str = "/"
    mode: str = "workspace"
    log: str = ""
    turn: int | None = None
    step: int | None = None


def payload(event: str, about: About, **more: Any) -> Json:
    """What every event has, and ``more``."""
    return {
        "event": event,
        "hook_event_name": FOREIGN[event],
        "session": about.session,
        "session_id": about.session,
        "name": about.name,
        "dir": about.dir,
        "cwd": about.dir,
        "mode": about.mode,
        "permission_mode": _MODES.get(about.mode, "default"),
        "transcript_path": about.log,
        "turn": about.turn,
        "step": about.step,
        **more,
    }


def of_step(messages: Sequence[Mapping[str, Any]], prompt: str) -> Json:
    return {"messages": list(messages), "prompt": prompt}


def of_call(id: str, tool: str, arguments: Mapping[str, Any]) -> Json:
    theirs = dict(arguments)
    if tool in _ON_A_FILE and "path" in theirs:
        theirs.setdefault("file_path", theirs["path"])
    return {
        "call": id,
        "tool": tool,
        "arguments": dict(arguments),
        "tool_name": TOOLS.get(tool, tool),
        "tool_input": theirs,
        "tool_use_id": id,
    }


def of_result(text: str, is_error: bool) -> Json:
    return {
        "result": text,
        "is_error": is_error,
        "tool_response": {"content": text, "is_error": is_error, "stdout": text},
    }


def of_stopping(steps: int, answer: str, again: bool) -> Json:
    return {"steps": steps, "answer": answer, "stop_hook_active": again, "last_assistant_message": answer}


def of_end(reason: str, cause: str | None, answer: str, again: bool) -> Json:
    return {"reason": reason, "cause": cause, "answer": answer, "again": again}


def of_notice(kind: str, cause: str, text: str) -> Json:
    theirs = "permission_prompt" if kind == "approval" else kind
    return {"kind": kind, "cause": cause, "text": text, "message": text, "title": "dshd",
            "notification_type": theirs}  # fmt: skip


def written(found: Mapping[str, Any]) -> bytes:
    """As it goes to stdin: one line."""
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
