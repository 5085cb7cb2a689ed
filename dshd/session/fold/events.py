"""The vocabulary of a session's log: event types, their durability class, and the message.

An event's *class* says when the world may know of it. *Now* events are durable before anyone is
told or anything is done; *soon* events are told at once and synced with the next *now* event, at
the latest after `SOON_SYNC_S`. No acknowledgement, claim or decision rests on a *soon* event.

Sans-IO: nothing here knows a disk, a clock or Trio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any, ClassVar, Final, Literal

import attrs

from dshd.session.fold.values import shared

VERSION: Final = 1
SOON_SYNC_S: Final = 1.0

HEADER: Final = (
    "version", "id", "name", "created", "dir", "model", "mode", "parent", "seed", "origin", "depth",
)  # fmt: skip

Queue = Literal["next-turn", "next-step", "held"]
QUEUES: Final[tuple[Queue, ...]] = ("next-turn", "next-step", "held")
Block = Mapping[str, Any]

_TYPES: Final = (
    "session/header session/changed session/closed session/reopened session/opened",
    "session/forked session/imported",
    "inbox/spliced driver/woken turn/start turn/end step/start step/rejected step/end",
    "user/message assistant/chunk assistant/message tool/call tool/result",
    "request/header request/context request/sent llm/retry",
    "compaction/start compaction/summary compaction/end",
    "approval/asked approval/answered approval/forgotten abort/requested todo/write log/gap log/repaired",
    "hook/ran hook/due hook/begun hook/done",
    "schedule/added schedule/removed schedule/paused schedule/resumed schedule/reckoned",
    "schedule/fired schedule/ended job/started job/kept job/ended",
    "subagent/started subagent/spent subagent/ended subagent/told",
)
KNOWN_TYPES: Final = frozenset(type for line in _TYPES for type in line.split())
_HOOKS: Final = ("hook/ran", "hook/due", "hook/begun", "hook/done")
SOON_TYPES: Final = frozenset(
    ("assistant/chunk", "tool/result", "step/end", "llm/retry", "todo/write", *_HOOKS)
)

ON_SURFACE: Final = frozenset(("user/message", "assistant/message", "tool/result"))

TURN_REASONS: Final = (
    "completed", "aborted", "blocked", "error", "max-tokens", "budget", "interrupted",
)  # fmt: skip


def header(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of `session/header`: what is in `HEADER` always, null where there is nothing; of the rest
    what there is."""
    more = {name: value for name, value in data.items() if name not in HEADER and value is not None}
    return {**{name: data.get(name) for name in HEADER}, **more}


def is_soon(type: str) -> bool:
    """Whether events of this type are told before they are synced."""
    return type in SOON_TYPES


def is_known(type: str) -> bool:
    """Whether this daemon knows what the event means (see SPEC: unknown types)."""
    return type in KNOWN_TYPES


def _compact(content: str | Sequence[Block]) -> str | tuple[Block, ...]:
    if isinstance(content, str):
        return content
    if len(content) == 1 and len(content[0]) == 2 and content[0].get("type") == "text":
        text = content[0].get("text")
        if type(text) is str:
            return text
    return tuple(content)


