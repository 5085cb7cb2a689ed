"""How much is tried: as much as there is time for at each change, or with ``DSHD_LONG=1`` far more."""

from __future__ import annotations

import os
from typing import Final

LONG: Final = os.environ.get("DSHD_LONG") == "1"
USUAL: Final = 60  # made-up examples of a property, where its test says nothing else


def examples(usual: int = USUAL) -> int:
    """How many examples, where ``usual`` of them are tried at each change."""
    return usual * 50 if LONG else usual
