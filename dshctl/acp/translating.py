"""What an editor asks, and how it ended, in the other side's words."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote, urlsplit

from dshctl import sentences
from dshd import wire
from dshd.errors import DshError, Full, Invalid

Json = dict[str, Any]

# {how a message or its turn ended: why the agent stopped}; all others are errors.
STOPS: Final = {
    "completed": "end_turn",
    "max-tokens": "max_tokens",
    "budget": "max_turn_requests",
    "blocked": "refusal",
    "rejected": "refusal",
    "aborted": "cancelled",
    "removed": "cancelled",
    "cleared": "cancelled",
    "superseded": "cancelled",
    "expired": "cancelled",
}
MODES: Final = (
    ("read-only", "Read only", "Looks, and changes nothing."),
    ("workspace", "Workspace", "Writes in the session's directory; commands are sandboxed."),
    ("full", "Full", "Whatever you may do."),
)
# What a permission's option answers: {option: (kind, name, answer, scope)}.
OPTIONS: Final[dict[str, tuple[str, str, str, str]]] = {
    "once": ("allow_once", "Allow", "allow", "once"),
    "session": ("allow_always", "Allow for this session", "allow", "session"),
    "deny": ("reject_once", "Deny", "deny", "once"),
}


def content(blocks: Any) -> list[Json]:
    """A prompt's blocks as those of a message. Raises `Invalid`, `Full`."""
    if not isinstance(blocks, list) or not blocks:
        raise Invalid("a prompt is a list of blocks @ $.prompt")
    texts = [_text(block) for block in blocks if isinstance(block, dict)]
    if sum(len(text.encode("utf-8", "replace")) for text in texts) > wire.MAX_INLINE:
        raise Full("not sent: the prompt is over 1 MiB", outcome="not-written")
    if not any(text.strip() for text in texts):
        raise Invalid("the prompt is empty @ $.prompt")
    return [{"type": "text", "text": text} for text in texts if text.strip()]


def _text(block: Json) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text") or "")
    if kind == "resource_link":
        return f"See {_place(block.get('uri'))}"
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return f"{_place(resource.get('uri'))}, as it is in the editor:\n{resource['text']}"
    raise Invalid(
        f"a block of type {kind!r} is not taken: text, resource_link or resource with text @ $.prompt"
    )


def _place(uri: Any) -> str:
    """``the file /a/b``, or an address as it is."""
    parts = urlsplit(str(uri))
    if parts.scheme == "file":
        lines = f" ({parts.fragment})" if parts.fragment else ""
        return f"the file {unquote(parts.path)}{lines}"
    return str(uri)


def stop(result: Json) -> str:
    """Why the agent stopped. Raises `DshError` for what an editor shows as an error."""
    outcome = str(result.get("outcome"))
    if outcome in STOPS:
        return STOPS[outcome]
    raise DshError(sentences.ended(result))


def modes(current: str) -> Json:
    """The modes of a session, for `session/new` and `session/load`."""
    return {
        "currentModeId": current,
        "availableModes": [{"id": id, "name": name, "description": does} for id, name, does in MODES],
    }


def permission(session: str, call: Json) -> Json:
    """The parameters of a ``session/request_permission``; ``call`` is what is known of the tool call."""
    options = [{"optionId": id, "name": name, "kind": kind} for id, (kind, name, _, _) in OPTIONS.items()]
    return {"sessionId": session, "toolCall": call, "options": options}


def answered(id: str, result: Json | None) -> wire.ApprovalAnswerParams | None:
    """What the person chose; None if nothing (the editor cancels the turn by itself)."""
    outcome = (result or {}).get("outcome")
    chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
    if chosen not in OPTIONS:
        return None
    _, _, answer, scope = OPTIONS[str(chosen)]
    given: Any = {"answer": answer, "scope": scope}
    return wire.ApprovalAnswerParams(id=id, **given)