@attrs.frozen(slots=True, weakref_slot=False)
class Message:
    """Something said to the agent. Its ``id`` (``<session id>.<n>``) never changes.

    ``created``, ``expires`` and ``due`` are Unix ms. ``front`` marks a message that went to the
    head of its queue (redirected, unparking, deferred, ``--first``): later ones of its kind go
    behind it. ``home`` is the queue to which a held message returns. ``then_park`` makes the end
    of the turn it opens park the session (``interrupt --keep``). ``if_turn`` is the one turn it is
    meant for: when that ends first, it expires. ``asked`` is the verb as asked where it is another
    than ``verb`` (``say``, ``interrupt``). ``now``: the step that runs is cut short for it. ``source.kind``
    is one of user, schedule, agent, job, hook, plugin, system.
    """

    id: str
    _content: str | tuple[Block, ...] = attrs.field(converter=_compact)
    source: Mapping[str, Any]
    created: int
    wake: bool
    verb: str
    key: str | None = None
    expires: int | None = None
    due: int | None = None
    tag: str | None = None
    on_crash: str | None = None
    front: bool = False
    home: Queue | None = None
    then_park: bool = False
    if_turn: int | None = None
    asked: str | None = None
    now: bool = False
    version: int = 1

    @property
    def kind(self) -> str:
        return str(self.source.get("kind", "user"))

    @property
    def content(self) -> tuple[Block, ...]:
        """Its blocks. Where there is one, of text, only the text is kept: thousands may wait."""
        given = self._content
        return (text_block(given),) if isinstance(given, str) else given

    @property
    def text(self) -> str:
        """The blocks' texts, joined by newlines: what a person reads in lists."""
        given = self._content
        return given if isinstance(given, str) else "\n".join(map(excerpt, given))

    @property
    def bytes(self) -> int:
        """Size against the inbox's limit: UTF-8 bytes of its texts, attached ones too."""
        given = self._content
        return _utf8(given) if isinstance(given, str) else sum(map(block_bytes, given))

    def to_json(self) -> dict[str, Any]:
        """As it stands in the log; absent means unset."""
        data: dict[str, Any] = {
            "id": self.id,
            "role": "user",
            "content": list(self.content),
            "source": self.source,
            "created": self.created,
            "wake": self.wake,
            "verb": self.verb,
        }
        for name in _IN_ORDER:
            value = getattr(self, name)
            if value is not None and value is not False:
                data[name] = value
        if self.version != 1:
            data["version"] = self.version
        return data

    # What was put into a splice last, and from what: a send is folded right after it was written down.
    _newest: ClassVar[tuple[Mapping[str, Any], Any]] = ({}, None)

    def written(self) -> dict[str, Any]:
        """`to_json` for an event that is made now. Not to be changed: `from_json` knows it again."""
        data = self.to_json()
        Message._newest = (data, self)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Message:
        written, message = cls._newest
        if written is data and message is not None:
            return message  # type: ignore[no-any-return]
        return cls(
            id=data["id"],
            content=data["content"],
            source=shared(data.get("source") or {}),
            created=data.get("created", 0),
            wake=bool(data.get("wake", True)),
            verb=intern(data.get("verb", "followup")),
            version=data.get("version", 1),
            **{name: data[name] for name in _OPTIONAL & data.keys() if data[name] is not None},
        )


_IN_ORDER: Final = (
    "key", "expires", "due", "tag", "on_crash", "front", "home", "then_park", "if_turn", "asked", "now",
)  # fmt: skip
_OPTIONAL: Final = frozenset(_IN_ORDER)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def block_bytes(block: Block) -> int:
    """UTF-8 bytes of a block's text; of an attachment, of the whole."""
    if block.get("type") == "file":
        return int(block["bytes"])
    return _utf8(str(block.get("text", "")))


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def excerpt(block: Block, place: str | None = None) -> str:
    """A block as text: what was sent, or of an attachment its head, its tail, and what lies between
    (``place``: the directory of the attachments, for those who can read there)."""
    if block.get("type") != "file":
        return str(block.get("text", ""))
    where = f"; all of it: {place}/{file_name(block['sha256'])}" if place else ""
    shown = len((block["head"] + block["tail"]).encode("utf-8", "replace"))
    of = f"{block['bytes']} bytes, {block['lines']} lines"
    note = f"[... {int(block['bytes']) - shown} bytes left out of {of}{where} ...]"
    return f"{block['head']}\n{note}\n{block['tail']}"


def file_name(sha256: str) -> str:
    """What an attachment is called in its session's directory of them."""
    return f"{sha256}.txt"


def splice(queue: Queue, *, remove: Sequence[str] = (), insert: Sequence[Message] = (),
           before: str | None = None) -> dict[str, Any]:  # fmt: skip
    """One op of an ``inbox/spliced`` event; ``before: None`` is the queue's end."""
    return {
        "queue": queue,
        "remove": list(remove),
        "insert": [m.written() for m in insert],
        "before": before,
    }
