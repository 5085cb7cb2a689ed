"""What happened, in one sentence each. Pure: a result in, words out, and the time that counts as now."""

from __future__ import annotations

from typing import Any, Final

from dshctl.times import age, clock, moment, since
from dshd import budgets, reasons
from dshd.plural import count as count

Json = dict[str, Any]

_ORDINALS: Final = {1: "st", 2: "nd", 3: "rd"}


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    tail = "th" if number % 100 in (11, 12, 13) else _ORDINALS.get(number % 10, "th")
    return f"{number}{tail}"


def name_of(thing: Json) -> str:
    """A session's name, else its id, in a receipt, a result or a session."""
    return str(thing.get("name") or thing.get("session") or thing.get("id") or "?")


def size(bytes: float) -> str:
    """``412 bytes``, ``88 MB``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes >= scale:
            return f"{bytes / scale:.3g} {unit}"
    return count(int(bytes), "byte")


# Messages.


def when(at: int, now: int) -> str:
    """``18:00`` today, else ``Nov 28 18:00``."""
    today = clock(at, now)
    return today if ":" in today else moment(at, now)


def why(facts: Json, now: int) -> str:
    """What a message waits for, with times as they are here."""
    if facts.get("reason") not in reasons.REASONS:  # a newer daemon's
        return str(facts.get("sentence"))
    return reasons.sentence(facts, reasons.Clock(now, lambda at: when(at, now), age))


_CAUSES: Final = {
    "remove": "removal", "clear": "clearing", "expire": "expiry", "supersede": "supersession",
    "reject": "rejection", "abort": "abort",
}  # fmt: skip


def undone(got: Json, now: int) -> str:
    """``api: 2 messages are back; the clearing of 12:04 is undone.``"""
    number = len(got["messages"])
    what = _CAUSES.get(str(got["cause"]), str(got["cause"]))
    back = f"{count(number, 'message')} {'is' if number == 1 else 'are'} back"
    return f"{name_of(got)}: {back}; the {what} of {when(got['at'], now)} is undone."


# Ends.


def ended(result: Json) -> str:
    """How a message or a turn ended, for standard error: ``api: turn 7 ended in an error: ...``."""
    name, outcome = name_of(result), result.get("outcome")
    turn = f"turn {result['turn']}" if result.get("turn") else f"message {result.get('message')}"
    error = (result.get("error") or {}).get("message")
    if outcome in _DECIDED and result.get("by"):
        return f"{name}: {turn} was {_DECIDED[outcome]}{decided_by(result['by'])}."
    if result.get("parked"):
        return f"{kept(result)}; {count(result['parked']['count'], 'waits', 'wait')}."
    if result.get("exit") == 16 and result.get("approvals"):
        asked = result["approvals"][0]
        return f"{name}: waits for your answer to {asked['id']} ({asked.get('what')})."
    if outcome is None or (outcome == "completed" and result.get("exit")):
        return f"{name}: {_STUCK.get(result.get('exit') or 0, 'it waits')}."
    words = _ENDS.get(str(outcome), f"ended {outcome}")
    why = f": {str(error).rstrip('.')}" if error else ""
    if result.get("budget"):
        why = f": {budgets.used(result['budget'])}"
    return f"{name}: {turn} {words}{why}.{_again_at(result)}"


def _again_at(result: Json) -> str:
    """When the provider would take it, if it said so."""
    from dshctl.times import now_ms

    at = result.get("retry_at")
    return f" It can be tried again from {when(int(at), now_ms())}." if at else ""


def kept(got: Json) -> str:
    """``kept, but api is parked since 03:12 (budget: $5.00 a turn)``, of a receipt or a result."""
    from dshctl.times import now_ms

    return f"kept, but {name_of(got)} is {parked(got, now_ms())}"


def wake_command(session: Json) -> str:
    """What lets a parked session go on. What all its turns share must be raised first, and a turn that
    was cut off with nothing behind it is what is to go on."""
    park = session.get("parked") or {}
    stop, name = park.get("budget"), name_of(session)
    if stop and (not stop["what"].startswith("turn_") or not park.get("count")):
        return f"dshctl wake -s {name} --add {stop['add']}"
    return f"dshctl wake -s {name}"


_DECIDED: Final = {
    "rejected": "rejected",
    "superseded": "superseded",
    "removed": "removed from the queue",
    "cleared": "cleared from the queue",
    "aborted": "aborted before it entered a turn",
}


def decided_by(by: Json | None) -> str:
    """Who ended a message, and why: `` by content_filter: the text matches /x/``, `` by you (pts/3)``."""
    by = by or {}
    if by.get("by"):
        why = f": {str(by['reason']).rstrip('.')}" if by.get("reason") else ""
        return f" by {by['by']}{why}"
    return f" by {you(by)}" if by and by.get("via") not in ("clock", "driver") else ""


_STUCK: Final = {
    7: "the session is damaged or faulted, so nothing will end here",
    16: "it waits for an approval",
    18: "parked, or kept for a person: nothing will move it on by itself",
}


_ENDS: Final = {
    "completed": "completed",
    "error": "ended in an error",
    "blocked": "was blocked",
    "rejected": "was rejected",
    "aborted": "was aborted",
    "max-tokens": "ran into the model's output limit",
    "interrupted": "was interrupted",
    "budget": "used its budget up",
    "removed": "was removed from the queue",
    "cleared": "was cleared from the queue",
    "expired": "expired unseen",
    "superseded": "was superseded by a newer one",
    "approval": "waits for an approval",
    "asks": "waits for an approval",
    "parked": "is kept, but the session is parked",
    "held": "is held until somebody releases it",
}


def parked(session: Json, now: int) -> str:
    """``parked since 03:12 (budget: $5.00 a turn)``."""
    park = session.get("parked") or {}
    at = f" since {clock(park['at'], now)}" if park.get("at") else ""
    why = f"budget: {budgets.rate(park['budget'])}" if park.get("budget") else park_reason(park)
    return f"parked{at}{f' ({why})' if why else ''}"


_PARKS: Final = {
    "abort": "abort",
    "interrupt": "interrupt",
    "error": "a turn ended in an error",
    "budget": "budget",
    "crash-loop": "three crashes in a row",
    "import": "it was imported",
}


def park_reason(park: Json) -> str:
    """``turn cost $5.00``, ``a turn ended in an error: ...``."""
    if park.get("budget"):
        return budgets.limit(park["budget"])
    by, what = park.get("by"), park.get("what")
    words = _PARKS.get(str(by), str(by) if by else "")
    if what and what != by:
        what = str(what).rstrip(".")
        words = f"{words}: {what}" if words else what
    return words


def replaced(receipt: Json) -> list[str]:
    """What of a text could not be sent as it was; nothing, as a rule."""
    many = receipt.get("replaced")
    return [f"dshctl: {count(many, 'character')} replaced: not UTF-8, or NUL."] if many else []


def abort(got: Json, columns: int = 80, whose: str | None = None) -> list[str]:
    """What an abort stopped, parked and cleared, and how to go on. ``whose``: what a command needs to mean
    this session, its name if not said."""
    left = _left(got, columns, f" -s {name_of(got)}" if whose is None else whose)
    return [_stopped(got), *_goes_on(got), *left]


def _beside(got: Json) -> str:
    """``subagent s4h8w2c1 and j3, j4``: what ended besides the turn."""
    agents, jobs = got.get("agents") or (), got.get("jobs") or ()
    of = f"subagent{'s' if len(agents) > 1 else ''} {', '.join(agents)}" if agents else ""
    return " and ".join(filter(None, (of, ", ".join(jobs))))


def _goes_on(got: Json) -> list[str]:
    """``j3 goes on.   end it: dshctl jobs stop j3``"""
    ids = got.get("goes_on") or ()
    if not ids:
        return []
    words = ("goes", "it") if len(ids) == 1 else ("go", "them")
    verbs = [f"dshctl {'jobs' if id.startswith('j') else 'agents'} stop {id}" for id in ids[:1]]
    return [f"{', '.join(ids)} {words[0]} on.   end {words[1]}: {verbs[0]}{', ...' if len(ids) > 1 else ''}"]


def _stopped(got: Json) -> str:
    name, turn = name_of(got), got.get("turn")
    if turn is None and got.get("doing"):
        return f"{name}: stopped ({plain(got['doing'])}); the conversation is as it was."
    beside = _beside(got)
    if turn is None:
        cleared = _number(got.get("cleared"))
        rest = f"; {count(cleared, 'message')} cleared" if cleared else ""
        return f"{name}: {f'stopped {beside}; no turn ran' if beside else 'nothing is running'}{rest}."
    started, ended = got.get("started_at"), got.get("ended_at")
    lasted = f" after {age(ended - started)}" if started is not None and ended is not None else ""
    return f"{name}: stopped turn {turn}{lasted}{_killed(got)}{f', and {beside}' if beside else ''}."


def _killed(got: Json) -> str:
    survivors = got.get("survivors") or []
    if survivors:
        who, one = ", ".join(map(str, survivors)), len(survivors) == 1
        words = ("process", "is") if one else ("processes", "are")
        return f", but {words[0]} {who} of it could not be ended and {words[1]} alive"
    did = plain(got.get("doing") or "")
    if reasons.waited_for(did):
        return f" (it was {did})"
    return f" ({did} was killed)" if did else ""


def _number(value: Any) -> int:
    return len(value) if isinstance(value, list) else int(value or 0)


def _left(got: Json, columns: int, whose: str) -> list[str]:
    parked = _number((got.get("parked") or {}).get("count"))
    cleared = _number(got.get("cleared")) if got.get("turn") is not None else 0
    lines = []
    if parked:
        are = f"{count(parked, 'message')} {'is' if parked == 1 else 'are'} parked."
        go_on, drop = f"{are}   go on: dshctl wake{whose}", f"dshctl queue clear{whose}"
        one = f"{go_on}    drop: {drop}"
        lines += [one] if len(one) < columns else [go_on, f"{' ' * len(are)}   drop:  {drop}"]
    if cleared:
        lines.append(f"{count(cleared, 'message')} {'was' if cleared == 1 else 'were'} cleared.")
    return lines


def woken(got: Json) -> str:
    """``nightly: goes on with turn 13; 3 queued.``"""
    name = name_of(got)
    if got.get("refused"):
        return f"{name}: {got['refused']}"
    queued = sum((got.get("pending") or {}).values())
    rest = f"; {queued} queued" if queued else ""
    if got.get("released"):
        return f"{name}: released {', '.join(got['released'])}{rest}."
    if got.get("tries"):
        return f"{name}: turn {got.get('turn')} asks its provider again{rest}."
    if got.get("runs"):
        return f"{name}: {'goes on' if got.get('unparked') else 'runs'} with turn {got.get('turn')}{rest}."
    was = "no longer parked; " if got.get("unparked") else ""
    return f"{name}: {was}nothing is to be done{rest}."


def retrying(got: Json) -> str:
    """``nightly: turn 12 ended in an error; tried again as turn 13. 2 messages stay parked.``"""
    words = _ENDS.get(str(got.get("outcome")), f"ended {got.get('outcome')}")
    parked = int((got.get("parked") or {}).get("count") or 0)
    stay = f" {count(parked, 'message')} stay{'s' if parked == 1 else ''} parked." if parked else ""
    return f"{name_of(got)}: turn {got.get('retry_of')} {words}; tried again as turn {got.get('turn')}.{stay}"


def compacted(got: Json) -> str:
    """``api: compacted, 118 k -> 9 k of 128 k tokens (212 events summed up, 3 results cut short).``"""
    name, outcome = name_of(got), got.get("outcome")
    if outcome == "done":
        pruned, hidden = int(got.get("pruned") or 0), int(got.get("hidden") or 0)
        how = ([f"{count(hidden, 'event')} summed up"] if hidden else []) + (
            [f"{count(pruned, 'result')} cut short"] if pruned else []
        )
        sizes = f"{_in_window(got, 'before')} -> {_of_window(got, 'after')}"
        return f"{name}: compacted, {sizes} ({', '.join(how)})."
    if outcome == "nothing":
        return f"{name}: nothing to compact; it is short as it is ({_of_window(got, 'before')})."
    why = str((got.get("error") or {}).get("message") or "it was aborted")
    return f"{name}: not compacted: {plain(why)}. The conversation is as it was."


def _of_window(got: Json, which: str) -> str:
    window = f" of {budgets.window(got['window'])}" if got.get("window") else ""
    return f"{_in_window(got, which)}{window} tokens"


def _in_window(got: Json, which: str) -> str:
    return budgets.in_window(got.get(which) or 0, got.get("window") or 0)


# Sessions.


def which_model(header: Json) -> str:
    """Which model a session got, and why: ``model fast (config).``, or the sentence that says so."""
    why = str(header.get("model_why") or "")
    if why.endswith("."):
        return why
    no_ai = " It is not an AI." if header.get("adapter") == "rehearsal" else ""
    return f"model {header.get('model')}{f' ({why})' if why else ''}.{no_ai}"


def state(session: Json) -> str:
    """``running``, ``asks a3``."""
    state = str(session.get("state") or "?")
    if state != "asks":
        return state
    approval = next(
        (need.get("id") for need in session.get("needs") or () if need.get("kind") == "approval"), None
    )
    return f"asks {approval}" if approval else state


# Sources.


def who(source: Json | None) -> str:
    """``you, pts/3``, ``cron``, ``git hook``, ``you, nvim``."""
    source = source or {}
    kind = str(source.get("kind") or "user")
    place = source.get("tty") or _client(source)
    if kind != "user":
        return (
            f"{kind} {source['via']}"
            if source.get("via") and kind in ("plugin", "hook", "schedule")
            else kind
        )
    return f"you, {place}" if place else "you"


def _client(source: Json) -> str:
    client = str(source.get("client") or "")
    return "" if client.startswith("dshctl") else client


def you(source: Json | None) -> str:
    """The same in a running sentence: ``you (pts/3)``."""
    words = who(source)
    head, comma, place = words.partition(", ")
    return f"{head} ({place})" if comma else head


def doing(session: Json, now: int) -> str:
    """``turn 12, step 4, 41 min: bash make test (4 min)``; nothing while idle."""
    if session.get("phase") == "maintenance":
        return now_doing(session, now)
    parts = [f"turn {session['turn']}"] if session.get("turn") else []
    if session.get("step"):
        parts.append(f"step {session['step']}")
    if session.get("turn_started_at"):
        parts.append(since(session["turn_started_at"], now))
    return ": ".join(filter(None, (", ".join(parts), now_doing(session, now))))


def now_doing(session: Json, now: int, lasts: str = " ({})") -> str:
    """``bash make test (4 min)``."""
    if not session.get("doing"):
        return ""
    if session.get("waits") == "provider" and session.get("until_at"):
        until = f"waiting until {when(session['until_at'], now)}"
        return plain(session["doing"]).replace("waiting", until, 1)
    age = lasts.format(since(session["since_at"], now)) if session.get("since_at") else ""
    return f"{plain(session['doing'])}{age}"


def plain(doing: Any) -> str:
    """``bash: make test`` as it reads in a sentence."""
    return str(doing).replace(": ", " ", 1)


def job(row: Json, now: int) -> str:
    """``j3, 4 min, kept: make serve``."""
    kept = ", kept" if row["kept"] else ""
    return f"{row['id']}, {age(max(0, now - row['started_at']))}{kept}: {' '.join(row['command'].split())}"
