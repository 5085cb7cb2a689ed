"""The few event types that the log itself knows, and what it says of those it doesn't."""

from __future__ import annotations

from dshd import __version__
from dshd.log.codec import Event

FORMAT_VERSION = 1
HEADER = "session/header"
GAP = "log/gap"
REPAIRED = "log/repaired"
OURS = frozenset({HEADER, GAP, REPAIRED})


def gap_event(first: int, last: int, time: int = 0, file: str | None = None) -> Event:
    """The event that stands for the seqs ``first`` to ``last``, whose bytes are kept in ``file``."""
    return Event(first, time, GAP, {"first": first, "last": last, "file": file})


def after(event: Event) -> int:
    """The seq that must follow this event's: the next, but behind a gap ``last`` + 1."""
    last = event.data.get("last") if event.type == GAP else None
    return last + 1 if type(last) is int and last >= event.seq else event.seq + 1


def why_unsupported(event: Event, known: frozenset[str]) -> str | None:
    """A clause that says why a log with this event can't be driven, and which side is newer; or None."""
    if event.seq == 0:
        return _why_header(event)
    if event.ignorable or event.type in known or event.type in OURS:
        return None
    return (
        f'it was written by a newer dshd: event {event.seq} is "{event.type}", '
        f"which this dshd {__version__} does not know"
    )


def _why_header(event: Event) -> str | None:
    if event.type == GAP:  # the header is damaged: what it says is not known
        return None
    if event.type != HEADER:
        return f'its first event is "{event.type}", not a session header'
    version = event.data.get("version")
    if version == FORMAT_VERSION:
        return None
    newer = type(version) is int and version > FORMAT_VERSION
    side = "it was written by a newer dshd" if newer else "it is older than this dshd, or none of its logs"
    return f"{side}: its format is {version}, and this dshd {__version__} knows format {FORMAT_VERSION}"
