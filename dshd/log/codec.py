"""Events and lines: the one place that turns the first into the second and back.

The rules, and why they are rules:

- **A line is one event is one line.** JSON escapes every control character, so a raw 0x0A can only
  be the end; `encode` asserts it all the same. U+2028, U+2029 and U+0085 stand raw in the text and
  mean nothing: readers split on the byte 0x0A.
- **Lossless or refused.** What is written must come back equal. orjson alone doesn't promise that:
  it turns NaN and infinities into null and accepts 2^60, so `lossless` walks every value first.
  Lone surrogates can't be UTF-8 and become U+FFFD, *before* the event is built: an event that still
  holds one is refused, or the fold would see what the log doesn't hold.
- **The checksum stands last** and covers all bytes before its own 18, so a line is proven without
  parsing it, and `crc_of` needs no parsing either.
- A record may have more keys than this version knows; they are ignored, not refused. What changes
  the meaning of a line comes with a new `version` or a new `type`.
"""

from __future__ import annotations

import json
import math
import re
from sys import intern
from typing import Any, Literal, NoReturn
from zlib import crc32

import attrs
import orjson

from dshd.errors import Invalid

Json = dict[str, Any] | list[Any] | str | int | float | bool | None
Surface = Literal["append"] | dict[str, list[int]]  # or {"replace": [first, last]}

MAX_DEPTH = 100
MAX_INTEGER = 2**53
# No line is longer, in bytes: what a reader may have to hold in memory at once.
MAX_LINE = 64 * 1024 * 1024
_STRINGS = frozenset({str})

_SURROGATES = re.compile("[\ud800-\udfff]")
_CRC_KEY = b',"crc":"'
_TAIL = len(_CRC_KEY) + len('xxxxxxxx"}\n')  # 19: the 18 bytes of the checksum and the newline


@attrs.frozen(slots=True)
class Event:
    """One line of a log. ``time`` is Unix ms; ``synced`` K says: all events <= K were durable."""

    seq: int
    time: int
    type: str
    data: dict[str, Any]
    surface: Surface | None = None
    sources: tuple[int, ...] | None = None
    ignorable: bool = False
    synced: int | None = None


class BadLine(ValueError):
    """These bytes are no line of a log; ``reason`` says why, in a few words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# -- lossless values ------------------------------------------------------------------------------


class _Refused(Exception):
    """Unwinds the walk; each level adds its step to ``path``, innermost first."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.path: list[str] = []


def lossless(value: Any) -> Json:
    """A copy of ``value`` that survives the log unchanged.

    Lone surrogates become U+FFFD. Raises `Invalid`, with the path, for NaN and infinities, integers
    beyond ±2^53, keys that aren't strings (or become equal), more than 100 levels, and every type
    that JSON doesn't have; subclasses and tuples, too, for they would come back as something else.
    """
    try:
        return _walk(value, 0)
    except _Refused as refused:
        raise Invalid(f"{refused} @ ${''.join(reversed(refused.path))}") from None


def _walk(value: Any, depth: int) -> Json:
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is int:
        return _integer(value)
    if kind is bool or value is None:
        return value  # type: ignore[no-any-return]
    if kind is dict:
        return _object(value, _deeper(depth))
    if kind is list:
        return _array(value, _deeper(depth))
    if kind is float:
        return _number(value)
    raise _Refused(f"{kind.__name__} is not JSON")


def _text(value: str) -> str:
    return value if value.isascii() else _SURROGATES.sub("\ufffd", value)


def _integer(value: int) -> int:
    if -MAX_INTEGER <= value <= MAX_INTEGER:
        return value
    raise _Refused("an integer beyond 2^53 would be rounded by other readers")


def _number(value: float) -> float:
    if math.isfinite(value):
        return value
    raise _Refused(f"{value} is not JSON")


def _deeper(depth: int) -> int:
    if depth < MAX_DEPTH:
        return depth + 1
    raise _Refused(f"more than {MAX_DEPTH} levels deep")


