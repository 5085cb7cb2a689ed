"""Removing sessions: when somebody says so, and by themselves the runs that are long over (``keep_run``).

Gone is gone, so it is looked at twice: what would be lost is decided in the very step in which the session
stops taking anything, and who asks for it meanwhile waits and then finds none. A session that can't be
read, or whose disk failed, has nothing to lose that could be told; it goes without questions.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

import trio

from dshd import wire
from dshd.driver.port import Services
from dshd.errors import Conflict, DshError, NoSpace, NotFound, Stalled
from dshd.log.store import Store
from dshd.session.deciding import lifecycle
from dshd.session.fold.who import Peer
from dshd.session.owner import loading
from dshd.session.owner.session import Session
from dshd.session.registry.hops import Hops
from dshd.session.registry.listing import Listing
from dshd.session.registry.loader import Loader
from dshd.session.registry.run_keys import RunKeys
from dshd.session.shown.activities import WAITS_FOR_ROOM

log = logging.getLogger(__name__)
Json = dict[str, Any]

FIRST_LOOK_S: Final = 60.0  # after the start: a clock that is wrong at boot has been set by then
LOOK_S: Final = 3600.0  # between looks at most, and half of ``keep_run``
LEAST_S: Final = 1.0
RELOADED_S: Final = 60.0  # a new ``keep_run`` counts within this time
LAST_S: Final = 15.0  # for what was stopped to end, and what was asked to be written


class Remover:
    """``on_gone`` is told of each that is removed; ``children`` gives the sessions of one's subagents."""

    def __init__(
        self, store: Store, hops: Hops, listing: Listing, loader: Loader, run_keys: RunKeys,
        services: Services, on_gone: Callable[[str], None],
        children: Callable[[str], list[str]] = lambda id: [],
    ) -> None:  # fmt: skip
        self._store = store
        self._hops = hops
        self._listing = listing
        self._loader = loader
        self._run_keys = run_keys
        self._services = services
        self._on_gone = on_gone
        self._children = children

    async def remove(self, id: str, *, force: bool, peer: Peer) -> Json:
        """Remove a session for good, with all that is in its directory.

        Raises `Conflict` while it runs, is about to go on with a turn, or holds messages, unless
        ``force``, which aborts and clears first, on the record if the disk takes it; `NotFound`.
        Durability: on return it is gone.
        """
        session = await self._session(id)
        name = id if session is None else session.name
        with trio.CancelScope(shield=True):
            if session is not None:
                await _quiet(session, force, peer)
                await self._delete(id, session)
            else:
                await self._delete(id, None)
            for child in self._children(id):
                with contextlib.suppress(NotFound):
                    await self.remove(child, force=True, peer=peer)
        return {"type": "removed", "exit": 0, "session": id, "name": name}

    async def _session(self, id: str) -> Session | None:
        """None if its directory is there and can't be read. Of one whose directory somebody has taken away,
        what is still in memory; if nothing is, it is forgotten."""
        if not await self._hops.read(lambda: self._store.exists(id)):
            loaded = self._loader.loaded(id)
            if loaded is not None and loaded.word == "faulted":
                return loaded
            if loaded is None:
                await self._listing.gone(id)
            raise NotFound(f'no session "{id}"', hint="dshctl ls")
        try:
            return await self._loader.get(id)
        except NotFound:  # removed meanwhile
            raise
        except DshError as error:
            log.warning("session %s is removed unread: %s", id, error)
            return None

    async def _delete(self, id: str, session: Session | None) -> None:
        """Begins without a checkpoint: what was seen of the session still holds."""
        with self._loader.kept_out(id):
            if session is not None:
                gone = NotFound(f"session {session.name} was removed.", hint="dshctl ls")
                self._listing.left(session)
                self._loader.let_go(session, gone)
            self._services.servers.leave(id)
            await self._keep_key(id, session)
            await self._listing.gone(id)
            try:
                await self._hops.write(lambda: self._store.delete(id))
            except DshError as error:
                taken_away = isinstance(error, NotFound) and session is not None and session.word == "faulted"
                if session is not None and not taken_away:
                    self._listing.left(session)
                if not taken_away:
                    raise
                await self._hops.write(lambda: self._store.unmark(id))
            self._on_gone(id)

    async def _keep_key(self, id: str, session: Session | None) -> None:
        if session is None:
            await self._run_keys.keep(id, None)
            return
        key = session.state.settings.get("key")
        if key is None:
            return
        let_go = await session.recall(("k", key))
        try:
            await self._run_keys.keep(id, session.state)
        finally:
            let_go()

    # --- by themselves

    async def look_after(self) -> None:
        """Remove the runs that are over for longer than ``keep_run``, until the end."""
        await trio.sleep(min(FIRST_LOOK_S, self._rest()))
        while not self._loader.draining:
            for id in await self._over():
                with loading.holding():
                    await self._remove_run(id)
            await self._rested()

    def _rest(self) -> float:
        """Seconds between looks."""
        keep = self._services.config().sessions.keep_run
        return min(LOOK_S, max(LEAST_S, keep / 2)) if keep else LOOK_S

    async def _rested(self) -> None:
        looked = trio.current_time()
        while (left := looked + self._rest() - trio.current_time()) > 0:  # noqa: ASYNC110 - config may change
            await trio.sleep(min(left, RELOADED_S))

    async def _over(self) -> list[str]:
        views = await self._listing.views(True)
        over = (v for v in views if v.get("run") and v["state"] == "closed")
        return [v["id"] for v in over if self._is_old(v["active_at"])]

    def _is_old(self, at: int) -> bool:
        keep = self._services.config().sessions.keep_run
        return bool(keep) and self._services.now() - at >= keep * 1000

    async def _remove_run(self, id: str) -> None:
        """Unless it turns out to be another than it seemed."""
        try:
            session = await self._loader.get(id)
            state = session.state
            over = session.usable and state.closed
            alone = session.holders == 1 and session.at_rest
            if over and alone and state.settings.get("run") and self._is_old(state.time):
                await self._delete(id, session)
                log.info("session %s was a run, and over for long: removed", id)
        except DshError as error:
            log.warning("session %s was not removed: %s", id, error)


