"""To say something."""

from __future__ import annotations

from typing import Any

from dshd.errors import Invalid
from dshd.wire.params import InSession, check_labels, check_reason
from dshd.wire.sessions import CreateParams
from dshd.wire.terms import VERBS, Kind, OnCrash, Queue, Verb, WhenFull


class SendParams(InSession, method="session.send"):
    """Say something: by ``verb``, or by ``queue`` and ``wake``; ``text`` or ``content``, not both.

    ``create`` is used when no session is found: for a reference by directory, or for a name
    (``-s NAME --create``). ``settings``: what one that is found must have, as in `SetParams`, and its
    ``name``; else it is a conflict and nothing is sent. ``if_turn`` is a turn number. ``now``: the step
    that runs is cut short for it. ``as_`` lowers
    ``source.kind``.

    Time: ``at`` is Unix ms (whoever typed a clock time knows in which zone), ``in_`` and ``expires``
    are seconds from the moment at which the daemon decides. ``hold`` keeps it for a person.
    ``retry``: a ``key`` whose message settled with an error, or was interrupted, is tried again.
    ``supersede`` replaces what waits with the same ``tag``. ``dry_run`` is answered with a ``would``
    and writes nothing. ``when_full`` ``wait``: answered once there was room; a client that goes away
    meanwhile has sent nothing.

    A block of ``content`` is ``{"type": "text", "text": T}``, or ``{"type": "text", "upload": U}`` for
    a text that was put by `AttachmentPutParams`.
    """

    verb: Verb | None = None
    queue: Queue | None = None
    wake: bool | None = None
    no_wake: bool = False
    text: str | None = None
    content: list[dict[str, Any]] | None = None
    key: str | None = None
    retry: bool = False
    tag: str | None = None
    first: bool = False
    if_idle: bool = False
    if_empty: bool = False
    if_turn: int | None = None
    now: bool = False
    at: int | None = None
    in_: float | None = None
    expires: float | None = None
    hold: bool = False
    supersede: bool = False
    on_crash: OnCrash | None = None
    when_full: WhenFull = "refuse"
    dry_run: bool = False
    as_: Kind | None = None
    tied: bool = False
    create: CreateParams | None = None
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def check(self) -> None:
        check_labels(key=self.key, tag=self.tag)
        if self.create is not None:
            self.create.check()
        later = self.at is not None or self.in_ is not None
        for holds, sentence, field in (
            (self.queue == "held", "a message is not sent to held; hold it", "queue"),
            (self.at is not None and self.in_ is not None, "--at and --in: one of them", "in"),
            (self.hold and later, "--hold waits for a person, --at and --in for a time: one of them", "hold"),
            (self.first and (self.hold or later), "--first goes with neither --hold, --at nor --in", "first"),
            (self.now and self.intent() != VERBS["steer"], "--now is for a steer", "now"),
            (self.now and (self.hold or later), "--now goes with neither --hold, --at nor --in", "now"),
            (self.retry and self.key is None, "--retry needs --key, to say what", "retry"),
            (self.supersede and not self.tag, "--supersede needs --tag, to say which", "supersede"),
            (self.in_ is not None and self.in_ < 0, "--in must not be negative", "in"),
            (self.expires is not None and self.expires <= 0, "--expires must be more than 0", "expires"),
        ):
            if holds:
                raise Invalid(f"{sentence} @ $.{field}", outcome="not-written")

    def intent(self) -> tuple[str, bool]:
        """``(queue, wake)`` as asked; ``say`` counts as ``followup`` here."""
        queue, wake = VERBS.get(self.verb or "followup", VERBS["followup"])
        chosen = wake if self.wake is None else self.wake
        return self.queue or queue, chosen and not self.no_wake


class InterruptParams(InSession, method="session.interrupt"):
    """``keep``: the end of this text's turn parks, instead of going on with the rest."""

    text: str | None = None
    content: list[dict[str, Any]] | None = None
    key: str | None = None
    tag: str | None = None
    keep: bool = False
    reason: str | None = None
    as_: Kind | None = None

    def check(self) -> None:
        check_labels(key=self.key, tag=self.tag)
        check_reason(self.reason)
