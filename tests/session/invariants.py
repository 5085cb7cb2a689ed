"""What must hold of a log at every instant, whatever happened before (G1-G4, G7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import trio

from dshd.log.codec import Event
from dshd.session.fold.folding import fold
from dshd.session.owner.session import Session
from tests.session.rig import World

LIVING = {"pending", "held", "claimed", "entered"}


def ids_inserted(events: Sequence[Event]) -> list[str]:
    return [
        m["id"]
        for e in events
        if e.type == "inbox/spliced" and e.data["cause"] in ("send", "supersede")
        for op in e.data["ops"]
        for m in op["insert"]
    ]


def check_log(events: Sequence[Event], *, quiet: bool = False) -> None:
    """The rules that the events alone must obey. ``quiet``: nothing runs (any more)."""
    _check_seqs(events)
    _check_turns(events, quiet)
    _check_once(events)
    _check_claims(events)
    _check_batches(events)
    _check_write_before_effect(events)
    _check_compactions(events, quiet)


def _check_seqs(events: Sequence[Event]) -> None:
    assert [e.seq for e in events] == list(range(len(events)))


def _check_turns(events: Sequence[Event], quiet: bool) -> None:
    """G7: each turn ends exactly once, before the next begins, and its steps end within it."""
    turn: int | None = None
    step: int | None = None
    last = 0
    for e in events:
        if e.type == "turn/start":
            assert turn is None, f"turn {e.data['turn']} starts inside {turn}"
            turn = e.data["turn"]
            assert turn == last + 1
            last = turn
        elif e.type == "turn/end":
            assert turn == e.data["turn"]
            assert step is None, "a turn ended with an open step"
            turn = None
        elif e.type == "step/start":
            assert step is None
            step = e.data["step"]
        elif e.type == "step/end":
            assert step == e.data["step"]
            step = None
    if quiet:
        assert turn is None, f"turn {turn} never ended"


def _check_once(events: Sequence[Event]) -> None:
    """G2: no id is made twice, and none enters twice."""
    made = Counter(ids_inserted(events))
    assert not [id for id, n in made.items() if n > 1]
    entered = Counter(e.data["id"] for e in events if e.type == "user/message")
    assert not [id for id, n in entered.items() if n > 1], entered


def _check_claims(events: Sequence[Event]) -> None:
    """G2: what was claimed enters, is rejected, or comes back; else somebody asked for an abort."""
    claimed: set[str] = set()
    asked: set[int] = set()
    for e in events:
        if e.type == "inbox/spliced":
            removed = {id for op in e.data["ops"] for id in op["remove"]}
            claimed |= removed if e.data["cause"] == "claim" else set()
            claimed -= {m["id"] for op in e.data["ops"] for m in op["insert"]}
            asked |= {e.data["interrupts"]} if "interrupts" in e.data else set()
        elif e.type == "user/message":
            claimed.discard(e.data["id"])
        elif e.type == "step/rejected":
            claimed -= set(e.data["messages"])
        elif e.type == "abort/requested":
            asked.add(e.data["turn"])
        elif e.type == "turn/end":
            assert not claimed or e.data["turn"] in asked, f"{claimed} were claimed and are gone"
            claimed.clear()


# What belongs together is written together; the first line of each write tells what was synced before.
_TOGETHER = {
    "turn/start": ("inbox/spliced",),
    "step/start": ("user/message", "request/header", "request/context", "request/sent"),
    "user/message": ("user/message", "request/header", "request/context", "request/sent"),
    "assistant/message": ("tool/call",),
}


def _check_batches(events: Sequence[Event]) -> None:
    """A turn's beginning and its claim, a step's and its messages and request: one sync."""
    for e, following in pairwise(events):
        claims = following.type != "inbox/spliced" or following.data["cause"] == "claim"
        if following.type in _TOGETHER.get(e.type, ()) and claims:
            assert following.synced is None, f"{e.type} and {following.type} were written apart"


def _check_write_before_effect(events: Sequence[Event]) -> None:
    """G4, as far as the log tells: an answer follows a request, a result its call or its asking."""
    sent, asked, answered = 0, set(), set()
    for e in events:
        if e.surface not in (None, "append"):
            continue  # it stands for others
        if e.type == "request/sent":
            sent += 1
        elif e.type == "assistant/message":
            assert sent > 0
            asked |= {b["id"] for b in e.data["content"] if b["type"] == "tool-call"}
        elif e.type == "tool/call":
            assert e.data["call"] in asked
        elif e.type == "tool/result":
            assert e.data["call"] in asked
            assert e.data["call"] not in answered, "two results for one call"
            answered.add(e.data["call"])
        elif e.type == "step/start":
            assert asked == answered, "a step began while a call had no result"


def _check_compactions(events: Sequence[Event], quiet: bool) -> None:
    """Each compaction ends once, none inside another, and none outlives its turn; outside of one nothing
    stands for others, and what does names all that it hides."""
    open_one: Event | None = None
    surface: list[int] = []
    for e in events:
        if e.type == "compaction/start":
            assert open_one is None
            open_one = e
        elif e.type == "compaction/end":
            assert open_one is not None
            assert open_one.data["compaction"] == e.data["compaction"]
            open_one = None
        elif e.type in ("turn/start", "turn/end", "step/end"):
            assert open_one is None, f"a compaction is open at {e.type}"
        if isinstance(e.surface, dict):
            assert open_one is not None
            first, last = (surface.index(seq) for seq in e.surface["replace"])
            assert surface[first : last + 1] == list(e.sources or ())
            surface[first : last + 1] = [e.seq]
        elif e.surface is not None:
            surface.append(e.seq)
    assert not (quiet and open_one), "a compaction never ended"


def check_memory(session: Session, events: Sequence[Event]) -> None:
    """G3: what the daemon holds is the fold of what is on disk."""
    rebuilt, held = fold(events).digest(), session.state.digest()
    assert held == rebuilt, [part for part in held if held[part] != rebuilt[part]]


def check_acknowledged(session: Session, ids: Iterable[str]) -> None:
    """G1, G2: each acknowledged message is in exactly one state."""
    state = session.state
    for id in ids:
        receipt = state.receipts.get(id)
        assert receipt is not None, f"{id} was acknowledged and is lost"
        places = [q for q, items in state.queues.items() for m in items if m.id == id]
        claimed = [m for _, m in (state.turn.claimed if state.turn else ()) if m.id == id]
        waits = receipt.state in ("pending", "held")
        assert len(places) == (1 if waits else 0), (id, receipt.state, places)
        assert len(claimed) == (1 if receipt.state == "claimed" else 0), (id, receipt.state)
        if waits:
            assert (receipt.state == "held") == (places == ["held"])


async def quiet(world: World, session: Session) -> list[Event]:
    """Wait until it is idle, and look whether everything is in order; what the log has then."""
    with trio.fail_after(60):
        await session.wait_idle()
    events = world.events(session)
    check_log(events, quiet=True)
    check_memory(session, events)
    return events
