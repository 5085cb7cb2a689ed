"""What a typed line means: a text, or one of a few words that begin with a slash.

A text that itself begins with a slash is typed with two. A word that is none of ours is an error and never
sent, for who mistypes ``/abort`` wants no message; and ``/abort when you are done`` is no wish to abort now.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dshd.errors import Invalid
from dshd.wire import near

SENDS: Final = ("followup", "steer", "inject", "interrupt")
# {word: what it does}; in the order of /help.
WORDS: Final[dict[str, str]] = {
    "followup TEXT": "the next piece of work, in a turn of its own",
    "steer TEXT": "correct the turn that is running",
    "inject TEXT": "slip a fact in; wakes nobody",
    "interrupt TEXT": "stop what runs and do this instead",
    "abort": "stop the turn that is running",
    "wake": "go on after a park",
    "queue": "what waits",
    "why": "what it waits for",
    "allow [ID] [session|always]": "let it run",
    "deny [ID] [WHY]": "don't let it run",
    "help": "this",
    "quit": "leave; nothing is stopped by that",
}
NAMES: Final = tuple(usage.split()[0] for usage in WORDS)
_ALONE: Final = tuple(usage for usage in WORDS if " " not in usage)


class Spoken(NamedTuple):
    """``word``: ``say``, or one of `NAMES`; and what stood behind it."""

    word: str
    text: str


def meant(line: str) -> Spoken | None:
    """What a line means; None if it is empty. Raises `Invalid`."""
    if not line.strip():
        return None
    if not line.startswith("/"):
        return Spoken("say", line)
    if line.startswith("//"):
        return Spoken("say", line[1:])
    word, _, rest = line[1:].partition(" ")
    word = word.strip()
    if word not in NAMES:
        close = near(word, NAMES, most=1)
        hint = f"/{close[0]}" if close else "/help"
        raise Invalid(
            f'there is no command "/{word}"; nothing was sent', hint=f"{hint}      or, as a text: /{line}"
        )
    if word in SENDS and not rest.strip():
        raise Invalid(f"/{word} needs a text", hint=f"/{word} TEXT")
    if word in _ALONE and rest.strip():
        raise Invalid(f"/{word} takes nothing behind it; nothing was done", hint=f"/{word}")
    return Spoken(word, rest if word in SENDS else rest.strip())


def help_lines() -> list[str]:
    """What can be typed."""
    rows = [f"  /{usage:<30} {does}" for usage, does in WORDS.items()]
    return [
        "  TEXT                            said to it: a steer while a turn runs, else a followup",
        *rows,
        "  //TEXT                          a text that begins with a slash",
        "Alt-Enter: a new line. Ctrl-C: clears the line; on an empty one, twice: aborts. Ctrl-D: leaves.",
    ]
