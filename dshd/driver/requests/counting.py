"""What an answer is said to have taken, as far as that can be; who counts nonsense is told of once."""

from __future__ import annotations

import logging
from functools import lru_cache

from dshd.driver.requests.request import Prepared
from dshd.model.believed import Bounds
from dshd.model.blocks import Assembler

log = logging.getLogger(__name__)


def assembler(prepared: Prepared) -> Assembler:
    """For the answer to this request."""
    return Assembler(Bounds(prepared.call.window, prepared.tokens or 0))


def tell(assembler: Assembler, prepared: Prepared) -> None:
    if assembler.unbelieved is not None:
        _tell(prepared.call.route, prepared.call.model)


@lru_cache(64)  # once for each, not with every answer
def _tell(route: str, model: str) -> None:
    log.warning("route %s (%s) reports more tokens than can be; dshd's own count is taken", route, model)
