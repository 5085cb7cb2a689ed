"""What a message waits for, in one sentence: from the facts of a ``why`` to words.

The daemon knows the facts, and who reads them knows the zone in which they are to be told. So the
daemon's answer holds both the facts and a sentence with times in UTC, and dshctl makes its own
sentence of the same facts. One table, `_SENTENCES`, holds them all.

Light on purpose: dshctl imports this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from dshd.plural import age

Facts = Mapping[str, Any]

# What a session does that waits, in a line. Who has only the line takes it apart again here.
_WAITING: Final = "waiting ("


def waiting(what: str) -> str:
    """What is shown as being done: ``waiting (rate limit)``."""
    return f"{_WAITING}{what})"


def waited_for(doing: str | None) -> str | None:
    """``rate limit``, of ``waiting (rate limit)``, whatever stands behind it; None of what doesn't wait."""
    if not (doing or "").startswith(_WAITING):
        return None
    return str(doing)[len(_WAITING) :].partition(")")[0]


# What a provider is waited for, by the failure's code.
PROVIDER: Final = {
    "RATE_LIMIT": "rate limit", "SERVER": "the provider's error", "TIMEOUT": "the provider's silence",
    "TRANSPORT": "no connection", "STREAM_CLOSED": "a broken answer", "EMPTY_RESPONSE": "an empty answer",
}  # fmt: skip


def provider(code: str | None) -> str:
    """What a provider is waited for that failed with this code."""
    return PROVIDER.get(code or "", "the provider")


# Why a job was stopped.
JOB_STOPPED: Final = {
    "user": "stopped by the user", "agent": "stopped", "abort": "stopped with its turn",
    "clear": "stopped by an abort", "close": "stopped with its session", "rm": "stopped with its session",
    "run": "stopped at the end of its run", "shutdown": "stopped with the daemon",
    "fault": "stopped, for the disk failed", "outside": "stopped by a signal to its supervisor",
}  # fmt: skip


def job_end(end: Mapping[str, Any]) -> str:
    """How a job has ended: ``exit 2, 4 min``. Of `job/ended`'s fields."""
    how, after = end.get("how"), f", {age(end['ms'])}" if end.get("ms") is not None else ""
    if how == "lost" and end.get("cause") == "killed":
        return "its supervisor was killed, and nobody saw how it ended"
    if how == "lost":
        return "the daemon died, and nobody saw how it ended"
    if how == "failed":
        return f"it could not be started: {end.get('detail')}"
    words = {
        "exit": f"exit {end.get('code')}",
        "signal": f"killed by signal {end.get('signal')}",
        "timeout": "time limit",
        "stopped": JOB_STOPPED.get(str(end.get("cause")), "stopped"),
    }
    return f"{words.get(str(how), str(how))}{after}"


class Clock(NamedTuple):
    """``when`` writes a moment (Unix ms), ``lasts`` a duration (ms); ``now`` is Unix ms."""

    now: int
    when: Callable[[int], str]
    lasts: Callable[[int], str]


def utc(now: int) -> Clock:
    """Times that mean the same everywhere."""
    return Clock(now, lambda at: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at / 1000)), age)


def sentence(facts: Facts, clock: Clock) -> str:
    """One sentence, with its full stop."""
    said = _SENTENCES[str(facts["reason"])](facts, clock)
    ends = facts.get("expires_at")
    gone = f"; it expires at {clock.when(ends)}" if ends and facts["state"] in ("pending", "held") else ""
    return f"{said}{gone}."


def who(source: Mapping[str, Any] | None) -> str:
    """``you (pts/3)``, ``you``, ``plugin rate_limit``, ``a schedule``."""
    source = source or {}
    kind = str(source.get("kind") or "system")
    if kind == "user":
        place = source.get("tty")
        return f"you ({place})" if place else "you"
    if kind in ("plugin", "hook"):
        return f"{kind} {source.get('via') or ''}".rstrip()
    return "dshd" if kind == "system" else f"a {kind}"


# --- one for each reason -------------------------------------------------------------------------


def _at(facts: Facts, clock: Clock) -> str:
    return f" at {clock.when(facts['at'])}" if facts.get("at") else ""


def _ahead(facts: Facts) -> str:
    number = facts.get("ahead") or 0
    return f"; {number} {'is' if number == 1 else 'are'} ahead of it" if number else ""


def _doing(facts: Facts, clock: Clock) -> str:
    if not facts.get("doing"):
        return ""
    doing = str(facts["doing"]).replace(": ", " ", 1)
    since = facts.get("since_at")
    return f" ({doing}, {clock.lasts(clock.now - since)})" if since else f" ({doing})"


def _entered(facts: Facts, clock: Clock) -> str:
    ended = f"and ended {facts['outcome']}" if facts.get("outcome") else "and runs there"
    return f"It doesn't wait: it entered turn {facts['turn']}{_at(facts, clock)} {ended}"


def _claimed(facts: Facts, clock: Clock) -> str:
    return f"It doesn't wait: turn {facts['turn']} took it{_at(facts, clock)} and is about to begin with it"


def _ended(facts: Facts, clock: Clock) -> str:
    return f"It doesn't wait: {_fate(facts, clock)}"


def _fate(facts: Facts, clock: Clock) -> str:
    state, by = str(facts["state"]), facts.get("by") or {}
    at = _at(facts, clock)
    if state == "expired":
        return f"it expired{at}, unseen"
    if state == "superseded":
        return f"{by.get('by') or 'a newer one'} superseded it{at}"
    if state == "rejected":
        reason = f": {by['reason']}" if by.get("reason") else ""
        return f"{by.get('by') or 'a plugin'} rejected it{at}{reason}"
    if state == "aborted":
        return f"it was aborted{at}, before it entered a turn"
    return f"{who(by)} {state} it{at}"


