"""Views from the files, for when no daemon runs. Nothing here writes.

Heavier than the rest of dshctl (the daemon's own codec and fold are used, so that both show the
same), hence imported only when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dshd import wire
from dshd.errors import NotFound

if TYPE_CHECKING:
    from dshctl.base import Cli

Json = dict[str, Any]


def events(cli: Cli, select: wire.LogReadParams) -> Iterator[Json]:
    """The events of a session's log that were asked for."""
    raise NotFound("no daemon runs")
