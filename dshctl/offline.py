"""Views from the files, for when no daemon runs. Nothing here writes, and nothing is driven.

Heavier than the rest of dshctl, hence imported only when it is needed: the daemon's own reader,
fold and views are used, so that a session looks the same whether a daemon runs or not. What a
damaged log still holds is shown, with the warning that names the place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dshctl import broken
from dshctl.connection import LogLine
from dshd import config, errors, paths, wire
from dshd.control.logfile import Line, LogFile
from dshd.log.disk import Disk, RealDisk, explained
from dshd.log.store import Store
from dshd.session.deciding import budget
from dshd.session.disk import opening
from dshd.session.disk.archive import Lost
from dshd.session.registry import index
from dshd.session.registry.unloaded import view_from_log
from dshd.session.shown import ends, origins, views

if TYPE_CHECKING:
    from dshctl.base import Cli
    from dshd.session.fold.state import State

Json = dict[str, Any]


class Files:
    """The sessions of a state directory, read from their files."""

    def __init__(self, places: paths.Places, home: str) -> None:
        self.places = places
        self.disk: Disk = RealDisk()
        self.store = Store(self.disk, Path(places.state))
        self._home = home

    def ids(self) -> list[str]:
        """All ids; a state directory that was never made has none."""
        with explained("list", self.store.sessions):
            there = self.disk.exists(self.store.sessions)
        return self.store.ids() if there else []

    def view(self, id: str) -> Json:
        """The session as `session.show` has it: as it was written down, if that fits its log, else folded."""
        saved = self._indexed[0].get(id) or index.read_beside(self.disk, self.store.log_path(id))
        if saved is None:
            return self._folded(id, unread=True)
        saved.pop("lately", None)
        doing = saved.get("doing") if saved.get("waits") == "provider" else None  # so it will, by its log
        return {**saved, "phase": "idle", "doing": doing}

    def whole_view(self, id: str) -> Json:
        """The same by reading the log itself, so that damage shows."""
        return self._folded(id)

    def _folded(self, id: str, *, unread: bool = False) -> Json:
        folded = view_from_log(self.disk, self.store.log_path(id), self._indexed[1].get(id), unread=unread)
        folded.pop("lately", None)
        return folded

    @cached_property
    def _indexed(self) -> tuple[dict[str, Json], dict[str, Json]]:
        """The views that the daemon keeps of all, those that fit their logs and those that don't."""
        fitting, others = index.peek(self.disk, self.store.state, self.store.sessions, set(self.ids()))
        return {packed.row.id: packed.view() for packed, _lately in fitting}, others

    def views(self) -> list[Json]:
        return sorted((self.view(id) for id in self.ids()), key=lambda view: -(view["active_at"] or 0))

    def resolve(self, ref: str | None, cwd: str | None) -> str:
        """The id that a reference means. An exact id needs no look at the others."""
        if ref is not None and wire.is_session_id(ref) and self.store.exists(ref):
            return ref
        rows = [index.row(view) for view in self.views()]
        return str(wire.resolve(ref, rows, cwd, home=self._home).id)

    def log(self, id: str) -> LogFile:
        return LogFile(self.disk, self.store.log_path(id))

    def look(self, id: str) -> opening.Loaded:
        """The session folded, all of it. Raises NotFound if there is none."""
        return opening.look(self.disk, self._there(id))

    def glance(self, id: str) -> opening.Loaded:
        """The session folded from its checkpoint on, if it has one."""
        return opening.glance(self.disk, self._there(id))

    def _there(self, id: str) -> Path:
        if not self.disk.exists(self.store.session_dir(id)):
            raise errors.NotFound(f'no session "{id}"', hint="dshctl ls")
        return self.store.log_path(id)


def files(cli: Cli) -> Files:
    cli.out.detail("no daemon runs; reading the files")
    return Files(cli.client().places, os.environ.get("HOME", ""))


def listing(cli: Cli, params: wire.ListParams) -> Json:
    """What `session.list` answers."""
    found = files(cli).views()
    here = wire.session_of_directory(map(index.row, found), params.cwd) if params.cwd else None
    shown = [view for view in found if params.all or view["state"] != "closed"]
    return {
        "sessions": shown,
        "current": here.id if here else None,
        "closed": sum(view["state"] == "closed" for view in found),
    }