def _due(facts: Facts, clock: Clock) -> str:
    until = int(facts["until_at"])
    by = facts.get("by") or {}
    whose = f" by plugin {by['via']}" if by.get("kind") == "plugin" and by.get("via") else ""
    why = f": {by['reason']}" if whose and by.get("reason") else ""
    return f"Held{whose} until {clock.when(until)} (in {clock.lasts(until - clock.now)}){why}"


def _held(facts: Facts, clock: Clock) -> str:
    return f"Held for a person since {clock.when(facts['at'])}{_HELD[str(facts['what'])]}"


_HELD: Final = {
    "asked": "",
    "failed": ", for it failed three times before it entered a turn",
    "crash": ", for the daemon ended before it entered a turn",
    "repair": ", for the session's log was repaired",
}


def _parked(facts: Facts, clock: Clock) -> str:
    by = str(facts["what"])
    source = facts.get("by")
    if by in ("abort", "interrupt") and source:
        name, _, place = who(source).partition(" (")
        whose = "your" if name == "you" else f"{name}'s"
        how = f"by {whose} {by}{f' ({place}' if place else ''}"
    else:
        how = _PARKS.get(by, f"by {by}")
        how = f"{how}: {str(facts['detail']).rstrip('.')}" if facts.get("detail") else how
        how = f"because {facts['detail']} is used up" if by == "budget" and facts.get("detail") else how
    return f"Parked at {clock.when(facts['at'])} {how}{_ahead(facts)}"


_PARKS: Final = {
    "error": "because a turn ended in an error",
    "budget": "because a budget is used up",
    "crash-loop": "because three starts in a row found a turn cut off",
    "import": "because it was imported",
}


def _behind(facts: Facts, clock: Clock) -> str:
    ran = clock.lasts(clock.now - facts["at"]) if facts.get("at") else ""
    lasted = f", which has run for {ran}" if ran else ""
    return f"Waits behind turn {facts['turn']}{lasted}{_doing(facts, clock)}{_ahead(facts)}"


def _provider(facts: Facts, clock: Clock) -> str:
    return f"{_until(facts, clock)}; then {_next(facts)}"


def _until(facts: Facts, clock: Clock) -> str:
    until = facts.get("until_at")
    if not until:
        return f"The provider keeps turn {facts['turn']} waiting"
    if facts.get("what") == "named":
        return f"The provider asked to wait until {clock.when(until)}"
    why = f" ({facts['detail']})" if facts.get("detail") else ""
    return f"The provider has no answer{why} and is asked again at {clock.when(until)}"


def _inside(facts: Facts, clock: Clock) -> str:
    said = _until(facts, clock).replace("The provider", "the provider", 1)
    return f"It entered turn {facts['turn']}{_at(facts, clock)}, which waits: {said}"


def _subagents(ids: str) -> str:
    return f"the subagent{'s' if ',' in ids else ''} {ids}"


def _others(facts: Facts) -> str:
    """``8 sessions run already``, out of what status shows."""
    return waited_for(facts.get("doing")) or "As many sessions run as may"


def _next(facts: Facts) -> str:
    ahead = facts.get("ahead") or 0
    return f"{ahead} {'is' if ahead == 1 else 'are'} ahead of it" if ahead else "it is next"


_SENTENCES: Final[dict[str, Callable[[Facts, Clock], str]]] = {
    "entered": _entered,
    "claimed": _claimed,
    "ended": _ended,
    "broken": lambda facts, clock: f"Nothing moves here: the session is {facts['what']}",
    "closed": lambda facts, clock: "Nothing moves here: the session is closed",
    "due": _due,
    "held": _held,
    "parked": _parked,
    "stopping": lambda facts, clock: f"dshd is stopping; when it is back, {_next(facts)}",
    "disk": lambda facts, clock: "The disk is full; it goes on as soon as there is room",
    "place": lambda facts, clock: f"{_others(facts)}; when one of them ends or waits, {_next(facts)}",
    "provider": _provider,
    "inside": _inside,
    "aborting": lambda facts, clock: f"Turn {facts['turn']} is being aborted; then {_next(facts)}",
    "joins": lambda facts, clock: f"Joins turn {facts['turn']} at its next step{_doing(facts, clock)}",
    "behind": _behind,
    "maintenance": lambda facts, clock: f"The conversation is compacted first; then {_next(facts)}",
    "resume": lambda facts, clock: f"Turn {facts['turn']} is gone on with first; then {_next(facts)}",
    "asks": lambda facts, clock: f"Waits for your answer to {facts['what']} ({facts['detail']})",
    "agent-asks": lambda facts, clock: (
        f"Waits for subagent {facts['by']['via']}, which needs your answer to {facts['what']}"
        f" ({facts['detail']})"
    ),
    "agents": lambda facts, clock: (
        f"It entered turn {facts['turn']}{_at(facts, clock)}, which waits for {_subagents(facts['what'])}"
    ),
    "rides": lambda facts, clock: "Nothing will wake it: an inject rides along with the next turn",
    "no-wake": lambda facts, clock: "Nothing will wake it: it was sent with --no-wake",
    "next": lambda facts, clock: f"It starts soon{_ahead(facts)}" if facts.get("ahead") else "It is next",
}
REASONS: Final = tuple(_SENTENCES)
