"""What becomes of a message that was just sent, or would be, in one sentence. Pure, as `sentences`."""

from __future__ import annotations

from typing import Any, Final

from dshctl.sentences import count, kept, name_of, ordinal, plain, when
from dshctl.times import age, clock
from dshd.reasons import waited_for

Json = dict[str, Any]


def receipt(got: Json) -> str:
    """``steer     -> api, joins turn 12 at its next step, after bash make test.``"""
    here = got.get("spooled") and not got.get("name")
    to = "this directory" if here else name_of(got)
    return f"{got.get('verb') or 'send':<9} -> {to}, {_replaces(got)}{_fate(got)}"


def _replaces(got: Json) -> str:
    """``replaces s4h8w2c1.17; ``"""
    old = got.get("superseded") or []
    return f"replaces {', '.join(map(str, old))}; " if old and not got.get("duplicate") else ""


def _fate(got: Json) -> str:
    for holds, say in _FATES:
        if holds(got):
            return str(say(got))
    return f"{ordinal(got.get('position') or 1)} in the queue."


def _duplicate(got: Json) -> str:
    what = f"same key as {got['message']}"
    state = got.get("outcome") or got.get("state")
    if got.get("outcome"):
        return f"{what}, which ended {state}{_at(got.get('ended_at'))}."
    return f"{what}, which is {state}."


def _at(ms: int | None) -> str:
    from dshctl.times import now_ms

    return f" at {clock(ms, now_ms())}" if ms else ""


def _held(got: Json) -> str:
    from dshctl.times import now_ms

    due = got.get("due_at")
    if due is None:
        return "held until you release it: dshctl wake " + str(got["message"])
    now = now_ms()
    return f"held until {when(due, now)} (in {age(due - now)})."


def would(got: Json) -> str:
    """``api: would start turn 13.``"""
    name = f"{got['name']}: " if got.get("name") else ""
    new = "in a session made for it: " if got.get("created") else ""
    return f"{name}{new}{_WOULD[str(got['would'])](got)}"  # type: ignore[no-untyped-call]


def _would_wait(got: Json) -> str:
    if got.get("queue") == "held":
        return f"would be {_held({**got, 'message': 'MESSAGE'})}"
    if got.get("position") is None:
        return "would wait."
    return f"would wait, {_place(got)}."


def _place(got: Json) -> str:
    """``2nd for the next turn``"""
    return f"{ordinal(got.get('position') or 1)} for the {str(got.get('queue')).replace('-', ' ')}"


_WOULD: Final = {
    "start-turn": lambda got: f"would start turn {got['turn']}.",
    "join-turn": lambda got: f"would join turn {got['turn']} at its next step.",
    "wait": _would_wait,
    "duplicate": lambda got: f"would change nothing: same key as {got['message']}, which is {got['state']}.",
    "refused": lambda got: f"would be refused: {got['error']['message'].removeprefix('not sent: ')}",
}


def _after(got: Json) -> str:
    from dshctl.times import now_ms

    doing = plain(got.get("waits_for") or "")
    if waited_for(doing):
        return f"; it is {doing}"
    lasted = f" ({age(now_ms() - got['since_at'])})" if got.get("since_at") else ""
    return f", after {doing}{lasted}" if doing else ""


def _joins(got: Json) -> str:
    if got.get("now"):
        return f"joins turn {got.get('turn')} now{_instead(got)}."
    return f"joins turn {got.get('turn')} at its next step{_after(got)}."


def _instead(got: Json) -> str:
    """What becomes of that which runs: ``; bash make test goes on in the background``."""
    doing = plain(got.get("waits_for") or "")
    if doing.startswith("bash") and " and " not in doing:
        return f"; {doing} goes on in the background"
    return f"; {doing} is cut short" if doing and not waited_for(doing) else ""


def _starts(got: Json) -> str:
    released, full = got.get("released") or 0, waited_for(got.get("waits_for"))
    if full:
        return f"is next in its session; {full}."
    if released:
        return f"starts now; then the {count(released, 'message')} that had been parked."
    turn = got.get("turn")
    return f"starts now (turn {turn})." if turn else "starts now."


def _next_turn(got: Json) -> str:
    turn = f"; turn {got['turn']} runs" if got.get("turn") else ""
    return f"{ordinal(got.get('position') or 1)} in the queue{turn}."


def _running(got: Json) -> bool:
    return got.get("phase") == "running"


def _stops(got: Json) -> str:
    """An interrupt's: the activity current at that instant ends, whatever it is."""
    place = got.get("position") or 1
    behind = f", {ordinal(place)} behind earlier interrupts" if place > 1 else ""
    then = "; then the session is parked" if got.get("keep") else "; then the rest of the queue"
    return f"stops turn {got.get('turn')} and runs next{behind}{then}."


# The first that holds. `queue` is where the message is, `phase` what the driver did at that moment, `wake`
# whether it was sent so; True if nothing is known of that.
_FATES: Final[tuple[tuple[Any, Any], ...]] = (
    (lambda got: got.get("retried"), lambda got: f"tried again, as turn {got.get('turn')}."),
    (lambda got: got.get("duplicate"), _duplicate),
    (lambda got: got.get("spooled"), lambda got: "kept until the daemon is back."),
    (lambda got: got.get("queue") == "held", _held),
    (
        lambda got: got.get("redirected") and _running(got) and got.get("turn"),
        lambda got: f"turn {got['turn']} is being aborted, so it will be the next turn.",
    ),
    (
        lambda got: got.get("parked"),
        lambda got: f"{kept(got)}; it waits for dshctl wake.",
    ),
    (lambda got: got.get("verb") == "interrupt" and _running(got), _stops),
    (lambda got: got.get("queue") == "next-step" and _running(got), _joins),
    (lambda got: _running(got), _next_turn),
    (
        lambda got: got.get("verb") == "inject",
        lambda got: "rides along with the next turn; nothing is woken.",
    ),
    (lambda got: got.get("wake") is False, lambda got: f"waits, {_place(got)}; nothing is woken."),
    (
        lambda got: got.get("phase") == "maintenance",
        lambda got: f"{ordinal(got.get('position') or 1)} in the queue; it starts after maintenance.",
    ),
    (
        lambda got: got.get("queue") == "next-turn" and (got.get("position") or 1) > 1,
        lambda got: f"{ordinal(got['position'])} in the queue.",
    ),
    (lambda got: True, _starts),
)


WARNINGS = {
    "stopping": "the daemon is stopping; this runs when it is back.",
    "no-unit": "no service keeps dshd running until then. If it has ended, this waits for its next start.",
    "other-unit": "dshd.service is enabled, but did not start this dshd. If it has ended, this waits.",
    "no-linger": "dshd ends when you log out. To keep it running until then: loginctl enable-linger",
}


def warning(word: str) -> str:
    """A receipt's warning in words."""
    return WARNINGS.get(word, word)
