"""How a session looks that isn't loaded, from its log alone; and, where that can't be read, as it was once.

By itself, because dshctl asks it where no daemon runs, and is to import no more for that than a fold needs.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from dshd.errors import DshError
from dshd.log.disk import Disk
from dshd.session.disk import opening
from dshd.session.fold import spending
from dshd.session.fold.state import State
from dshd.session.registry.last_known import last_known
from dshd.session.shown import views

log = logging.getLogger(__name__)
Json = dict[str, Any]


def unreadable(id: str, hint: str = "", *, why: str | None = None, known: Json | None = None) -> Json:
    """The view of a session whose log tells nothing; ``hint``: what helps. ``known``: how it looked once,
    if that is known, else it goes by its directory's name. ``why``: what the disk said, if that was it."""
    if known is None:
        view = views.in_directory(views.session(State(), broken="damaged", hint=hint or None), id)
    else:
        helps = {"kind": "damaged", "id": None, "hint": hint or f"dshctl fsck {id}"}
        rests = {"phase": "idle", "doing": None, "since_at": None, "waits": None, "until_at": None}
        view = {**known, **rests, "state": "damaged", "needs": [helps]}
    if why is not None:
        view["needs"][0]["what"] = why
    return view


def view_from_log(disk: Disk, path: Path, noted: Json | None = None) -> Json:
    """A session's view by folding its log, and what it spent ``lately``; of one that can't be read, what is
    known from elsewhere, of which ``noted`` is one, else what its directory says."""
    id = path.parent.name
    try:
        found = opening.glance(disk, path)
    except DshError as error:
        log.warning("session %s can't be read: %s", id, error)
        why = error.message if isinstance(error.__cause__, OSError) else None
        return unreadable(id, error.hint, why=why, known=last_known(disk, path, noted))
    word, hint = (found.broken.word, found.broken.error.hint) if found.broken else (None, None)
    if found.state.header is None and (known := last_known(disk, path, noted)) is not None:
        return unreadable(id, hint or "", known=known)
    view = views.session(found.state, size=found.opened.size, broken=word, hint=hint or None)
    view["lately"] = spending.to_json(found.state.lately)
    return views.in_directory(view, id)
