"""What the two programs say to each other: names, numbers and shapes, and nothing that does IO.

The protocol is JSON-RPC 2.0, one object per line (see `control`). This module holds what both ends
must agree on: the parameters of every method, the verbs, the forms of ids, names, durations and
times, and how a session reference as typed becomes a session.

Parameters
    One class per method. A field's name is the flag's name with underscores; a field that is a
    Python keyword ends in ``_`` here and not on the wire. A field without a default is required.
    What is absent has its default, what is unknown is refused: an older daemon must never do half
    of what a newer client asked.

Why not dataclasses: making forty of them costs 40 ms at import, more than half of what
``import click`` takes, and dshctl imports this module for ``ping``. `Params` does the same for
well under a millisecond, and type checkers see dataclasses all the same.

Light on purpose: dshctl imports this, so nothing but the standard library, and of that only what
click loads anyway.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar, dataclass_transform

from dshd.errors import Invalid, NotFound

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

PROTOCOL: Final = 1
MAX_LINE: Final = 16 * 1024 * 1024  # bytes in one line, its newline included, in either direction
MAX_TEXT: Final = 8 * 1024 * 1024  # bytes of UTF-8 in one message
MAX_INLINE: Final = 1024 * 1024  # bytes of text that a request holds; more goes by `attachment.put`
MAX_PIECE: Final = 512 * 1024  # characters in one piece of it
MAX_LABEL: Final = 256  # characters in a key, a tag and the like, which every line about them repeats
GONE: Final = "the client that it was tied to is gone"  # the reason of an abort that ``tied`` asked for

Queue = Literal["next-turn", "next-step", "held"]
Verb = Literal["followup", "steer", "inject", "say"]
Mode = Literal["read-only", "workspace", "full"]
Ask = Literal["wait", "deny"]
Kind = Literal["user", "schedule", "agent", "job", "hook", "plugin", "system"]
Disposition = Literal["keep", "clear", "continue"]
OnCrash = Literal["hold", "requeue"]
WhenFull = Literal["refuse", "wait"]

VERBS: Final[dict[str, tuple[str, bool]]] = {  # {verb: (queue, wake)}
    "followup": ("next-turn", True),
    "steer": ("next-step", True),
    "inject": ("next-step", False),
}
MODES: Final = ("read-only", "workspace", "full")  # from the least to the most it may do

# What `set` and the session options know: {name: how its value is read}. `env.NAME` is text too.
SETTINGS: Final[dict[str, str]] = {
    "dir": "directory",
    "model": "text",
    "mode": "mode",
    "net": "bool",
    "ask": "ask",
    "patience": "duration",
    "max_cost": "money",
    "max_steps": "count",
    "max_time": "duration",
    "max_tokens": "count",
    "max_errors": "count",
    "session_cost": "money",
}
# What else they may be called: as the options are, and as the budgets that they set.
_CALLED: Final = {f"turn_{kind}": f"max_{kind}" for kind in ("cost", "steps", "time", "tokens", "errors")}


def setting_name(name: str) -> str:
    """A setting's own name: ``max-cost`` and ``turn_cost`` are ``max_cost``."""
    if name.startswith("env."):
        return name
    name = name.replace("-", "_")
    return _CALLED.get(name, name)


# Settings that always have a value, and what may be one: they can't be unset.
NEEDED: Final[dict[str, str]] = {
    "dir": "a directory",
    "model": "a route: dshctl models",
    "mode": ", ".join(MODES),
    "net": "on, off",
    "ask": "wait, deny",
}

# ---------------------------------------------------------------- parameters