async def _quiet(session: Session, force: bool, peer: Peer) -> None:
    """Returns, in the same step, when nothing runs or waits, or nothing can be known of it."""
    recorded = True  # or nothing can be
    if force:
        session.ends.stop()
    with trio.move_on_after(LAST_S):
        while not _may_go(session, recorded):
            if not (recorded and session.usable and _is_busy(session)):
                await _a_change(session)
            elif not force:
                raise _refusal(session)
            else:
                recorded = await _cleared(session, peer)
        if session.usable and not force and _left(session):
            raise _refusal(session)
        return
    raise Stalled(f"not removed: what {session.name} does has not ended in {LAST_S:.0f} s.",
                  outcome="not-written")  # fmt: skip


def _may_go(session: Session, recorded: bool) -> bool:
    """Never while something is on its way to disk: it would come to a file that is closed."""
    if session.gone:
        raise NotFound(f"session {session.name} was removed.", hint="dshctl ls")
    lost = not recorded or (_is_idle(session) and not session.usable)
    return session.at_rest or (lost and not session.writes)


async def _a_change(session: Session) -> None:
    if session.keeper is not None and session.keeper.busy:
        await session.keeper.finish()
    else:
        await session.next_change()


async def _cleared(session: Session, peer: Peer) -> bool:
    """Whether what ran is aborted and what waited cleared, on the record. On a full disk it can't be,
    and removing the session makes room."""
    if _lacks_room(session):
        return False
    try:
        await session.agents.stop_all(peer.source())
        await session.jobs.stop_all("rm", peer.source(), kept=True)
        await session.abort(wire.AbortParams(disposition="clear", reason="rm"), peer)
    except NoSpace:
        return False
    except Stalled:  # the turn is stopped, and its end can't be written
        if not _lacks_room(session):
            raise
        return False
    return True


def _lacks_room(session: Session) -> bool:
    return session.activity.waits == WAITS_FOR_ROOM.waits


def _refusal(session: Session) -> Conflict:
    return Conflict(f"not removed: {session.name} {_why(session)}.",
                    hint=f"dshctl rm --force {session.name}", outcome="not-written")  # fmt: skip


def _is_idle(session: Session) -> bool:
    return session.activity.phase == "idle"


def _is_busy(session: Session) -> bool:
    works = session.state.turn is not None or session.state.compaction is not None
    busy = works or session.state.pending > 0 or bool(session.state.running_agents)
    return busy or _has_jobs(session)


def _has_jobs(session: Session) -> bool:
    """But for those that end by themselves now, with their run."""
    state = session.state
    stays = any(job.kept is not None for job in state.running_jobs) or not lifecycle.run_is_done(state)
    return bool(state.running_jobs) and stays


def _why(session: Session) -> str:
    turn, pending = session.state.turn, session.state.pending
    runs = f"runs turn {turn.number}" if turn is not None else ""
    holds = f"holds {pending} message{'s' if pending != 1 else ''}" if pending else ""
    return " and ".join(filter(None, (runs, holds))) or _left(session) or "is busy"


def _left(session: Session) -> str | None:
    """In words, what is still to come of it by itself."""
    state = session.state
    return (
        lifecycle.going_on(state)
        or lifecycle.has_schedules(state)
        or (lifecycle.has_jobs(state) or lifecycle.has_agents(state))
    )
