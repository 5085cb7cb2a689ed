"""What a session needs of the daemon."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

import attrs

from dshd.driver.port import Services
from dshd.session.owner.agents import House
from dshd.session.owner.board import Board
from dshd.session.owner.jobs import Shelf


@attrs.frozen(kw_only=True)
class Surroundings:
    """``boot`` names this run of the daemon; ``start`` runs a coroutine function in its session nursery;
    ``mark`` and ``unmark`` put and remove the session's active marker; ``attach`` and ``detach``
    keep and remove attachments, ``{file name: content}`` and names; ``what_ends_us`` says what may
    end this daemon before a send is due, as a receipt's ``warning`` has it. ``reopening`` is entered
    by who opens a closed session again: (name, id); it raises `Conflict` if the name is taken. ``board`` is
    told of schedules, ``on_approvals`` that somebody asks, or has been answered, ``on_changed`` that a
    session may look different now; in ``kept_jobs`` is noted which jobs outlive the
    daemon; ``kin``: where subagents are."""

    services: Services
    start: Callable[..., None]
    mark: Callable[[str], Awaitable[None]]
    unmark: Callable[[str], Awaitable[None]]
    attach: Callable[[str, Mapping[str, bytes]], Awaitable[None]]
    detach: Callable[[str, list[str]], Awaitable[None]]
    what_ends_us: Callable[[], str | None]
    reopening: Callable[[str, str], AbstractAsyncContextManager[None]]
    board: Board
    kept_jobs: Shelf
    kin: House
    on_lines: Callable[[str, int, list[bytes]], None]
    on_reset: Callable[[str, int], None]
    on_approvals: Callable[[], None]
    on_changed: Callable[[str], None]
    boot: str
    version: str