T = TypeVar("T", bound="Params")


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Params:
    """Base of all parameter classes: keyword-only, frozen, compared by value.

    ``method`` is the RPC method that takes it; ``fields`` is ``{name: default}``, with `REQUIRED`
    where there is none.
    """

    method: ClassVar[str] = ""
    fields: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, *, method: str = "") -> None:
        cls.method = method
        own = {name: cls.__dict__.get(name, REQUIRED) for name in cls.__annotations__}
        cls.fields = {**cls.fields, **own}

    def __init__(self, **given: Any) -> None:
        values = {**self.fields, **given}
        if len(values) != len(self.fields):
            raise TypeError(f"{type(self).__name__} has no field {sorted(given.keys() - self.fields.keys())}")
        missing = [name for name, value in values.items() if value is REQUIRED]
        if missing:
            raise TypeError(f"{type(self).__name__} needs {missing}")
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), repr(self.__dict__)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.to_json().items())})"

    def check(self) -> None:
        """What a field's type doesn't say. Raises `Invalid`."""

    def replace(self: T, **changes: Any) -> T:
        """A copy with these fields changed."""
        return type(self)(**{**self.__dict__, **changes})

    def to_json(self) -> dict[str, Any]:
        """What goes on the wire: the fields that differ from their defaults, by their wire names."""
        return {wire_name(k): _plain(v) for k, v in self.__dict__.items() if v != self.fields[k]}


def check_labels(**labels: str | None) -> None:
    """Raises `Invalid` for one that is empty or too long."""
    for name, text in labels.items():
        if text is not None and not 0 < len(text) <= MAX_LABEL:
            raise Invalid(
                f"a {name} has 1 to {MAX_LABEL} characters, not {len(text)} @ $.{name}", outcome="not-written"
            )


def check_variables(env: Mapping[str, str]) -> None:
    """Raises `Invalid` for what no process can have in its environment."""
    for name, value in env.items():
        if not is_variable(name, value):
            why = "has a =" if "=" in name else "or its value has a NUL" if name else "is empty"
            raise Invalid(f"{name!r} can't be a variable: its name {why} @ $.env", outcome="not-written")


def is_variable(name: str, value: str) -> bool:
    """Whether a process can have it in its environment."""
    return bool(name) and "=" not in name and "\0" not in name + value


REQUIRED: Final[Any] = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


def wire_name(field: str) -> str:
    """``as_`` is ``as`` on the wire."""
    return field.removesuffix("_")


def _plain(value: Any) -> Any:
    if isinstance(value, Params):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


class Position(Params):
    """A place in a log: that line's ``seq`` and ``crc``. ``seq`` -1 is before the first line."""

    seq: int
    crc: str = ""


class InSession(Params):
    """Where: the session reference as typed (None: the session of the directory ``cwd``)."""

    session: str | None = None
    cwd: str | None = None


class OfMessages(Params):
    """Which messages, by id; an id names its log, so no session is needed."""

    messages: tuple[str, ...]


class HelloParams(Params, method="daemon.hello"):
    """The first request of a connection. ``tty`` and ``client`` are for people to read only."""

    protocol: int
    client: str | None = None
    version: str | None = None
    mode: Literal["read", "write"] = "write"
    tty: str | None = None

    def check(self) -> None:
        check_labels(client=self.client, tty=self.tty)


class StatusParams(Params, method="daemon.status"):
    pass


class ReloadParams(Params, method="daemon.reload"):
    pass


class StopParams(Params, method="daemon.stop"):
    pass


