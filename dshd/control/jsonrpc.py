"""JSON-RPC 2.0, one object per line; sans-IO.

Kept strict where the standard is loose, because a request half understood is a wrong action done:
parameters by name only, no unknown members, ids strings or integers (or null), and no batches (pipelined
lines do the same, and each is answered as soon as it is done). A request without ``id`` is a notification:
it is carried out and not answered, not even with an error.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import attrs
import orjson

from dshd.errors import DshError, Internal, Invalid
from dshd.wire import MAX_LINE, did_you_mean

Id = str | int | None

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params"})
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Malformed(Invalid):
    """The line is no JSON-RPC request."""

    rpc_code = INVALID_REQUEST


class NotJson(Malformed):
    """The line is no JSON at all."""

    rpc_code = PARSE_ERROR


class UnknownMethod(Invalid):
    """There is no such method."""

    rpc_code = METHOD_NOT_FOUND


@attrs.frozen(slots=True)
class Request:
    """``params`` is unchecked. ``answered`` is false for a notification. ``replaced``: lone surrogates of
    the line that became U+FFFD."""

    method: str
    params: dict[str, Any]
    id: Id = None
    answered: bool = True
    replaced: int = 0


@attrs.frozen(slots=True)
class Refused:
    """A line that is no request, to be answered with ``error`` under ``id``."""

    error: DshError
    id: Id = None


def parse(line: bytes) -> Request | Refused:
    """One line, without its newline. Never raises."""
    try:
        message, replaced = _loads(line)
    except ValueError as error:
        return Refused(NotJson(f"not JSON: {error}"))
    if not isinstance(message, dict):
        what = (
            "batches are not taken: send one object per line"
            if isinstance(message, list)
            else "not an object"
        )
        return Refused(Malformed(what))
    given = message.get("id")
    ident = given if given is None or type(given) in (str, int) else None
    try:
        return attrs.evolve(_request(message, ident), replaced=replaced)
    except Malformed as error:
        return Refused(error, ident)


def _request(message: dict[str, Any], ident: Id) -> Request:
    if unknown := message.keys() - _MEMBERS:
        first = min(unknown)
        raise Malformed(f"unknown member {first!r}{did_you_mean(first, _MEMBERS)}")
    if message.get("jsonrpc") != "2.0":
        raise Malformed('expected "2.0" @ $.jsonrpc')
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str):
        raise Malformed("expected a string @ $.method")
    if not isinstance(params, dict):
        raise Malformed("expected an object (parameters go by name) @ $.params")
    if ident is None and message.get("id") is not None:
        raise Malformed("expected a string or an integer @ $.id")
    return Request(method, params, ident, answered="id" in message)


def loads(data: bytes) -> Any:
    """Foreign JSON. Raises ValueError.

    orjson refuses lone surrogates (``"\\ud83d"``, half an emoji), which others do send: then the standard
    library reads it and they become U+FFFD.
    """
    return _loads(data)[0]


def _loads(data: bytes) -> tuple[Any, int]:
    """The same, and how many became U+FFFD."""
    try:
        return orjson.loads(data), 0
    except orjson.JSONDecodeError as error:
        if b"\\u" not in data:
            raise
        reason = str(error)
    try:
        return _mended(json.loads(data.decode(), parse_constant=_refuse_constant))
    except (ValueError, RecursionError):
        raise ValueError(reason) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _mended(value: Any) -> tuple[Any, int]:
    replaced = 0

    def mend(value: Any) -> Any:
        nonlocal replaced
        if isinstance(value, str):
            text, count = _SURROGATE.subn("\ufffd", value)
            replaced += count
            return text
        if isinstance(value, list | tuple):
            return [mend(item) for item in value]
        if isinstance(value, dict):
            return {mend(key): mend(item) for key, item in value.items()}
        return value

    return mend(value), replaced


# ---------------------------------------------------------------- what we say


def result_line(ident: Id, result: Any) -> bytes:
    """The answer to a request; one that doesn't fit a line becomes an error that says so."""
    line = _line({"jsonrpc": "2.0", "id": ident, "result": result})
    if len(line) > MAX_LINE:
        return error_line(ident, Internal(f"the answer has {len(line)} bytes; a line holds {MAX_LINE}"))
    return line


def error_line(ident: Id, error: DshError) -> bytes:
    return _line({"jsonrpc": "2.0", "id": ident, "error": error.to_json()})


def notification_line(method: str, params: dict[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def _line(message: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(message) + b"\n"
    except TypeError:  # half a surrogate pair: a path whose bytes are no text
        return orjson.dumps(_mended(message)[0]) + b"\n"


def event_line(session: str, line: bytes) -> bytes:
    """``log.event`` around a line of the log, whose bytes go out as they stand in the file."""
    head = b'{"jsonrpc":"2.0","method":"log.event","params":{"session":"%b","event":' % session.encode()
    return b"%b%b}}\n" % (head, line.removesuffix(b"\n"))
