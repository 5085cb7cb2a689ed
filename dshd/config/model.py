"""``[model]``: the default route, and how long a model is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from dshd.config.kinds import Duration, Text
from dshd.config.routes import check_route_name

if TYPE_CHECKING:
    from dshd.config.whole import Config


@attrs.frozen(slots=True, kw_only=True)
class Model:
    """``default`` is the default route's name."""

    default: Text | None = None
    patience: Duration = 6 * 3600.0
    idle_timeout: Duration = 300.0


def check_model(config: Config) -> None:
    """Raises `Wrong`."""
    if config.model.default is not None:
        check_route_name(config, config.model.default, ("model",))