class CreateParams(Params, method="session.create"):
    """A new session, and with ``text`` or ``content`` its first message in the same request.

    ``dir`` is absolute. ``implicit`` makes it the session of that directory, ``run`` one that closes
    itself. ``name`` None means none, or, with ``implicit``, one made from the directory's. ``env`` is
    what `paths.session_environment` gives; names that look like secrets are kept out of the log.
    ``terminal``: a person sits at the client. ``key`` is unique in the state directory; the same key
    again gives the first session and receipt, and with ``retry`` tries again what failed. ``patience`` and
    ``max_time`` are in seconds; the ``max_...`` are budgets of each turn, 0 is none. ``tied``: aborted when
    this connection ends.
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
    as_: Kind | None = None

    def check(self) -> None:
        check_labels(key=self.key)
        check_variables(self.env)


class ListParams(Params, method="session.list"):
    """``all`` includes closed ones. With ``cwd`` the answer names the session of that directory."""

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


class ExportParams(InSession, method="session.export"):
    """The file as ``export.piece`` notifications (``data``: base64), in order, then the answer."""


class ImportParams(Params, method="session.import"):
    """``upload``: the file, as it was put by `AttachmentPutParams`. ``as_new``: under a new id.
    ``repair``: also if its log is damaged. ``env`` as in `CreateParams`; without secrets."""

    upload: str
    as_new: bool = False
    repair: bool = False
    env: dict[str, str] = {}  # noqa: RUF012 - never changed

    def check(self) -> None:
        check_variables(self.env)


class SendParams(InSession, method="session.send"):
    """Say something: by ``verb``, or by ``queue`` and ``wake``; ``text`` or ``content``, not both.

    ``create`` is used when no session is found: for a reference by directory, or for a name
    (``-s NAME --create``). ``settings``: what one that is found must have, as in `SetParams`, and its
    ``name``; else it is a conflict and nothing is sent. ``if_turn`` is a turn number. ``as_`` lowers
    ``source.kind``.

    Time: ``at`` is Unix ms (whoever typed a clock time knows in which zone), ``in_`` and ``expires``
    are seconds from the moment at which the daemon decides. ``hold`` keeps it for a person.
    ``retry``: a ``key`` whose message settled with an error, or was interrupted, is tried again.
    ``supersede`` replaces what waits with the same ``tag``. ``dry_run`` is answered with a ``would``
    and writes nothing. ``when_full`` ``wait``: answered once there was room; a client that goes away
    meanwhile has sent nothing.

    A block of ``content`` is ``{"type": "text", "text": T}``, or ``{"type": "text", "upload": U}`` for
    a text that was put by `AttachmentPutParams`.
    """

    verb: Verb | None = None
    queue: Queue | None = None
    wake: bool | None = None
    no_wake: bool = False
    text: str | None = None
    content: list[dict[str, Any]] | None = None
    key: str | None = None
    retry: bool = False
    tag: str | None = None
    first: bool = False
    if_idle: bool = False
    if_empty: bool = False
    if_turn: int | None = None
    at: int | None = None
    in_: float | None = None
    expires: float | None = None
    hold: bool = False
    supersede: bool = False
    on_crash: OnCrash | None = None
    when_full: WhenFull = "refuse"
    dry_run: bool = False
    as_: Kind | None = None
    tied: bool = False
    create: CreateParams | None = None
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def check(self) -> None:
        check_labels(key=self.key, tag=self.tag)
        if self.create is not None:
            self.create.check()
        later = self.at is not None or self.in_ is not None
        for holds, sentence, field in (
            (self.queue == "held", "a message is not sent to held; hold it", "queue"),
            (self.at is not None and self.in_ is not None, "--at and --in: one of them", "in"),
            (self.hold and later, "--hold waits for a person, --at and --in for a time: one of them", "hold"),
            (self.first and (self.hold or later), "--first goes with neither --hold, --at nor --in", "first"),
            (self.retry and self.key is None, "--retry needs --key, to say what", "retry"),
            (self.supersede and not self.tag, "--supersede needs --tag, to say which", "supersede"),
            (self.in_ is not None and self.in_ < 0, "--in must not be negative", "in"),
            (self.expires is not None and self.expires <= 0, "--expires must be more than 0", "expires"),
        ):
            if holds:
                raise Invalid(f"{sentence} @ $.{field}", outcome="not-written")

    def intent(self) -> tuple[str, bool]:
        """``(queue, wake)`` as asked; ``say`` counts as ``followup`` here."""
        queue, wake = VERBS.get(self.verb or "followup", VERBS["followup"])
        chosen = wake if self.wake is None else self.wake
        return self.queue or queue, chosen and not self.no_wake


class InterruptParams(InSession, method="session.interrupt"):
    """``keep``: the end of this text's turn parks, instead of going on with the rest."""

    text: str | None = None
    content: list[dict[str, Any]] | None = None
    key: str | None = None
    tag: str | None = None
    keep: bool = False
    reason: str | None = None
    as_: Kind | None = None

    def check(self) -> None:
        check_labels(key=self.key, tag=self.tag)


