"""How a session looks that isn't loaded, from its log alone.

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
from dshd.session.shown import views

log = logging.getLogger(__name__)
Json = dict[str, Any]


def unreadable(id: str, hint: str = "") -> Json:
    """The view of a session of which nothing is known but its directory's name; ``hint``: what helps."""
    return views.in_directory(views.session(State(), broken="damaged", hint=hint or None), id)


def view_from_log(disk: Disk, path: Path) -> Json:
    """A session's view by folding its log, and what it spent ``lately``; of one that can't be read, what its
    directory says."""
    id = path.parent.name
    try:
        found = opening.glance(disk, path)
    except DshError as error:
        log.warning("session %s can't be read: %s", id, error)
        return unreadable(id, error.hint)
    word, hint = (found.broken.word, found.broken.error.hint) if found.broken else (None, None)
    view = views.session(found.state, size=found.opened.size, broken=word, hint=hint or None)
    view["lately"] = spending.to_json(found.state.lately)
    return views.in_directory(view, id)
