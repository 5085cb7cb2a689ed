"""All sections in one class, and what is asked of them together."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import attrs

from dshd.config.budget import Budget
from dshd.config.daemon import Daemon, Driver, Inbox, Recovery
from dshd.config.hooks import Hook, Notify, in_vain
from dshd.config.model import Model
from dshd.config.policy import Policy
from dshd.config.routes import Route, unpriced, used_routes
from dshd.config.sessions import Sessions
from dshd.config.tools import Approval, Jobs, Rule, Server, Tools, unserved
from dshd.wire import MODES, Mode


@attrs.frozen(slots=True, kw_only=True)
class Config:
    """All of it: a field for each section."""

    model: Model = attrs.field(factory=Model)
    routes: dict[str, Route] = attrs.field(factory=dict)
    daemon: Daemon = attrs.field(factory=Daemon)
    driver: Driver = attrs.field(factory=Driver)
    inbox: Inbox = attrs.field(factory=Inbox)
    sessions: Sessions = attrs.field(factory=Sessions)
    budget: Budget = attrs.field(factory=Budget)
    tools: Tools = attrs.field(factory=Tools)
    approval: Approval = attrs.field(factory=Approval)
    jobs: Jobs = attrs.field(factory=Jobs)
    notify: Notify = attrs.field(factory=Notify)
    recovery: Recovery = attrs.field(factory=Recovery)
    rules: list[Rule] = attrs.field(factory=list)
    hooks: list[Hook] = attrs.field(factory=list)
    plugins: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    mcp: dict[str, Server] = attrs.field(factory=dict)
    policy: Policy = attrs.field(factory=Policy)

    @cached_property
    def currency(self) -> str:
        """Of the limits: what the routes' prices are in."""
        prices = (route.price for route in self.used_routes().values())
        return next((price.currency for price in prices if price is not None), "USD")

    def used_routes(self) -> dict[str, Route]:
        """See `routes.used_routes`."""
        return used_routes(self.routes, self.model.default)

    def unpriced(self, ref: str) -> str | None:
        """Why a limit in money can't hold for a session with this model; None if it can."""
        name = ref.partition("/")[0]
        others = (other.partition("/")[0] for other in self.routes.get(name, Route()).fallback or ())
        return unpriced(self.routes, (name, *others))

    def key_variables(self) -> tuple[str, ...]:
        """The variables that routes take their keys from."""
        return tuple(route.api_key_env for route in self.routes.values() if route.api_key_env)

    def warnings(self) -> list[str]:
        """What is right and still not what its writer will see, a sentence each."""
        return [*in_vain(self.hooks), *unserved(self.mcp)]

    def within_policy(self, mode: Mode) -> Mode:
        """The mode, or the most that the policy allows."""
        return min(mode, self.policy.max_mode, key=MODES.index)


APPENDED: Final = ("rules", "hooks")  # lists of which the user's are put behind the system's
SYSTEMS_OWN: Final = "policy"  # the section that a user's file may not have