class AbortParams(InSession, method="session.abort"):
    turn: int | None = None
    disposition: Disposition = "keep"
    tree: bool = True
    reason: str | None = None


class WakeParams(InSession, method="session.wake"):
    """``all``: every session; ``message``: release a held one. ``add`` raises the budget that stopped the
    session: ``{cost: 2}``, by the kinds in `dshd.budgets`, time in seconds."""

    message: str | None = None
    all: bool = False
    add: dict[str, float] = {}  # noqa: RUF012 - never changed


class RetryParams(InSession, method="session.retry"):
    """The last turn once more, with nothing new said. ``message``: only if it is one of that turn.
    ``tied``: aborted when this connection ends."""

    message: str | None = None
    tied: bool = False


class WaitParams(InSession, method="session.wait"):
    """Wait for the end of these messages, or (none) for idle. ``stay``: also where only a person helps."""

    messages: tuple[str, ...] = ()
    stay: bool = False


class FsckParams(InSession, method="session.fsck"):
    """``all``: every session (``session`` must be None)."""

    all: bool = False
    repair: bool = False
    requests: bool = False


class QueueLsParams(InSession, method="queue.ls"):
    queue: Queue | None = None


class QueueShowParams(Params, method="queue.show"):
    message: str


class QueueEditParams(Params, method="queue.edit"):
    """``version`` is the one that `queue.show` told; None edits whatever is there."""

    message: str
    text: str | None = None
    content: list[dict[str, Any]] | None = None
    version: int | None = None


class QueueFirstParams(OfMessages, method="queue.first"):
    pass


class QueueLastParams(OfMessages, method="queue.last"):
    pass


class QueuePromoteParams(OfMessages, method="queue.promote"):
    pass


class QueueDemoteParams(OfMessages, method="queue.demote"):
    pass


class QueueRmParams(OfMessages, method="queue.rm"):
    pass


class QueueClearParams(InSession, method="queue.clear"):
    queue: Queue | None = None


class QueueUndoParams(InSession, method="queue.undo"):
    """Take back the newest removal, clearing, expiry, supersession, reject or aborted message."""


class AttachmentPutParams(Params, method="attachment.put"):
    """A piece of a long text, at most `MAX_PIECE` characters; ``upload`` None begins a new one.

    What was put belongs to this connection, and is gone with it or when a send has taken it. ``data``
    instead of ``text``: a piece of a file for `ImportParams`, base64.
    """

    text: str | None = None
    upload: str | None = None
    data: str | None = None


class MessageShowParams(Params, method="message.show"):
    message: str


class MessageWhyParams(Params, method="message.why"):
    message: str


class AnswerShowParams(InSession, method="answer.show"):
    """The answer to ``message``, else the session's newest; ``n`` counts back from the newest, from 1."""

    message: str | None = None
    n: int = 1


class ModelListParams(Params, method="model.list"):
    pass


class LogReadParams(InSession, method="log.read"):
    """A piece of a log, as ``log.event`` notifications, then the answer.

    Chosen by the last ``turns`` turns, by ``turn`` ``(first, last)``, by ``since`` (Unix ms), or by
    ``after``; none of them: the whole log. ``chunks``: with ``assistant/chunk`` events.
    """

    after: Position | None = None
    turns: int | None = None
    turn: tuple[int, int] | None = None
    since: int | None = None
    chunks: bool = False


class LogFollowParams(InSession, method="log.follow"):
    """Stream from ``after`` (None: from the start, or the last ``turns`` turns; 0: only what comes).

    ``all``: every session, each from its place in ``positions``, others from now on.
    """

    after: Position | None = None
    turns: int | None = None
    chunks: bool = True
    all: bool = False
    positions: dict[str, Position] = {}  # noqa: RUF012 - never changed


class LogUnfollowParams(Params, method="log.unfollow"):
    """``session`` is the id that `log.follow` answered; None ends all of this connection's."""

    session: str | None = None


# ---------------------------------------------------------------- ids and names

