"""Runs that schedules make: a new session at each instant, made once.

A run is made under the key of its instant, and then what became of that is noted in `schedules.HOME`. Whoever
comes again after a crash between the two finds the run by that key. Secrets of its environment are kept
beside that log (``env-c1.json``), never in it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from dshd import wire
from dshd.driver.port import Services
from dshd.errors import DshError
from dshd.log.store import Store
from dshd.session.deciding import firing
from dshd.session.deciding.firing import Instant
from dshd.session.fold.schedules import HOME, Schedule
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.session.registry import environment
from dshd.session.registry.creating import Creator
from dshd.session.registry.hops import Hops
from dshd.session.registry.listing import Listing

log = logging.getLogger(__name__)
Json = dict[str, Any]

# Of a run's view: it has not ended, and nobody is needed to end it.
_GOES_ON: Final = frozenset(("running", "waiting", "asks"))


@attrs.frozen(slots=True)
class ByClock(Peer):
    """Who makes the runs."""

    about: Any = None

    def _source(self, kind: str) -> Json:
        return dict(self.about)


class Runs:
    """``home`` is the session that stands for `schedules.HOME`, wherever it is asked for."""

    def __init__(
        self, store: Store, hops: Hops, listing: Listing, creator: Creator, services: Services
    ) -> None:
        self._store = store
        self._hops = hops
        self._listing = listing
        self._creator = creator
        self._services = services

    async def check(self, p: wire.CreateParams, peer: Peer) -> None:
        """Raises what making such a run would raise now."""
        await self._creator.check(p.replace(terminal=False), peer)

    async def fire_due(self, home: Session) -> None:
        await self._listing.rows()  # from here on the keys of all runs are known
        now = self._services.now()
        for id in list(home.state.schedules):
            one = home.state.schedules.get(id)
            if one is not None and firing.was_set_back(one, now):
                await self._reckon(home, id)
                continue
            if one is not None and one.due is not None and one.due <= now:
                one = await self._noted_cut_off(home, one)
            instant = firing.due(one, now) if one is not None else None
            if instant is not None:
                await self.fire(home, instant)

    async def _reckon(self, home: Session, id: str) -> None:
        await home.writable().record(lambda s: firing.reckon(s, id))

    async def _noted_cut_off(self, home: Session, one: Schedule) -> Schedule | None:
        """Its run is there, and what became of the instant is not noted: a crash came between the two."""
        instant = firing.cut_off(one)
        made = self._creator.id_of_key(instant.key) if instant is not None else None
        if instant is not None and made is not None:
            await self._note(home, instant, message=f"{made}.1", session=made)
        return home.state.schedules.get(one.id)

    async def fire(self, home: Session, instant: Instant) -> None:
        one = instant.schedule
        skip = instant.skip or (None if instant.by else self._overlaps(one))
        if skip is not None:
            return await self._note(home, instant, skipped=skip[0], detail=skip[1])
        try:
            made = await self._creator.create(await self._asked(instant), self._peer(instant))
        except DshError as refused:
            if refused.retryable or refused.code == DshError.code:  # a disk that fails refuses nothing
                raise
            log.warning("schedule %s was refused: %s", one.id, refused.message)
            return await self._note(
                home, instant, skipped="refused", detail=refused.message, code=refused.code
            )
        message = (made.receipt or {}).get("message")
        session = made.session.id if made.session is not None else None
        await self._note(home, instant, message=message, session=session)
        if made.session is not None and (reason := _ended(made.session)) is not None:
            await self.ended(home, instant.key, reason)

    async def ended(self, home: Session, key: str, outcome: str) -> None:
        """The run of this key has ended."""
        await home.writable().record(lambda s: firing.run_ended(s, key, outcome))

    async def _note(self, home: Session, instant: Instant, **became: Any) -> None:
        await home.writable().record(lambda s: firing.note(s, instant, **became))

    def _overlaps(self, one: Schedule) -> tuple[str, str] | None:
        sent = one.sent
        if one.overlap != "skip" or sent is None or sent.session is None or sent.outcome is not None:
            return None
        view = self._listing.view(sent.session)
        if view is None or view["state"] not in _GOES_ON:
            return None
        return "overlap", f"{sent.session} is still {view['state']}"

    async def _asked(self, instant: Instant) -> wire.CreateParams:
        one = instant.schedule
        given = {**(one.run or {}), "env": {**(one.run or {}).get("env", {}), **await self._secrets(one.id)}}
        name = given.pop("name", None)
        if name is not None:
            rows = await self._listing.rows()
            name = wire.numbered(name, {row.name for row in rows if row.state != "closed"})
        return wire.CreateParams(**given, name=name, text=one.text, key=instant.key)

    def _peer(self, instant: Instant) -> Peer:
        by = instant.schedule.by
        return ByClock(uid=int(by.get("uid") or 0), kind="schedule", about=instant.source)

    # --- secrets

    async def keep(self, id: str, env: Mapping[str, str]) -> None:
        """The secrets of a schedule that is about to be added.

        Durability: on return they are on disk.
        """
        secrets = environment.parted(env)[1]
        if secrets:
            path, data = self._path(id), json.dumps(secrets).encode()
            await self._hops.write(lambda: self._store.disk.write_atomic(path, [data]))

    async def _secrets(self, id: str) -> dict[str, str]:
        return await self._hops.read(lambda: environment.read(self._store.disk, self._path(id)))

    def _path(self, id: str) -> Path:
        return self._store.session_dir(HOME) / f"env-{id}.json"

    async def forget(self, id: str) -> None:
        """Of a schedule that was removed."""
        with contextlib.suppress(OSError):
            await self._hops.write(lambda: self._store.disk.unlink(self._path(id)))


def _ended(session: Session) -> str | None:
    """How a run has ended, if it was quicker than its note."""
    state = session.state
    turn = state.turns.get(state.last_turn) if state.turn is None else None
    return None if turn is None else turn.reason
