"""Sessions: made, listed, changed, closed, checked."""

from __future__ import annotations

from typing import Any

from dshd.wire.params import InSession, Params, check_labels, check_variables
from dshd.wire.terms import Ask, Kind, Mode


class CreateParams(Params, method="session.create"):
    """A new session, and with ``text`` or ``content`` its first message in the same request.

    ``dir`` is absolute. ``implicit`` makes it the session of that directory, ``run`` one that closes
    itself. ``name`` None means none, or, with ``implicit``, one made from the directory's. ``env`` is
    what `paths.session_environment` gives; names that look like secrets are kept out of the log.
    ``terminal``: a person sits at the client. ``key`` is unique in the state directory; the same key
    again gives the first session and receipt, and with ``retry`` tries again what failed. ``patience`` and
    ``max_time`` are in seconds; the ``max_...`` are budgets of each turn, 0 is none. ``tied``: aborted when
    this connection ends. ``schema``: the JSON schema that its answers have to fit.
    """

    dir: str
    name: str | None = None
    implicit: bool = False
    run: bool = False
    model: str | None = None
    mode: Mode | None = None
    net: bool | None = None
    ask: Ask | None = None
    patience: float | None = None
    max_cost: float | None = None
    max_steps: int | None = None
    max_time: float | None = None
    max_tokens: int | None = None
    env: dict[str, str] = {}  # noqa: RUF012 - never changed
    terminal: bool = False
    text: str | None = None
    content: list[dict[str, Any]] | None = None
    key: str | None = None
    retry: bool = False
    tied: bool = False
    schema: dict[str, Any] | None = None
    as_: Kind | None = None

    def check(self) -> None:
        check_labels(key=self.key)
        check_variables(self.env)


class ListParams(Params, method="session.list"):
    """``all`` includes closed ones. With ``cwd`` the answer names the session of that directory."""

    all: bool = False
    cwd: str | None = None


class FollowListParams(Params, method="session.follow_list"):
    """The same answer, and from then on which rows change, come and go."""

    all: bool = False
    cwd: str | None = None


class ShowParams(InSession, method="session.show"):
    pass


class SetParams(InSession, method="session.set"):
    """``values``: `SETTINGS` names (or ``env.NAME``) to values as `setting` reads them; None unsets."""

    values: dict[str, Any]


class RenameParams(InSession, method="session.rename"):
    name: str


class CloseParams(InSession, method="session.close"):
    clear: bool = False


class DeleteParams(InSession, method="session.delete"):
    """``session`` is an exact name or id: no prefix, no directory."""

    force: bool = False


class ReopenParams(InSession, method="session.reopen"):
    pass


class ForkParams(InSession, method="session.fork"):
    """``at`` is the seq of an event outside a turn; None: the newest such. ``name`` None: made from the
    parent's."""

    at: int | None = None
    name: str | None = None


class FsckParams(InSession, method="session.fsck"):
    """``all``: every session (``session`` must be None)."""

    all: bool = False
    repair: bool = False
    requests: bool = False