ID_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: never misread, never a word
SESSION_ID: Final = re.compile(rf"s[{ID_ALPHABET}]{{7}}\Z")
MESSAGE_ID: Final = re.compile(rf"(s[{ID_ALPHABET}]{{7}})\.([1-9][0-9]*)\Z")
NAME_MAX: Final = 64  # characters
SPOOLED: Final = "spool:"  # how another name of a message that was spooled begins; see `dshd.spool`
_SPOOL_ID: Final = re.compile(r"spool:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z", re.ASCII)
PREFIX_MIN: Final = 3  # characters of a name or id that may stand for the whole


def session_id(random: bytes) -> str:
    """A session id from 7 random bytes."""
    return "s" + "".join(ID_ALPHABET[byte & 31] for byte in random[:7])


def is_session_id(text: str) -> bool:
    return SESSION_ID.match(text) is not None


def spool_uuid(text: str) -> str | None:
    """What stands behind ``spool:``, None if this is no such name."""
    match = _SPOOL_ID.match(text)
    return match and match[1]


def is_message(text: str) -> bool:
    """Whether it is a message's id, or its other name, ``spool:UUID``."""
    return MESSAGE_ID.match(text) is not None or spool_uuid(text) is not None


def session_of(message: str) -> str:
    """The session id in a message id. Raises `Invalid` if it isn't one."""
    match = MESSAGE_ID.match(message)
    if match is None:
        raise Invalid(f'"{message}" is not the id of a message', hint="dshctl queue")
    return match[1]


def _allowed_in_name(char: str) -> bool:
    return char.isalnum() or char in "._-/:"


def check_name(name: str) -> str:
    """The name, or `Invalid`: 1-64 letters, digits, ``. _ - / :``, and neither ``.`` nor like an id."""
    if not 1 <= len(name) <= NAME_MAX or not all(map(_allowed_in_name, name)):
        raise Invalid(f'"{name}" is no name for a session: 1 to 64 letters, digits and . _ - / :')
    if name == "." or is_session_id(name) or MESSAGE_ID.match(name) or name.startswith("-"):
        raise Invalid(f'"{name}" is no name for a session: it means something else')
    return name


def name_for_directory(directory: str, taken: Iterable[str]) -> str:
    """A free name made from a directory's: what is not allowed becomes ``-``; ``-2``, ``-3`` if taken."""
    base = "".join(c if _allowed_in_name(c) else "-" for c in os.path.basename(directory.rstrip("/")))
    base = base.strip("-.")[: NAME_MAX - 6] or "root"
    if is_session_id(base):
        base += "-1"
    used = set(taken)
    return next(name for name in _numbered(base) if name not in used)


def numbered(name: str, taken: Iterable[str | None]) -> str:
    """``name``, or ``name-2``, ``name-3``, ... if it is taken."""
    used = set(taken)
    if name not in used:
        return name
    return next(one for one in _numbered(name[: NAME_MAX - 6]) if one not in used)


def _numbered(base: str) -> Iterator[str]:
    yield base
    number = 2
    while True:
        yield f"{base}-{number}"
        number += 1


# ---------------------------------------------------------------- which session


class SessionRow(Params):
    """What resolving needs of a session. ``implicit``: made for its directory, not by ``--name`` or run.

    A session whose header can't be read has no name; its id is its directory's name.
    """

    id: str
    name: str | None = None
    dir: str = ""
    state: str = "idle"
    implicit: bool = False
    active_at: int = 0


def resolve(
    ref: str | None, rows: Sequence[SessionRow], cwd: str | None, *, exact: bool = False, home: str = ""
) -> SessionRow:
    """The session that ``ref`` means, as typed after ``-s``; None and ``.`` mean this directory's.

    An exact name, else an exact id, else a unique prefix of at least 3 characters (not with
    ``exact``). A name that several have (closed sessions keep theirs) means the open one, else the
    one last active. Raises `NotFound` with what is close, `Invalid` for an empty reference. ``home``
    only shortens the directories in messages.
    """
    if ref is None or ref == ".":
        return _of_directory(rows, cwd, home)
    if not ref:
        raise Invalid("-s needs the name or id of a session")
    named = [row for row in rows if row.name == ref]
    if named:
        return max(named, key=_preference)
    found = [row for row in rows if row.id == ref]
    if not found and not exact and len(ref) >= PREFIX_MIN:
        found = _by_prefix(ref, rows)
    if not found:
        raise _unknown(ref, rows, home)
    if len(found) > 1:
        raise NotFound(f'"{ref}" could be {_listed(found, home)}.', data={"candidates": _labels(found)})
    return found[0]


