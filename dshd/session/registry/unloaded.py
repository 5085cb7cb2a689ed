"""How a session looks that isn't loaded, from its log alone; and, where that can't be read, as it was once.

By itself, because dshctl asks it where no daemon runs, and is to import no more for that than a fold needs.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from dshd.errors import Damaged, DshError
from dshd.log.disk import Disk
from dshd.session.disk import opening
from dshd.session.disk.broken import Broken
from dshd.session.fold import spending
from dshd.session.fold.state import State
from dshd.session.registry.last_known import last_known
from dshd.session.shown import views

log = logging.getLogger(__name__)
Json = dict[str, Any]


def unreadable(
    id: str, told: Json | None = None, *, why: str | None = None, known: Json | None = None
) -> Json:
    """The view of a session whose log tells nothing; ``told``: what is wrong and helps (`Broken.told`).
    ``known``: how it looked once, if that is known, else it goes by its directory's name. ``why``: what the
    disk said, if that was it."""
    told = told or Broken("damaged", Damaged(f"session {id} can't be read.")).told()
    if known is None:
        view = views.in_directory(views.session(State(), broken={**told, "kind": "damaged"}), id)
    else:
        helps = {**told, "kind": "damaged", "id": None, "hint": told["hint"] or f"dshctl fsck {id}"}
        rests = {"phase": "idle", "doing": None, "since_at": None, "waits": None, "until_at": None}
        view = {**known, **rests, "state": "damaged", "needs": [helps]}
    if why is not None:
        view["needs"][0]["what"] = why
    return view


def view_from_log(disk: Disk, path: Path, noted: Json | None = None, *, unread: bool = False) -> Json:
    """A session's view by folding its log, and what it spent ``lately``; of one that can't be read, what is
    known from elsewhere, of which ``noted`` is one, else what its directory says. ``unread``: without what
    comes before a checkpoint (`opening.glance`)."""
    id = path.parent.name
    try:
        found = opening.glance(disk, path, unread=unread)
    except DshError as error:
        log.warning("session %s can't be read: %s", id, error)
        why = error.message if isinstance(error.__cause__, OSError) else None
        told = Broken("damaged", error).told()
        return unreadable(id, told, why=why, known=last_known(disk, path, noted))
    broken = found.broken.told() if found.broken else None
    if found.state.header is None and (known := last_known(disk, path, noted)) is not None:
        return unreadable(id, broken, known=known)
    view = views.session(found.state, size=found.opened.size, broken=broken)
    view["lately"] = spending.to_json(found.state.lately)
    return views.in_directory(view, id)
