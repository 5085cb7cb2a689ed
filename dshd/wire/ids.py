"""The forms of ids and names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

from dshd.errors import Invalid

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