def _preference(row: SessionRow) -> tuple[bool, int]:
    return row.state != "closed", row.active_at


def _by_prefix(ref: str, rows: Sequence[SessionRow]) -> list[SessionRow]:
    found = [row for row in rows if row.id.startswith(ref) or (row.name or "").startswith(ref)]
    return [row for row in found if row.state != "closed"] or found


def session_of_directory(rows: Iterable[SessionRow], cwd: str) -> SessionRow | None:
    """The one made for the nearest directory at or above ``cwd``; there, an open one before a closed."""
    by_dir: dict[str, SessionRow] = {}
    for row in rows:
        if row.implicit and (row.dir not in by_dir or _preference(row) > _preference(by_dir[row.dir])):
            by_dir[row.dir] = row
    return next((by_dir[place] for place in _upwards(cwd) if place in by_dir), None)


def _upwards(directory: str) -> Iterator[str]:
    place = os.path.normpath(directory)
    while True:
        yield place
        above = os.path.dirname(place)
        if above == place:
            return
        place = above


def _of_directory(rows: Sequence[SessionRow], cwd: str | None, home: str) -> SessionRow:
    if cwd is None:
        gone = "the current directory is gone or its name is no UTF-8"
        raise NotFound(f"{gone}, so it has no session", hint="dshctl ls")
    row = session_of_directory(rows, cwd)
    if row is not None:
        return row
    there = len([row for row in rows if row.state != "closed"])
    number = {0: "", 1: " There is 1"}.get(there, f" There are {there}")
    elsewhere = number and f"{number} elsewhere: dshctl ls"
    raise NotFound(
        f"no session for {tilde(cwd, home)} yet.{elsewhere}",
        hint="dshctl followup 'TEXT'     (makes one)",
        data={"directory": cwd},
    )


def _unknown(ref: str, rows: Sequence[SessionRow], home: str) -> NotFound:
    by_name = {row.name or row.id: row for row in sorted(rows, key=_preference)}
    close = [by_name[name] for name in near(ref, by_name)]
    tail = f" Close: {_listed(close, home)}." if close else ""
    hint = "" if close else "dshctl ls"
    return NotFound(f'no session "{ref}".{tail}', hint=hint, data={"close": _labels(close)})


def _labels(rows: Iterable[SessionRow]) -> list[str]:
    return [row.name or row.id for row in rows]


def _listed(rows: Sequence[SessionRow], home: str, most: int = 4) -> str:
    shown = ", ".join(f"{row.name or row.id} ({tilde(row.dir, home)})" for row in rows[:most])
    return shown + (f" and {len(rows) - most} more" if len(rows) > most else "")


def tilde(path: str, home: str) -> str:
    """The path as a person writes it: ``~`` for their home."""
    if home and home != "/" and (path == home or path.startswith(home.rstrip("/") + "/")):
        return "~" + path[len(home.rstrip("/")) :]
    return path


# ---------------------------------------------------------------- near words


