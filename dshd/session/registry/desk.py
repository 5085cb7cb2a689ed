"""Where questions are numbered, and answers that hold everywhere are kept: one for all sessions."""

from __future__ import annotations

from dshd.log.store import Store
from dshd.session.disk.proposals import Signal
from dshd.session.registry.always import Always
from dshd.session.registry.hops import Hops
from dshd.session.registry.numbers import Numbers


class Desk:
    """``changed`` fires after each change of any session's approvals."""

    def __init__(self, store: Store, hops: Hops) -> None:
        self.numbers = Numbers(store, hops)
        self.always = Always(store, hops)
        self.changed = Signal()
