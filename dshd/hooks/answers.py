"""What a hook's end means.

| it ended with            | that is                                                    |
|--------------------------|------------------------------------------------------------|
| exit 0, nothing on stdout| a pass                                                     |
| exit 0, a JSON object    | what the object says                                       |
| exit 2                   | a block; stderr is the reason, stdout is not looked at     |
| anything else            | a failure: told, and as good as a pass unless it must block|

Of the object, our members are ``decision`` (reject, defer), ``reason``, ``for``, ``messages``; those of
existing agents ``decision`` (approve, block), ``continue``, ``stopReason``, ``systemMessage``,
``hookSpecificOutput``. Members that we don't know are ignored, as those agents do; a known one with a value
that can't be used makes the whole answer a failure, for half an answer may be the wrong half.

Sans-IO.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

from dshd import nesting
from dshd.errors import Invalid
from dshd.tools.tool import clean
from dshd.wire import parse_duration

Outcome = Literal["passed", "blocked", "deferred", "failed"]

LONGEST_ANSWER: Final = 64 * 1024  # bytes of stdout
LONGEST_REASON: Final = 8 * 1024  # characters
_DECISIONS: Final[dict[str, Outcome]] = {
    "pass": "passed", "approve": "passed", "allow": "passed",
    "reject": "blocked", "block": "blocked", "deny": "blocked", "defer": "deferred",
}  # fmt: skip


@attrs.frozen(slots=True, kw_only=True)
class Ended:
    """How a hook's process ended. ``failure``: why it never ran, or was ended, as a clause."""

    exit: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    failure: str | None = None
    cut: bool = False


@attrs.frozen(slots=True, kw_only=True)
class Answer:
    """What a hook wants. ``reason`` is for a person, and for the model where a call is refused.

    ``seconds``: for how long it defers; None: it did not say. ``messages``: ``{content, id?}`` each, to be
    added, or to stand for the message of that id; ``ids``: of messages, where it blocks. ``context``: texts
    that the model is to have. ``stop``: the turn is to end, and why. ``ask``: a person is to be asked.
    ``says``: for a person. ``remark``: what of the answer could not be carried out.
    """

    outcome: Outcome
    reason: str = ""
    seconds: float | None = 0.0
    messages: tuple[Mapping[str, Any], ...] = ()
    ids: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    stop: str | None = None
    ask: bool = False
    says: str | None = None
    remark: str | None = None


class Unusable(ValueError):
    """``str()`` is a clause that says what of the answer can't be used."""


def answer_of(ended: Ended, foreign_event: str) -> Answer:
    """What the hook wants. ``foreign_event`` is the event's name in the other format."""
    if ended.failure is not None:
        return failed(ended.failure)
    if ended.exit == 2:
        return Answer(outcome="blocked", reason=_text(ended.stderr) or "it gave no reason")
    if ended.exit != 0:
        said = _text(ended.stderr).rpartition("\n")[2]
        return failed(f"exit {ended.exit}" + (f": {said[:300]}" if said else ""))
    try:
        return _said(_object(ended), foreign_event)
    except Unusable as unusable:
        return failed(str(unusable))


def failed(why: str) -> Answer:
    return Answer(outcome="failed", reason=why)


def _text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\0", "\ufffd").strip()[:LONGEST_REASON]


def _object(ended: Ended) -> Mapping[str, Any]:
    if ended.cut:
        raise Unusable(f"it answered more than {LONGEST_ANSWER // 1024} KiB")
    if not ended.stdout.strip():
        return {}
    try:
        found = nesting.loads(ended.stdout)
    except ValueError:
        raise Unusable("its answer is not JSON") from None
    if not isinstance(found, dict):
        raise Unusable("its answer is not a JSON object")
    return found


def _said(found: Mapping[str, Any], foreign_event: str) -> Answer:
    specific = found.get("hookSpecificOutput")
    own = specific if isinstance(specific, dict) and specific.get("hookEventName") == foreign_event else {}
    outcome, ask = _decision(found, own)
    given = _member(found, "messages", list) or ()
    blocks = outcome == "blocked"
    stops = found.get("continue") is False
    context = _member(own, "additionalContext", str)
    remark = "it can't change what a tool is called with" if own.get("updatedInput") is not None else None
    return Answer(
        outcome=outcome,
        reason=_reason(found, own),
        seconds=_seconds(found) if outcome == "deferred" else 0.0,
        messages=() if blocks else tuple(map(_message, given)),
        ids=tuple(map(_id, given)) if blocks else (),
        context=(context,) if context and context.strip() else (),
        stop=(_member(found, "stopReason", str) or "a hook asked for it") if stops else None,
        ask=ask,
        says=_member(found, "systemMessage", str),
        remark=remark,
    )


def _message(given: Any) -> Mapping[str, Any]:
    """A text, or an object with ``text`` or ``content`` and perhaps an ``id``."""
    found: Any = {"text": given} if isinstance(given, str) else given
    if not isinstance(found, dict):
        raise Unusable("one of its messages is neither a text nor an object")
    text, content, id = (_member(found, name, kind) for name, kind in _OF_A_MESSAGE)
    texts = [text] if content is None else [_text_of(block) for block in content]
    if not any(text and text.strip() for text in texts):
        raise Unusable("one of its messages says nothing")
    blocks = [{"type": "text", "text": text} for text in texts]
    return {"content": blocks, **({"id": id} if id else {})}


def _text_of(block: Any) -> str:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    if not isinstance(text, str):
        raise Unusable("one of its messages holds something else than text")
    return clean(text)


_OF_A_MESSAGE: Final = (("text", str), ("content", list), ("id", str))


def _id(given: Any) -> str:
    found = given.get("id") if isinstance(given, dict) else given
    if not isinstance(found, str):
        raise Unusable("what it rejects is not named by ids")
    return found


def _decision(found: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[Outcome, bool]:
    """The stricter of the two places where a decision may stand; and whether a person is to be asked."""
    words = [_member(found, "decision", str), _member(own, "permissionDecision", str)]
    said = [word for word in words if word is not None]
    outcomes = {_outcome(word) for word in said if word != "ask"}
    if "blocked" in outcomes:
        return "blocked", False
    return ("deferred", False) if "deferred" in outcomes else ("passed", "ask" in said)


def _outcome(word: str) -> Outcome:
    if word not in _DECISIONS:
        raise Unusable(f'it decided "{word[:40]}", which is neither reject nor defer')
    return _DECISIONS[word]


def _reason(found: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    reason = _member(own, "permissionDecisionReason", str) or _member(found, "reason", str) or ""
    return reason.strip()[:LONGEST_REASON] or "it gave no reason"


def _seconds(found: Mapping[str, Any]) -> float | None:
    if "for" not in found:
        return None
    given = found["for"]
    try:
        if isinstance(given, str):
            return float(parse_duration(given))
        if type(given) in (int, float) and given >= 0:
            return float(given)
    except (Invalid, OverflowError):
        pass
    raise Unusable(f'it deferred for {json.dumps(given)[:40]}, which is no duration like "30s"')


def _member(found: Mapping[str, Any], name: str, kind: type) -> Any:
    value = found.get(name)
    if value is not None and not isinstance(value, kind):
        raise Unusable(f"{name} of its answer is not a {'list' if kind is list else 'text'}")
    return clean(value) if isinstance(value, str) else value