def near(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Those of ``known`` that someone who typed ``word`` may have meant, the nearest first.

    Near is: few edits away from the word or from its beginning, so that ``apy`` finds ``apidoc``.
    """
    limit = max(1, len(word) // 3)
    ranked = sorted((*_distances(word.lower(), name.lower()), name) for name in known)
    return [name for start, whole, _longer, name in ranked if start <= limit or whole <= limit][:most]


def _distances(word: str, name: str) -> tuple[int, int, int]:
    """Edits from ``word`` to the nearest beginning of ``name`` at least 2 long, and to all of it; and how
    different their lengths are."""
    row = list(range(len(name) + 1))
    before: list[int] = row
    for i, a in enumerate(word, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(name, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == name[j - 2] and word[i - 2] == b:
                best = min(best, older[j - 2] + 1)  # two letters swapped are one slip
            row.append(best)
    return min(row[min(2, len(name)) :]), row[-1], abs(len(name) - len(word))


# ---------------------------------------------------------------- durations and times

# Of more digits than these nothing is a duration or a time, and Python refuses to read thousands of them.
_N: Final = r"\d{1,15}"
_DURATION: Final = re.compile(rf"(?=\d)(?:({_N})d)?(?:({_N})h)?(?:({_N})m)?(?:({_N})s)?\Z", re.ASCII)
_BARE: Final = re.compile(rf"{_N}(?:\.{_N})?\Z", re.ASCII)
_SECONDS: Final = (86400, 3600, 60, 1)
_MAX_SECONDS: Final = 100 * 366 * 86400


def parse_duration(text: str) -> float:
    """Seconds in a D: ``90s 10m 2h 1d 1h30m``; a bare number is seconds. Raises `Invalid`."""
    if _BARE.match(text):
        seconds = float(text)
    elif match := _DURATION.match(text):
        counts = [int(part or 0) for part in match.groups()]
        seconds = float(sum(map(operator.mul, counts, _SECONDS)))
    else:
        raise Invalid(f'"{text}" is not a duration; write 90s, 10m, 2h, 1d or 1h30m')
    if seconds > _MAX_SECONDS:
        raise Invalid(f'"{text}" is longer than 100 years')
    return seconds


_MONEY: Final = re.compile(r"\$?(\d{1,12}(?:\.\d{1,9})?|\.\d{1,9})\Z", re.ASCII)
_COUNT: Final = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)([kM]?)\Z", re.ASCII)
_SCALE: Final = {"": 1, "k": 1_000, "M": 1_000_000}


def parse_money(text: str) -> float:
    """``2``, ``0.50``, ``$5``. Raises `Invalid`."""
    match = _MONEY.match(text)
    if match is None:
        raise Invalid(f'"{text}" is not an amount of money; write 2 or 0.50')
    return float(match[1])


def parse_count(text: str) -> int:
    """``50``, ``100k``, ``1.5M``; not ``1m``, which are minutes. Raises `Invalid`."""
    match = _COUNT.match(text)
    count = round(float(match[1]) * _SCALE[match[2]], 3) if match else 0.5
    if count != int(count):
        minutes = "; m is minutes" if text.endswith("m") else ""
        raise Invalid(f'"{text}" is not a number of them{minutes}; write 50, 100k or 2M')
    return int(count)


_CLOCK: Final = re.compile(r"(?:(yesterday|today|tomorrow)[ T])?(\d{1,2}):(\d{2})(?::(\d{2}))?\Z", re.ASCII)
_UNIX: Final = re.compile(rf"@({_N}(?:\.{_N})?)\Z", re.ASCII)
_LAST_MOMENT: Final = 253_402_300_799_000  # Unix ms; the last second of 9999


def parse_time(text: str, now_ms: int, tz: tzinfo | None = None, *, past: bool = False) -> int:
    """Unix ms of a TIME: ``18:00`` (next), ``tomorrow 06:00``, ``2026-12-01 06:00``, ISO 8601, ``@UNIX``.

    ``tz`` is the zone of times that name none (None: the system's). With ``past`` (for ``--since``) a
    clock time is the last one, and ``yesterday 06:00`` is one, too; what lies in the future raises `Invalid`;
    without, what lies in the past does.
    """
    moment = _parse_moment(text.strip(), now_ms, tz, past)
    if moment is None:
        forms = "2h, 18:00, yesterday 06:00" if past else "18:00, tomorrow 06:00"
        raise Invalid(f'"{text}" is not a time; write {forms}, 2026-12-01 06:00 or @UNIX')
    if moment > _LAST_MOMENT:
        raise Invalid(f'"{text}" is after the year 9999')
    if moment < now_ms and not past:
        raise Invalid(f'"{text}" is in the past')
    if moment > now_ms and past:
        raise Invalid(f'"{text}" is still to come; write 2h, 18:00 or yesterday 06:00')
    return moment


def _parse_moment(text: str, now_ms: int, tz: tzinfo | None, past: bool) -> int | None:
    if match := _UNIX.match(text):
        return round(float(match[1]) * 1000)
    if match := _CLOCK.match(text):
        return _clock_moment(match, now_ms, tz, past)
    from datetime import datetime

    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None and not past:
            at = _next(at, now_ms, tz) or at
        return _unix_ms(at, tz)
    except (ValueError, OverflowError):
        return None


def _clock_moment(match: re.Match[str], now_ms: int, tz: tzinfo | None, past: bool) -> int | None:
    from datetime import datetime, timedelta

    day, hour, minute, second = match[1], int(match[2]), int(match[3]), int(match[4] or 0)
    today = datetime.fromtimestamp(now_ms / 1000, tz)
    try:
        at = today.replace(tzinfo=None, hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        return None
    at = at.replace(fold=0)
    if day in ("tomorrow", "yesterday"):
        at += timedelta(days=1 if day == "tomorrow" else -1)
    elif past:
        at = _last(at, now_ms, tz) or (at if day else _last(at - timedelta(days=1), now_ms, tz) or at)
    else:
        at = _next(at, now_ms, tz) or (at if day else at + timedelta(days=1))
    return _unix_ms(at, tz)


def _next(at: datetime, now_ms: int, tz: tzinfo | None) -> datetime | None:
    """This wall time, if it is still to come. In the hour that autumn has twice, the second one counts
    once the first is over."""
    return next((one for one in (at, at.replace(fold=1)) if _unix_ms(one, tz) > now_ms), None)


def _last(at: datetime, now_ms: int, tz: tzinfo | None) -> datetime | None:
    return next((one for one in (at.replace(fold=1), at) if _unix_ms(one, tz) <= now_ms), None)


def _unix_ms(moment: datetime, tz: tzinfo | None) -> int:
    """Days are added to the wall clock before this, so that a clock change moves no appointment."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=tz) if tz is not None else moment
    return round(moment.timestamp() * 1000)


# ---------------------------------------------------------------- settings as typed

_BOOLS: Final = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}


def setting(name: str, text: str) -> Any:
    """The value of ``NAME=TEXT`` for `SetParams.values`. Raises `Invalid`."""
    if name.startswith("env.") and len(name) > len("env."):
        check_variables({name[4:]: text})
        return text
    name = setting_name(name)
    if name not in SETTINGS:
        raise no_setting(name)
    return _SETTING_READERS[SETTINGS[name]](name, text)


def no_setting(name: str) -> Invalid:
    if name == "day_cost":
        return Invalid("day_cost is of all sessions together: [budget] day_cost in the config",
                       hint="man dshd-config")  # fmt: skip
    return Invalid(f'no setting "{name}"{did_you_mean(name, SETTINGS)}')


def check_unset(name: str) -> None:
    """Whether ``NAME=`` means something. Raises `Invalid`, naming the choices, for what has no "none"."""
    if name in NEEDED:
        raise Invalid(f"{name} can't be empty: {NEEDED[name]}")
    setting(name, "") if name not in SETTINGS else None


def _one_of(*words: str) -> Any:
    def read(name: str, text: str) -> str:
        if text not in words:
            raise Invalid(f"{name} is one of {', '.join(words)}, not {text!r}")
        return text

    return read


def _bool(name: str, text: str) -> bool:
    if text.lower() not in _BOOLS:
        raise Invalid(f"{name} is on or off, not {text!r}")
    return _BOOLS[text.lower()]


_SETTING_READERS: Final[Mapping[str, Any]] = {
    "text": lambda name, text: text,
    "directory": lambda name, text: os.path.abspath(text),
    "mode": _one_of(*MODES),
    "ask": _one_of("wait", "deny"),
    "bool": _bool,
    "duration": lambda name, text: parse_duration(text),
    "money": lambda name, text: parse_money(text),
    "count": lambda name, text: parse_count(text),
}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean max_tokens?`` or nothing."""
    close = near(word, known, most=1)
    return f"; did you mean {close[0]}?" if close else ""
