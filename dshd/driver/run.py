"""What a turn carries from gate to gate while it runs; all of it may be lost in a crash."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import attrs
import trio

from dshd.driver.history import History
from dshd.driver.phases import Work
from dshd.driver.places import Seat
from dshd.driver.port import Owner, Services
from dshd.driver.wishes import Wishes
from dshd.errors import Internal
from dshd.model.adapter import PreparedCall
from dshd.model.blocks import Assembler
from dshd.model.errors import ModelError
from dshd.plugins import Request
from dshd.prompt.assembly import SystemPrompt
from dshd.prompt.context import GitInfo
from dshd.session.deciding import budget
from dshd.session.fold import spending
from dshd.session.fold.events import Message
from dshd.session.fold.state import State
from dshd.tools.jobs import Leaving
from dshd.tools.registry import Registry
from dshd.tools.tool import ToolOutput


@attrs.define(eq=False)
class Run:
    """``claimed``: the batch of the step to come; ``notices``: system texts that go with it; ``retry``:
    the turn repeats an earlier one, so that its first step needs no message; ``seat``: its place among those
    that run.

    ``leaving``: of the calls whose bodies have begun, where they may go on (`hurry`), by call id.
    ``resumed``: its open step waits, since before this run.
    ``finished``: outputs of calls whose results may not be on disk yet, by call id. ``owed``: usage of
    attempts that failed, which no event tells yet.
    ``capped``: a step ended for ``max-tokens``, which sticks to the turn. ``blocked``: the gate
    refused the step that was to open. ``injects``: (source, text) of what goes to the model after the batch
    of calls; ``said``: of it what gates said of a call, by call id. ``wanted``: what plugins made of
    the step's request, if they changed it, and ``repairs``: how often after it had failed. ``halted``: why a
    gate wants the turn to end after this step; ``broken``: a plugin around a tool failed;
    ``stoppings``: how often it went on because somebody wanted
    it to; ``reshaped``: its answer did not fit the session's schema, and the model was told.
    ``turn`` 0: no turn, but maintenance. ``tools``: the turn's, whatever comes and goes
    meanwhile. ``compact_from``: tokens; below that, another compaction is
    not worth trying.
    """

    owner: Owner
    services: Services
    work: Work
    history: History
    turn: int
    seat: Seat
    claimed: tuple[Message, ...] = ()
    notices: tuple[str, ...] = ()
    begins_with: tuple[tuple[Mapping[str, Any], str], ...] = ()
    retry: bool = False
    resumed: bool = False
    step: int = 0
    capped: bool = False
    blocked: bool = False
    assembler: Assembler | None = None
    call: PreparedCall | None = None
    system: SystemPrompt | None = None
    git: GitInfo | None = None
    finished: dict[str, ToolOutput] = attrs.field(factory=dict)
    injects: list[tuple[Mapping[str, Any], str]] = attrs.field(factory=list)
    said: dict[str, list[tuple[Mapping[str, Any], str]]] = attrs.field(factory=dict)
    wanted: Request | None = None
    repairs: int = 0
    halted: str | None = None
    broken: ModelError | None = None
    stoppings: int = 0
    reshaped: bool = False
    seconds: dict[str, float] = attrs.field(factory=dict)
    leaving: dict[str, Leaving] = attrs.field(factory=dict)
    owed: Mapping[str, Any] = attrs.field(factory=dict)
    compact_from: int = 0
    wishes: Wishes = attrs.field(factory=Wishes)
    tools: Registry = attrs.field(default=attrs.Factory(lambda run: run.known_tools(), takes_self=True))

    def known_tools(self) -> Registry:
        """The tools, as far as their servers have told them."""
        known: Registry = self.services.servers.known(self.services.tools, self.state.id)
        return known

    @property
    def state(self) -> State:
        return self.owner.state

    @cached_property
    def session_dir(self) -> Path:
        readable = self.services.readable
        return readable[0] / self.state.id if readable else Path("/nonexistent")

    def attachments(self, state: State) -> str | None:
        """Where the model finds this session's attachments; None if there are none."""
        there = next(iter(state.files.items()), None)
        return str(self.session_dir / "attachments") if there is not None else None

    def says(self, doing: str | None, *, waits: str | None = None, until: int | None = None) -> None:
        """What status shows from now on."""
        self.work.says(doing, self.services.now(), waits, until)

    def prepare_call(self) -> None:
        """Pin the call that the next request is made for: by the session's and the daemon's settings as they
        are now. Raises `ModelError`."""
        patience = self.state.settings.get("patience")
        self.call = self.services.models.prepare_call(route_of(self.state), patience=patience)
        self.check_price(self.call)

    def priced(self, usage: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Usage with its cost, at the price that the call was made with."""
        return spending.priced(usage, self.call.price if self.call is not None else None)

    def check_price(self, call: PreparedCall) -> None:
        """Raises `ModelError` if what it costs is limited, and nobody could say what that is."""
        problem = budget.unpriced(self.state.settings, self.services.config(), call.route, call.price)
        if problem is not None and not call.rehearsal:
            raise ModelError("NO_ADAPTER", problem, hint="man dshd-config")

    async def stopped(self) -> NoReturn:
        """Nothing may follow an abort that is on disk. Whoever heeds it has cancelled the work by then."""
        await trio.lowlevel.checkpoint()
        raise Internal(f"turn {self.turn} of {self.state.id} was aborted, and its work goes on")

    def halt(self, why: str) -> None:
        """No step follows this one."""
        self.halted = self.halted or why

    def give_up(self) -> None:
        """Drop the answer that streamed; what it cost is owed."""
        if self.assembler is not None:
            self.owed = spending.add(self.owed, self.priced(self.assembler.usage))
        self.assembler = None

    def pay(self) -> Mapping[str, Any]:
        """What is owed, for the event that tells it."""
        owed, self.owed = self.owed, {}
        return owed

    @property
    def now(self) -> budget.Now:
        """What counts to budgets and isn't in the log."""
        services = self.services
        return budget.Now(self.work.worked, services.days.counted(services.config(), services.now()))

    def stops(self, state: State) -> budget.Stop | None:
        """The budget that keeps the turn from going on."""
        return budget.stops(state, self.services.config(), self.now) or self.services.ties.stops(state)

    def partial(self) -> list[dict[str, Any]]:
        """What has streamed and is worth keeping if the turn ends now."""
        return self.assembler.interrupted() if self.assembler is not None else []


def route_of(state: State) -> str:
    """The session's own."""
    return str(state.settings.get("model") or "")