def _object(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, child in value.items():
        try:
            out[_key(key)] = _walk(child, depth)
        except _Refused as refused:
            refused.path.append(f".{_text(str(key))}")
            raise
    if len(out) != len(value):
        raise _Refused("two keys became equal when their lone surrogates were replaced")
    return out


def _key(key: Any) -> str:
    if type(key) is str:
        return _text(key)
    raise _Refused(f"a key must be a string, not {type(key).__name__}")


def _array(value: list[Any], depth: int) -> list[Any]:
    out = []
    for index, child in enumerate(value):
        try:
            out.append(_walk(child, depth))
        except _Refused as refused:
            refused.path.append(f"[{index}]")
            raise
    return out


def _is_plain(value: Any) -> bool:
    """Whether the walk would refuse nothing. Lone surrogates count as plain: orjson finds them.

    The walk copies, and calls a function per value; this only looks, a level at a time, twice as fast.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str or kind is bool or item is None:
                continue
            if kind is dict:
                if not _STRINGS.issuperset(map(type, item)):
                    return False
                below += item.values()
            elif kind is list:
                below += item
            elif kind is int:
                if not -MAX_INTEGER <= item <= MAX_INTEGER:
                    return False
            elif kind is not float or not math.isfinite(item):
                return False
        if not below:
            return True
        level = below
    return False


# -- lines ----------------------------------------------------------------------------------------


def encode(event: Event) -> bytes:
    """The event's line, newline included. Raises `Invalid` for what would not come back equal."""
    if not _is_plain(event.data):
        lossless(event.data)  # says what is wrong, and where, if anything is
    body = _dump(_record(event))[:-1]
    line = b'%b,"crc":"%08x"}\n' % (body, crc32(body))
    if len(line) > MAX_LINE:
        raise Invalid(f"an event of {len(line)} bytes is over the limit of {MAX_LINE}")
    assert line.find(b"\n") == len(line) - 1, "a line holds a raw newline"
    return line


def _record(event: Event) -> dict[str, Any]:
    record: dict[str, Any] = {
        "seq": event.seq,
        "time": event.time,
        "type": event.type,
        "data": event.data,
    }
    if event.surface is not None:
        record["surface"] = event.surface
    if event.sources is not None:
        record["sources"] = event.sources
    if event.ignorable:
        record["ignorable"] = True
    if event.synced is not None:
        assert -1 <= event.synced < event.seq, "synced must be an earlier seq, or -1 for none"
        record["synced"] = event.synced
    return record


def _dump(record: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(record)
    except TypeError as error:  # a lone surrogate: everything else was found by the walk
        raise Invalid(f"{record['type']}: {error}") from None


def decode(line: bytes) -> Event:
    """The event of one whole line. Raises `BadLine`."""
    end = len(line) - _TAIL
    if line[-1:] != b"\n":
        raise BadLine("it has no newline at its end")
    if end < 0 or line[end : end + 8] != _CRC_KEY:
        raise BadLine("it has no checksum at its end")
    if line[end + 8 :] != b'%08x"}\n' % crc32(line[:end]):
        raise BadLine("its checksum is wrong")
    return _event(_load(line))


def crc_of(line: bytes) -> str:
    """The checksum that a whole line carries, as its eight digits (the line is not checked)."""
    return line[-11:-3].decode("ascii", "replace")


def _load(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return _load_foreign(line)


def _load_foreign(line: bytes) -> Any:
    """For lines of other writers: the standard library takes escaped surrogates, orjson doesn't."""
    try:
        return lossless(json.loads(line, parse_constant=_no_constant))
    except (ValueError, RecursionError, Invalid) as error:
        raise BadLine(f"its JSON is wrong: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _event(record: Any) -> Event:
    try:
        seq, time, kind, data = record["seq"], record["time"], record["type"], record["data"]
    except (KeyError, TypeError):
        raise BadLine("it is not an event") from None
    if type(seq) is not int or type(time) is not int or type(kind) is not str or type(data) is not dict:
        raise BadLine("it is not an event")
    if seq < 0:
        raise BadLine("its seq is negative")
    if len(record) == 5:  # these four and the checksum
        return Event(seq, time, intern(kind), data)
    get = record.get
    surface, sources, synced = get("surface"), get("sources"), get("synced")
    return Event(
        seq,
        time,
        intern(kind),
        data,
        surface if surface is None else _surface(surface),
        sources if sources is None else _sources(sources),
        get("ignorable") is True,
        synced if synced is None else _synced(synced, seq),
    )


def _synced(value: Any, seq: int) -> int:
    if type(value) is int and -1 <= value < seq:
        return value
    raise BadLine("its synced is no earlier seq")


def _surface(value: Any) -> Any:
    if value == "append":
        return value
    if type(value) is dict and list(value) == ["replace"] and _seqs(value["replace"], 2):
        return value
    raise BadLine("its surface is wrong")


def _sources(value: Any) -> tuple[int, ...]:
    if _seqs(value):
        return tuple(value)
    raise BadLine("its sources are no list of seqs")


def _seqs(value: Any, count: int | None = None) -> bool:
    if type(value) is not list or (count is not None and len(value) != count):
        return False
    return all(type(item) is int for item in value)
