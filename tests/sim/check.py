"""What must hold of the disk and of memory: at each opening, and when all is at rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import attrs

from dshd.driver.history import History
from dshd.log.codec import BadLine, Event
from dshd.log.memory.nodes import File
from dshd.model.request import ModelRequest, ToolSpec
from dshd.prompt.compaction import asking
from dshd.session.fold import folding
from dshd.session.fold.events import file_name
from dshd.session.fold.layer import Rows, Table
from dshd.session.fold.state import State
from dshd.session.owner.session import Session
from tests.sim.actors import encode, sha256
from tests.sim.clockwork import decode
from tests.sim.folded import Folded
from tests.sim.oracle import Oracle, Violation
from tests.sim.surface import on_surface
from tests.sim.world import Life, log_lines

Promise = tuple[Any, ...]


def log_of(life: Life, id: str) -> list[bytes]:
    return log_lines(life.disk, life.store.log_path(id))


def decoded(lines: list[bytes]) -> list[Event]:
    return [decode(line) for line in lines]


def good_events(lines: list[bytes]) -> list[Event]:
    """Up to the first bad line, as an opening would read a torn log."""
    events: list[Event] = []
    for line in lines:
        try:
            event = decode(line)
        except BadLine:
            break
        if event.seq != len(events):
            break
        events.append(event)
    return events


def opening(life: Life) -> None:
    """The daemon has just started: nothing that was promised is missing, and it opened what it must."""
    past = life.past
    ids = life.store.ids()
    for id in past.sessions:
        if id not in ids and id not in past.maybe:
            life.find(f"session {id} was acknowledged and is lost")
    for id in ids:
        if id in past.removed:
            life.find(f"session {id} was removed and is back")
        if id not in past.sessions:
            past.sessions.append(id)
    handed_in(life)
    asked(life, [_opened(life, id) for id in ids])


def asked(life: Life, oracles: list[Oracle | None]) -> None:
    """G4: no model was asked without the log saying so."""
    sent = set().union(*(oracle.sent for oracle in oracles if oracle is not None))
    missing = [sha[:8] for sha in life.past.asked if sha not in sent]
    if missing and None not in oracles and not life.past.maybe:
        life.find(f"the model was asked {missing}, and no log says so")


def _opened(life: Life, id: str) -> Oracle | None:
    session = life.registry.loaded.get(id)
    lines = log_of(life, id)
    events = good_events(lines)
    life.found[id] = len(events)
    if session is not None and session.broken is not None and not life.weather:
        life.find(f"{id} is broken after an opening: {session.broken.error}")
        return None
    if session is not None and len(events) < len(lines):
        life.find(f"{id} was opened with a bad line {len(events)}")
    _firm(life, id, lines, session is not None)
    oracle = told_again(life, id, events, lines)
    if oracle is None:
        return None
    if session is None and oracle.must_open and len(events) == len(lines) and not life.weather:
        life.find(f"{id} was not opened at the start, and {oracle.must_run or 'something is held or open'}")
    promises(life, id, oracle)
    return oracle


def _firm(life: Life, id: str, lines: list[bytes], loaded: bool) -> None:
    """What followers were told as durable is still so; they go on from what the file says."""
    past = life.past
    told, firm = past.told.setdefault(id, []), past.firm.get(id, 0)
    if not past.keeps(id, lines):
        life.find(f"{id}: {firm} lines were told as durable, and the log says otherwise")
    if loaded:
        _durable(life, id)
        told[:] = lines
        past.firm[id] = max(firm, len(lines) if all_firm(life, id) else firm)


def _durable(life: Life, id: str) -> None:
    """Whatever an opening has read is on disk, not just in the page cache."""
    ledger, file = life.registry.loaded[id].ledger, life.disk.calls.find(str(life.store.log_path(id)))
    size = ledger.writer.synced_size if ledger is not None else 0
    if isinstance(file, File) and file.durable[:size] != file.cache[:size]:
        life.find(f"{id}: an opening believed lines that are not on disk")


def all_firm(life: Life, id: str) -> bool:
    session = life.registry.loaded.get(id)
    ledger = session.ledger if session is not None else None
    return ledger is not None and ledger.writer.synced == ledger.state.seq


def told_again(life: Life, id: str, events: list[Event], lines: list[bytes]) -> Oracle | None:
    """The oracle at the end of a log. What it has followed in this life already it goes on from."""
    since = life.found.get(id, 0)
    oracle: Oracle
    oracle, followed = life.oracles.pop(id, (Oracle(since), []))
    if oracle.since != since or lines[: len(followed)] != followed:
        oracle, followed = Oracle(since), []
    try:
        oracle.follow(events[len(followed) :])
    except Violation as error:
        life.find(f"{id}: {error}")
    except (KeyError, ValueError, IndexError, TypeError) as error:
        life.find(f"{id}: the oracle is lost: {error!r}")
    else:
        life.oracles[id] = oracle, lines[: len(events)]
        return oracle
    return None


# --- promises ----------------------------------------------------------------------------------------


def promises(life: Life, id: str, oracle: Oracle) -> None:
    """G1: everything that was answered is in the log. G4: everything that happened, too."""
    past = life.past
    wanted = Counter(p[2] for p in past.promises if p[0] == "moved" and p[1] == id)
    found = Counter(oracle.moves)
    for ids, n in wanted.items():
        if found[ids] < n:
            life.find(f"{id}: a move of {ids} was acknowledged and is lost")
    for promise in past.promises:
        if promise[1] == id and promise[0] != "moved" and not KEPT[promise[0]](oracle, *promise[2:]):
            life.find(f"{id}: promised, and not so: {promise}")
    for sha, size in oracle.attached.items():
        if not attached(life, id, sha, size):
            life.find(f"{id}: what {sha[:8]} stands for is not on disk")
    for session, call in past.began:
        if session == id and call not in oracle.started:
            life.find(f"{id}: {call} ran, and the log doesn't say that it began")
        if session == id and call in oracle.not_started:
            life.find(f"{id}: {call} ran, and its result says that it didn't")
    for message, state in oracle.state.items():
        if state == "removed" and message not in past.removals and not oracle.imported:
            life.find(f"{id}: {message} is removed, and nobody asked for that")
    for text, session in past.denied.items():
        if session == id and past.said.get(text) == 1 and text in oracle.texts:
            life.find(f"{id}: {text!r} was answered not-written and stands in the log")


def attached(life: Life, id: str, sha: str, size: int) -> bool:
    """Whether an attachment is there, whole, and durable, as it is before any message refers to it."""
    file = life.disk.calls.find(str(life.store.attachments(id) / file_name(sha)))
    if not isinstance(file, File) or file.cache != file.durable:
        return False
    return len(file.cache) == size and sha256(bytes(file.cache)) == sha


def handed_in(life: Life) -> None:
    """What was spooled waits, was taken up or was refused; it is never lost."""
    for promise in life.past.promises:
        if promise[0] != "spooled":
            continue
        taken = life.spool.find(promise[2])
        if (taken is None or taken.message is None) and life.spool.fate(promise[2]) is None:
            life.find(f"{promise[2]} was spooled and is lost")


def taken_up(life: Life, oracles: dict[str, Oracle]) -> None:
    """At rest nothing waits in the spool, and what was taken up was said, once."""
    waiting = life.spool.waiting()
    if waiting and not life.weather:
        life.find(f"the spool still holds {waiting}")
    for kind, _, alias, text in [p for p in life.past.promises if p[0] == "spooled"]:
        taken = life.spool.find(alias)
        life.past.count(f"{kind}: {'taken up' if taken else 'refused'}")
        if taken is None or taken.message is None or taken.session not in oracles:
            continue
        own = [oracle for oracle in oracles.values() if not oracle.imported]
        said = [id for oracle in own for id, m in oracle.messages.items() if m.get("key") == alias]
        if taken.message not in oracles[taken.session].state or len(said) > 1:
            life.find(f"{alias} ({text!r}) is {taken.message}, and stands in the log as {said}")


def _gone(oracle: Oracle, message: str, state: str) -> bool:
    return oracle.state.get(message) == state or message in oracle.undone


def _ended(oracle: Oracle, message: str, outcome: str, turn: int | None) -> bool:
    if turn is None:
        return _gone(oracle, message, outcome)
    return turn in oracle.ended and oracle.ended[turn]["reason"] == outcome


KEPT: dict[str, Any] = {
    "sent": lambda o, message, text: o.state.get(message) and o.texts.get(text) == message,
    "key": lambda o, key, message: o.keys.get(key) == message,
    "edited": lambda o, text: text in o.edits,
    "gone": _gone,
    "aborted": lambda o, turn: turn in o.aborts or turn in o.ended,
    "over": lambda o, turn, reason: turn in o.ended and o.ended[turn]["reason"] == reason,
    "ended": _ended,
    "changed": lambda o, value: value in o.changes,
    "compacted": lambda o, number, hidden: o.surface.hidden.get(number) == hidden,
    "answered": lambda o, id, answer: o.answers.get(id) == answer,
    "retried": lambda o, turn: turn <= o.last or o.again is not None or turn in o.given_up,
}


def numbered_once(life: Life, oracles: Iterable[Oracle]) -> None:
    """An approval's id is one question's, in the whole state directory."""
    asked = Counter(id for oracle in oracles if not oracle.imported for id in oracle.asked)
    for id, n in asked.items():
        if n > 1:
            life.find(f"{id} was asked in {n} sessions")


# --- copies ------------------------------------------------------------------------------------------


def same_history(life: Life, parent: str, child: str, seq: int) -> None:
    """What the model sees in a fork is what it saw in the parent up to ``seq``."""
    theirs = surface_of(e for e in good_events(log_of(life, parent)) if e.seq <= seq)
    ours = surface_of(good_events(log_of(life, child)))
    if ours[: len(theirs)] != theirs:
        life.find(f"{child}, a fork of {parent} at {seq}, has another history")


def surface_of(events: Iterable[Event]) -> list[tuple[str, Any, Any]]:
    surface: list[Event] = []
    for event in events:
        on_surface(surface, event)
    return [(e.type, e.data.get("turn"), e.data["content"]) for e in surface]


# --- at rest -----------------------------------------------------------------------------------------


def at_rest(life: Life, session: Session) -> Oracle | None:
    """Nothing runs any more: the log, memory, followers and promises agree in everything."""
    id = session.id
    lines = log_of(life, id)
    events = good_events(lines)
    if len(events) != len(lines):
        life.find(f"{id}: line {len(events)} of a log at rest is bad")
    if id in life.followed and life.past.told[id] != lines:
        life.find(f"{id}: followers hold {len(life.past.told[id])} lines, the log has {len(lines)}")
    oracle = told_again(life, id, events, lines)
    if oracle is None:
        return None
    promises(life, id, oracle)
    if oracle.turn is not None:
        life.find(f"{id}: turn {oracle.turn.number} never ended")
    _ends_told(life, id, oracle)
    if oracle.must_run:
        life.find(f"{id} rests, and {oracle.must_run}")
    held = {field.name: _plain(getattr(session.state, field.name)) for field in attrs.fields(State)}
    _same_as_oracle(life, session.state, held, oracle)
    _same_as_log(life, id, held, events, lines)
    if any(s == id for s, _ in life.running):
        life.find(f"{id}: tools run at rest: {life.running}")
    return oracle


MOST_TOLD = 2


def _ends_told(life: Life, id: str, oracle: Oracle) -> None:
    """Where there is a hook, it was told of each end, or tried to be as often as it is."""
    if not life.plan.ends:
        return
    if oracle.due:
        life.find(f"{id} rests, and ends are still to be told: {oracle.due}")
    told = {turn for session, turn in life.past.ends if session == id}
    for turn, ended in oracle.ended.items() if not oracle.copied else ():
        tries = oracle.told.get(turn)
        if tries is None:
            life.find(f"{id}: turn {turn} ended ({ended['reason']}), and no hook was to be told")
        elif tries < MOST_TOLD and turn not in told:
            life.find(f"{id}: turn {turn} ended ({ended['reason']}), and no hook was told")


def one_name_each(life: Life, oracles: Iterable[Oracle]) -> None:
    names = Counter(oracle.name for oracle in oracles if not oracle.closed)
    for name, n in names.items():
        if n > 1:
            life.find(f"{n} open sessions are called {name}")


def _same_as_oracle(life: Life, state: State, held: dict[str, Any], oracle: Oracle) -> None:
    ours: dict[str, Any] = {
        "queues": {q: [m.id for m in items] for q, items in state.queues.items()},
        "parked": state.parked.by if state.parked else None,
        "name": state.name,
        "last turn": state.last_turn,
        "closed": state.closed,
        "resume": state.resume,
        "retry": state.retry,
        "surface": [entry.seq for entry in state.surface],
        "compaction": state.compaction.number if state.compaction is not None else None,
        "receipts": {id: r.state for id, r in held["receipts"].items()},
        "keys": {k: v.message for k, v in held["keys"].items()},
    }
    theirs: dict[str, Any] = {
        "queues": oracle.queues,
        "parked": oracle.parked,
        "name": oracle.name,
        "last turn": oracle.last,
        "closed": oracle.closed,
        "resume": oracle.resume,
        "retry": oracle.retry,
        "surface": [event.seq for event in oracle.surface.events],
        "compaction": oracle.surface.open.number if oracle.surface.open is not None else None,
        "receipts": oracle.state,
        "keys": oracle.keys,
    }
    for name, value in ours.items():
        if value != theirs[name]:
            life.find(f"{state.id}: {name} is {value}, and should be {theirs[name]}")


def _same_as_log(life: Life, id: str, held: dict[str, Any], events: list[Event], lines: list[bytes]) -> None:
    """G3: memory is the fold of the log. G9: each request's hash is that of the request made again."""
    kept = life.past.folded.setdefault(id, Folded())
    again, history = kept.begin(lines), History()
    for event in events[again.seq + 1 :]:
        if event.type == "request/sent":
            _same_request(life, again, history, event)
        folding.apply(again, event)
        again = kept.keep(lines, again)
    for name, mine in held.items():
        if mine != _plain(getattr(again, name)):
            life.find(f"{id}: {name} in memory is not what the log says")


def _plain(value: Any) -> Any:
    if isinstance(value, Table):
        return dict(value.items())
    return list(value) if isinstance(value, Rows) else value


def _same_request(life: Life, state: State, history: History, event: Event) -> None:
    header = state.request_header or {}
    tools = tuple(ToolSpec(**tool) for tool in header["tools"])
    place = (state.request_context or {}).get("attachments")
    messages = tuple(history.of(state.surface, place))
    if event.data.get("compaction") is not None:
        messages = (*messages[: event.data["messages"]], asking(event.data["instruction"]))
    body = encode(ModelRequest(header["system"], messages, tools, header["settings"]["max_tokens"]))
    if sha256(body) != event.data["sha256"]:
        life.find(f"{state.id}: the request at seq {event.seq} is not a function of the log")
