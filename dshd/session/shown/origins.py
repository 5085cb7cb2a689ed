"""Where a session's settings come from, in a word each: what `show` puts behind them.

``session``: somebody said so, when it was made or later; ``config``; ``default``; ``directory``: so wide a
one that only reading is safe; ``policy``: the system's file allows no more. Of a model it is why it was
chosen, ``--model`` for one that was named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshd.session.fold.state import TOLD_APART, State


def of(state: State) -> dict[str, str] | None:
    """``{setting: word}``; None of a session whose header doesn't tell."""
    told = state.settings.get("origins")
    if not isinstance(told, Mapping):
        return None
    others = {name: str(told.get(name, "default")) for name in TOLD_APART}
    return {"model": told.get("model") or _why(state.settings.get("model_why")), **others}


def _why(why: Any) -> str:
    """A whole sentence is said where nobody chose."""
    words = str(why or "default")
    return "default" if words.endswith(".") else words