def show(cli: Cli, params: wire.ShowParams) -> Json:
    """What `session.show` answers, and where the log is."""
    found = files(cli)
    id = found.resolve(params.session, params.cwd)
    view = found.whole_view(id)
    more = {
        "budgets": _budgets(found, id),
        "schedules": _schedules(found, id, view),
        "origins": _origins(found, id),
    }
    return {**view, **more, "log": str(found.store.log_path(id))}


def _schedules(found: Files, id: str, view: Json) -> list[Json] | None:
    from dshd.session.deciding import scheduling
    from dshd.session.fold.schedules import standing
    from dshd.session.shown import scheduled

    try:
        rows = standing(found.glance(id).state.schedules)
    except errors.DshError:
        return None
    return [scheduled.schedule(one, view, scheduling.coming(one)) for one in rows]


def _budgets(found: Files, id: str) -> list[Json] | None:
    """As the daemon would show them, but for the day's, which is of all sessions; None without a config
    that can be read."""
    try:
        settings = config.load(found.places)
        uses = list(budget.shown(found.glance(id).state, settings, budget.Now()))
    except errors.DshError:
        return None
    return [use for use in uses if use["what"] != "day_cost"]


def _origins(found: Files, id: str) -> Json | None:
    try:
        return origins.of(found.glance(id).state)
    except errors.DshError:
        return None


def message(cli: Cli, params: wire.MessageShowParams) -> Json:
    """What `message.show` answers."""

    def shown(state: State) -> Json:
        _known(state, params.message)
        return views.message(state, params.message)

    return _ask(cli, files(cli), wire.session_of(params.message), shown)


def _known(state: State, message: str) -> None:
    if message not in state.receipts:
        raise errors.NotFound(f'no message "{message}"', hint=f"dshctl queue -s {state.name}")


def answer(cli: Cli, params: wire.AnswerShowParams) -> Json:
    """What `answer.show` answers."""
    found, message = files(cli), params.message
    if message is not None:
        return _ask(cli, found, wire.session_of(message), lambda state: _of_message(state, message))
    id = found.resolve(params.session, params.cwd)
    return _ask(cli, found, id, lambda state: _newest(state, params.n))


def _of_message(state: State, message: str) -> Json:
    _known(state, message)
    return ends.settled(state, message) or ends.not_ended(state, message)


def _newest(state: State, number: int) -> Json:
    turn = ends.newest_answer(state, number)
    if turn is None:
        raise errors.NotFound(f"{state.name} has no answer yet", hint=f"dshctl log -s {state.name}")
    return ends.result(state, message=turn.members[0] if turn.members else None, turn=turn)


def _ask(cli: Cli, found: Files, id: str, question: Callable[[State], Json]) -> Json:
    """Answered from the checkpoint and what lies beside it, or, where that is lost, from the log."""
    looked = found.glance(id)
    if looked.broken is not None:
        cli.out.error_sentence(looked.broken.error)
    try:
        return question(looked.state)
    except Lost:
        return question(found.look(id).state)


def events(cli: Cli, select: wire.LogReadParams) -> Iterator[tuple[str, LogLine]]:
    """The session's id and event, for each event that was asked for."""
    found = files(cli)
    id = found.resolve(select.session, select.cwd)
    log = found.log(id)
    for line in _chosen(log, select):
        if select.chunks or line.type != "assistant/chunk":
            yield id, LogLine(json.loads(line.raw), line.raw.decode("utf-8", "replace").rstrip("\n"))
    log.check()
    broken.of_log(cli.out, id, log.damage)


def _chosen(log: LogFile, select: wire.LogReadParams) -> Iterator[Line]:
    if select.turn is not None:
        yield from _turns(log, *select.turn)
    else:
        yield from log.lines(_start(log, select))


def _start(log: LogFile, select: wire.LogReadParams) -> int:
    if select.turns is not None:
        return log.last_turns(select.turns)
    return log.locate_time(select.since) if select.since is not None else 0


def _turns(log: LogFile, first: int, last: int) -> Iterator[Line]:
    """The lines from the first turn's start to the last one's end."""
    for line in log.lines(log.locate_turn(first)):
        number = _number(line) if line.type in ("turn/start", "turn/end") else 0
        if line.type == "turn/start" and number > last:
            return
        yield line
        if line.type == "turn/end" and number >= last:
            return


def _number(line: Line) -> int:
    return int(json.loads(line.raw)["data"]["turn"])


