"""The words and numbers that both ends must agree on."""

from __future__ import annotations

from typing import Final, Literal

PROTOCOL: Final = 1
MAX_LINE: Final = 16 * 1024 * 1024  # bytes in one line, its newline included, in either direction
MAX_TEXT: Final = 8 * 1024 * 1024  # bytes of UTF-8 in one message
MAX_INLINE: Final = 1024 * 1024  # bytes of text that a request holds; more goes by `attachment.put`
MAX_PIECE: Final = 512 * 1024  # characters in one piece of it
MAX_LABEL: Final = 256  # characters in a key, a tag and the like, which every line about them repeats
MAX_REASON: Final = 4096  # characters of why somebody stops or denies something, which a line holds whole
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
