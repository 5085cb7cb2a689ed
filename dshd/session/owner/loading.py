"""Who holds a loaded session: what was got for a request is there until the request is answered.

A session that rests, and that nobody holds, is unloaded after a while: its file is closed and it leaves
memory. A request may hold one over any number of waits (for a lock, an attachment, a slow disk), so
`Registry.get` notes what it gives in the `holding` scope of whoever asks. Outside of any scope nothing
is noted; then the time since it was asked for must do, and a session that is gone refuses to be written
to (`Session.let_go`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import attrs

_scope: ContextVar[contextlib.ExitStack | None] = ContextVar("holding", default=None)


@attrs.frozen
class Upkeep:
    """``idle``: after how many seconds of rest a session is unloaded, and ``per_mib``: how many more for
    each MiB of its log, for what is dear to open is worth keeping; ``look``: how often it is looked.
    ``least``: how many bytes a log must have grown by to be worth a checkpoint (fewer are folded as
    quickly); ``working``: the same, while the session works."""

    idle: float = 10.0
    per_mib: float = 5.0
    look: float = 5.0
    least: int = 64 * 1024
    working: int = 4 * 1024 * 1024

    def rest(self, size: int) -> float:
        """How long (s) a session with a log of ``size`` bytes stays loaded at rest."""
        return self.idle + self.per_mib * size / 2**20


@contextlib.contextmanager
def holding() -> Iterator[None]:
    """What is got in here, also by tasks started in here, is held until its end."""
    with contextlib.ExitStack() as stack:
        token = _scope.set(stack)
        try:
            yield
        finally:
            _scope.reset(token)


def hold_or_drop(release: Callable[[], None]) -> None:
    """Call ``release`` at the end of the scope we are in; at once, if there is none."""
    stack = _scope.get()
    if stack is not None:
        stack.callback(release)
    else:
        release()