def export(cli: Cli, params: wire.ExportParams) -> Iterator[bytes | Json]:
    """What `session.export` gives: the file's bytes, then the answer."""
    from dshctl.times import now_ms
    from dshd.session.porting.packing import packed

    found = files(cli)
    id = found.resolve(params.session, params.cwd)
    name, size = found.view(id)["name"], 0
    for piece in packed(found.store, id, name, None, now_ms()):
        size += len(piece)
        yield piece
    log = found.log(id)
    log.check()
    yield {"type": "exported", "exit": 0, "session": id, "name": name, "bytes": size, "damage": log.damage}


def fsck(cli: Cli, params: wire.FsckParams) -> list[Json]:
    """Check (or repair) logs under the state lock, so that no daemon starts meanwhile."""
    from dshd.log.lock import StateLock
    from dshd.log.store import OWN

    found = files(cli)
    if not found.disk.exists(found.store.state):
        return []
    lock = StateLock(found.store.state)
    try:
        own = [OWN] if found.store.exists(OWN) else []
        if params.all:
            ids = found.ids() + own
        else:
            ids = own if own and params.session == OWN else [found.resolve(params.session, params.cwd)]
        reports = [_checked(found, id, params.repair) for id in ids]
        return [_with_requests(found, report) for report in reports] if params.requests else reports
    finally:
        lock.close()


def _checked(found: Files, id: str, repair: bool) -> Json:
    report = _check(found, id)
    if not repair or report["exit"] == 0:
        return report
    from dshd.log import repair as repairing

    try:
        repairing.repair(found.disk, found.store.log_path(id))
    except errors.DshError as error:
        return {**report, "problem": error.message, "hint": error.hint or report["hint"]}
    return {**_check(found, id), "repaired": True}


def _check(found: Files, id: str) -> Json:
    """A report as `session.fsck` makes it. Without a daemon there is no memory to compare with."""
    try:
        looked = found.look(id)
    except errors.DshError as error:
        return _report(id, id, error, events=0, size=0)
    problem = looked.broken.error if looked.broken else None
    state, size = looked.state, looked.opened.size
    return _report(id, state.name if state.id == id else id, problem, events=state.seq + 1, size=size)


def _with_requests(found: Files, report: Json) -> Json:
    """The report with what was sent to models, made again and compared."""
    from dshd.model.models import Models
    from dshd.session.registry import requests

    path = found.store.log_path(report["session"])
    try:
        return requests.add(report, requests.check(found.disk, path, Models().rebuild))
    except errors.DshError:  # it says so already
        return report


def _report(id: str, name: str, problem: errors.DshError | None, *, events: int, size: int) -> Json:
    return {
        "type": "fsck",
        "session": id,
        "name": name,
        "ok": problem is None,
        "events": events,
        "bytes": size,
        "problem": problem.message if problem else None,
        "hint": problem.hint if problem else None,
        "requests": None,
        "exit": 7 if problem else 0,
    }


def examined(cli: Cli) -> list[Json]:
    """What `daemon.doctor` would say, without a daemon: of what one that is started now would find."""
    from dshctl import spooling
    from dshd.doctor import checks, looking
    from dshd.tools.sandbox import detect_here
    from dshd.vet import vet

    found = files(cli)
    places = found.places
    spool = {**spooling.waiting(places.state)._asdict(), "dir": os.path.join(places.state, "spool")}
    facts = looking.gather(
        places,
        home=os.environ.get("HOME", ""),
        environ=os.environ,
        running=None,
        reading=lambda: vet(places, os.environ),
        sandbox=detect_here(),
        sessions=[found.whole_view(id) for id in found.ids()],
        spool=spool,
    )
    return [check.to_json() for check in checks.examine(facts)]


def usage(cli: Cli, params: wire.UsageShowParams) -> Json:
    """What `usage.show` answers."""
    from dshd.session.disk.spent import spent
    from dshd.session.shown.usage import Sums, active, local_day

    found = files(cli)
    ids = found.ids() if params.session is None else [found.resolve(params.session, params.cwd)]
    sums = Sums(params.by, local_day)
    for view in active(map(found.view, ids), params.since):
        sums.add(view, spent(found.disk, found.store.log_path(view["id"]), params.since))
    return {"type": "usages", "rows": sums.rows(), "total": sums.total()}
