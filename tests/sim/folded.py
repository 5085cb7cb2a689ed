"""What has been folded already: a plan's histories begin alike, so their logs do.

States of the fold after some of the lines of one history's log. They are never changed: what another history
has beyond them is folded into a layer. The fold is a function of the lines, so nothing is left unchecked.
"""

from __future__ import annotations

from dshd.session.fold.state import State

EVERY = 16  # lines between two states that are kept


class Folded:
    """Of one session. The first log that is followed is the one whose states are kept."""

    def __init__(self) -> None:
        self._lines: list[bytes] | None = None
        self._states: list[State] = []

    def begin(self, lines: list[bytes]) -> State:
        """A state to fold into, of as many of the first lines as is known."""
        if self._lines is None:
            self._lines = lines
            return State()
        known = alike(lines, self._lines) // EVERY
        return self._states[known - 1].layer() if known else State()

    def keep(self, lines: list[bytes], state: State) -> State:
        """After each event; the state to go on with."""
        if lines is not self._lines or (state.seq + 1) % EVERY:
            return state
        self._states.append(state)
        return state.layer()


def alike(lines: list[bytes], others: list[bytes]) -> int:
    """With how many the same they begin."""
    pairs = enumerate(zip(lines, others, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(lines), len(others)))
