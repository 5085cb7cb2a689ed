"""Whether a client that knocks is let in; sans-IO.

| it brings                                     | then |
|-----------------------------------------------|------|
| an origin (so it is a web page) not in ours   | 403  |
| no token, or another one                      | 401  |
| else                                          | in   |

The token comes as ``Authorization: Bearer TOKEN``, or, from a page, which can't send that, as one of the
protocols it proposes: ``dshd.token.TOKEN`` beside ``dshd``, which is the one that is taken. It is never
looked for in the address, for those are kept and shown.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable
from typing import Final

import attrs

PROTOCOL: Final = "dshd"
_TOKEN: Final = "dshd.token."  # noqa: S105 - the beginning of a protocol's name
_BEARER: Final = "bearer "


@attrs.frozen(slots=True)
class Let:
    """``refused`` is the HTTP status and why; None: let in, with this ``protocol``."""

    refused: tuple[int, str] | None
    protocol: str | None = None


def knock(
    headers: Iterable[tuple[bytes, bytes]], protocols: Collection[str], token: str, origins: Collection[str]
) -> Let:
    """What becomes of a handshake."""
    given = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
    for name, value in given:
        if name == "origin" and value not in origins:
            return Let((403, "this origin is not in [daemon] origins"))
    if not any([_same(one, token) for one in (*_bearers(given), *_proposed(protocols))]):
        return Let((401, "the token is missing or wrong"))
    return Let(None, PROTOCOL if PROTOCOL in protocols else None)


def _bearers(headers: Iterable[tuple[str, str]]) -> list[str]:
    return [
        value[len(_BEARER) :].strip()
        for name, value in headers
        if name == "authorization" and value.lower().startswith(_BEARER)
    ]


def _proposed(protocols: Iterable[str]) -> list[str]:
    return [name.removeprefix(_TOKEN) for name in protocols if name.startswith(_TOKEN)]


def _same(given: str, token: str) -> bool:
    """In the same time, however much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
