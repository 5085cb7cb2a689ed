"""`--spool`: a send that no daemon takes is kept on disk for the next one (see `dshd.spool`).

Kept is only what a daemon that starts later can do in our place. Who waits for the end, or asks for
something that holds at this moment, wants a daemon now: that stays exit 3, and nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dshctl.client import NotStarted
from dshctl.times import now_ms
from dshctl.unreached import Hidden
from dshd import errors, paths, spool, wire
from dshd.log.disk import RealDisk, explained
from dshd.log.lock import holder

if TYPE_CHECKING:
    from dshctl.base import Cli

Json = dict[str, Any]

_NOW_ONLY: Final = ("wait", "follow", "if_idle", "if_empty", "if_turn", "if_exists", "dry_run")


def send(cli: Cli, params: wire.SendParams, given: Json, ask: Callable[[], Json]) -> Json:
    """The receipt: the daemon's (``ask``), or that of the spool if there is none.

    Durability: with either it is on disk. Raises what ``ask`` raised where the spool can't help.
    """
    _check_size(params)
    try:
        return ask()
    except (errors.Unreachable, NotStarted) as error:
        why: errors.DshError = error
    flag = next((name for name in _NOW_ONLY if given.get(name) not in (None, False)), None)
    if flag is not None:
        name = flag.replace("_", "-")
        raise errors.Unreachable(
            f"{why.message.rstrip('.')}; with --{name} nothing is kept for later", hint=why.hint
        )
    try:
        kept = _keep(cli, params, hidden=isinstance(why, Hidden))
    except errors.NoSpace as full:
        raise errors.NoSpace(f"not sent: {full.message}", outcome=full.outcome) from full
    if kept is None:  # one has started meanwhile, or hangs
        return ask()
    return _receipt(params, kept)


def _check_size(params: wire.SendParams) -> None:
    """What a daemon would refuse, said now, when somebody is there to hear it."""
    texts = [block["text"] for block in params.content or [{"text": params.text or ""}]]
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if size > wire.MAX_TEXT:
        raise errors.Full(f"not sent: the text has {size} bytes, the most is {wire.MAX_TEXT}.",
                          hint="dshctl followup --ref FILE", outcome="not-written")  # fmt: skip


def _keep(cli: Cli, params: wire.SendParams, *, hidden: bool) -> spool.Spooled | None:
    """Hand it in, unless a daemon holds the state lock and could take it. One that is ``hidden`` can't; it
    looks at the spool as soon as it has made its socket again, and so finds what was handed in before."""
    places = cli.client().places
    kept = spool.Spooled(spool.new_id(), now_ms(), _source(), _lasting(params).to_json())
    place = spool.Spool(RealDisk(), Path(places.state))
    with explained("write", place.path):
        _prepare(place, places)
        with place.locked() as alone:
            if not alone:
                raise errors.Unavailable(f"{place.path} is locked by another process.", outcome="not-written")
            if holder(places.state) is not None and not (hidden and cli.client().try_connect() is None):
                return None
            place.put(kept)
    return kept


def _prepare(place: spool.Spool, places: paths.Places) -> None:
    """The directory, belonging to whom the state does: root may send for somebody."""
    place.prepare()
    owner = os.stat(places.state)
    if os.getuid() == 0 != owner.st_uid:
        os.chown(place.path, owner.st_uid, owner.st_gid)


def _source() -> Json:
    from dshctl.client import _tty

    return {"uid": os.getuid(), "pid": os.getpid(), "tty": _tty(), "client": "dshctl"}


def _lasting(params: wire.SendParams) -> wire.SendParams:
    """Without what counts only for somebody who waits."""
    return params.replace(when_full="refuse", tied=False)


def _receipt(params: wire.SendParams, kept: spool.Spooled) -> Json:
    due = params.at if params.in_ is None else kept.created + round(params.in_ * 1000)
    ends = None if params.expires is None else kept.created + round(params.expires * 1000)
    return {
        "type": "receipt", "exit": 0, "message": kept.id, "session": None, "name": _name(params),
        "dir": params.create.dir if params.create else None, "verb": params.verb, "queue": None,
        "position": None, "seq": None, "state": "spooled", "phase": None, "turn": None, "waits_for": None,
        "since_at": None,
        "due_at": due, "expires_at": ends, "redirected": False, "now": params.now, "duplicate": False,
        "retried": False, "spooled": True, "created": False, "reopened": False, "released": 0,
        "superseded": [], "replaced": 0, "parked": None, "warning": None, "outcome": None, "ended_at": None,
    }  # fmt: skip


def _name(params: wire.SendParams) -> str | None:
    """The session as typed: which one it is is settled when the send is taken up."""
    return None if params.session == "." else params.session


def message_of(cli: Cli, alias: str) -> str:
    """The message that ``spool:<uuid>`` means, from the files. Raises `NotFound`."""
    place = spool.Spool(RealDisk(), Path(cli.client().places.state))
    with explained("read", place.path):
        taken = place.find(alias)
        if taken is not None and taken.message is not None:
            return taken.message
        raise spool.missing(alias, place.fate(alias), place.refused_file(alias))


def waiting(state: str) -> spool.Counts:
    """What a daemon that starts would find."""
    return spool.Spool(RealDisk(), Path(state)).counts()
