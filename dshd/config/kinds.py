"""The kinds of values that sections are made of."""

from __future__ import annotations

import ipaddress
import re
import sys
from typing import Annotated, Any

from dshd.errors import Invalid
from dshd.strict import Path, Wrong
from dshd.wire import parse_duration


def _duration(value: Any, path: Path) -> float:
    if type(value) in (int, float) and 0 <= value <= sys.float_info.max:
        return float(value)
    if not isinstance(value, str):
        raise Wrong(path, "expected a duration, like 90s or 1h30m")
    try:
        return parse_duration(value)
    except Invalid as error:
        raise Wrong(path, error.message) from None


def _not_negative(value: Any, path: Path) -> Any:
    if value < 0:
        raise Wrong(path, "must not be negative")
    return value


def _positive(value: Any, path: Path) -> Any:
    if value <= 0:
        raise Wrong(path, "must be more than 0")
    return value


def _not_empty(value: Any, path: Path) -> Any:
    if not value:
        raise Wrong(path, "must not be empty")
    return value


def _loopback(value: Any, path: Path) -> tuple[str, int]:
    """``127.0.0.1:8765`` or ``[::1]:8765`` as host and port. A name would be somebody else's word."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise Wrong(path, "expected an address and a port, like 127.0.0.1:8765") from None
    if not address.is_loopback:
        raise Wrong(path, "must be on this machine: 127.0.0.1 or [::1]")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise Wrong(path, "the port is a number from 1 to 65535")
    return str(address), int(port)


def _origin(value: Any, path: Path) -> str:
    """``https://example.org`` or ``http://localhost:5173``: what a browser sends of a page."""
    if not isinstance(value, str) or not _ORIGIN.fullmatch(value):
        raise Wrong(path, "expected an origin, like http://localhost:5173")
    return value


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s*]+")
Duration = Annotated[Any, _duration]
TimeLimit = Annotated[Any, _duration, _positive]
Count = Annotated[int, _positive]
Limit = Annotated[int, _not_negative]
Money = Annotated[float, _not_negative]
Loopback = Annotated[Any, _loopback]
Origin = Annotated[Any, _origin]
Text = Annotated[str, _not_empty]
Command = Annotated[str | list[str], _not_empty]
