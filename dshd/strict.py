"""Foreign data into our classes, strictly: one checker for requests and for the config.

A checker is a function ``(value, path) -> value`` made once from a type and kept. Nothing is coerced:
``"5"`` is not 5, ``true`` is not 1, a missing field is not zero, an unknown one is refused and the
nearest known one named. The one widening is from int to float, because JSON has only one kind of number.

Understood are str, int, float, bool, None, Any, ``X | Y``, Literal, list, tuple, ``dict[str, X]``,
`wire.Params`, attrs classes, and `Annotated` with further functions ``(value, path) -> value``.

Why not cattrs: it coerces scalars unless told otherwise, does not know `wire.Params`, and its paths and
"did you mean" would be more code around it than this is.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import attrs

from dshd.wire import REQUIRED, Params, did_you_mean, wire_name

Path = tuple[str | int, ...]
Check = Callable[[Any, Path], Any]
T = TypeVar("T")


class Wrong(Exception):
    """What is wrong, and where: ``path`` is the way to it from the top, keys and indexes."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(what)
        self.path = path
        self.what = what


def dotted(path: Path) -> str:
    """``routes.fast.fallback[0]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def structure(value: Any, kind: type[T]) -> T:
    """``value`` as a ``kind``. Raises `Wrong` at the first place that isn't right."""
    built: T = checker(cast(Any, kind))(value, ())
    return built


@functools.cache
def checker(kind: Any) -> Check:
    """The checker of a type. Raises TypeError for types that are not understood (a mistake of ours)."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    if isinstance(kind, type) and (issubclass(kind, Params) or attrs.has(kind)):
        return _object(kind)
    origin = get_origin(kind)
    if origin not in _GENERICS:
        raise TypeError(f"no checker for {kind!r}")
    return _GENERICS[origin](get_args(kind))


def _expected(what: str, value: Any, path: Path) -> Wrong:
    return Wrong(path, f"expected {what}, got {_KINDS.get(type(value), type(value).__name__)}")


_KINDS: Final[dict[type, str]] = {
    str: "a string", bool: "a boolean", int: "an integer", float: "a number",
    list: "a list", dict: "a table", type(None): "null",
}  # fmt: skip


def _exactly(kind: type, what: str) -> Check:
    def check(value: Any, path: Path) -> Any:
        if type(value) is not kind:
            raise _expected(what, value, path)
        return value

    return check


def _number(value: Any, path: Path) -> float:
    if type(value) not in (int, float):
        raise _expected("a number", value, path)
    if not abs(value) <= sys.float_info.max:  # NaN and infinities, and integers beyond all floats
        raise Wrong(path, "expected a finite number")
    return float(value)


_SCALARS: Final[dict[Any, Check]] = {
    str: _exactly(str, "a string"),
    int: _exactly(int, "an integer"),
    bool: _exactly(bool, "a boolean"),
    float: _number,
    type(None): _exactly(type(None), "null"),
    Any: lambda value, path: value,
}


def _literal(words: tuple[Any, ...]) -> Check:
    def check(value: Any, path: Path) -> Any:
        if not isinstance(value, str) or value not in words:
            raise Wrong(path, f"expected {' or '.join(words)}, got {value!r}")
        return value

    return check


def _union(kinds: tuple[Any, ...]) -> Check:
    """The members must differ in their JSON kind, or be tried in the order written."""
    if type(None) in kinds and len(kinds) == 2:
        return _optional(checker(next(kind for kind in kinds if kind is not type(None))))
    checks = [checker(kind) for kind in kinds]

    def check(value: Any, path: Path) -> Any:
        wrongs = []
        for attempt in checks:
            try:
                return attempt(value, path)
            except Wrong as wrong:
                wrongs.append(wrong)
        raise max(wrongs, key=lambda wrong: len(wrong.path))  # the one that came furthest fits best

    return check


def _optional(inner: Check) -> Check:
    def check(value: Any, path: Path) -> Any:
        return None if value is None else inner(value, path)

    return check


def _list(kinds: tuple[Any, ...]) -> Check:
    inner = checker(kinds[0])

    def check(value: Any, path: Path) -> list[Any]:
        if type(value) is not list:
            raise _expected("a list", value, path)
        return [inner(item, (*path, index)) for index, item in enumerate(value)]

    return check


def _tuple(kinds: tuple[Any, ...]) -> Check:
    if kinds[-1] is Ellipsis:
        items = _list(kinds[:1])
        return lambda value, path: tuple(items(value, path))
    inner = [checker(kind) for kind in kinds]

    def check(value: Any, path: Path) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(inner):
            raise _expected(f"a list of {len(inner)}", value, path)
        return tuple(one(item, (*path, i)) for i, (one, item) in enumerate(zip(inner, value, strict=True)))

    return check


def _dict(kinds: tuple[Any, ...]) -> Check:
    inner = checker(kinds[1])

    def check(value: Any, path: Path) -> dict[str, Any]:
        if type(value) is not dict:
            raise _expected("a table", value, path)
        return {key: inner(item, (*path, key)) for key, item in value.items()}

    return check


def _annotated(kinds: tuple[Any, ...]) -> Check:
    inner, *more = checker(kinds[0]), *kinds[1:]

    def check(value: Any, path: Path) -> Any:
        value = inner(value, path)
        for further in more:
            value = further(value, path)
        return value

    return check


_GENERICS: Final[dict[Any, Callable[[tuple[Any, ...]], Check]]] = {
    Union: _union,
    types.UnionType: _union,
    Literal: _literal,
    list: _list,
    tuple: _tuple,
    dict: _dict,
    Annotated: _annotated,
}


def _object(kind: type) -> Check:
    hints = get_type_hints(kind, include_extras=True)
    defaults = kind.fields if issubclass(kind, Params) else _attrs_defaults(kind)
    fields = {wire_name(name): (name, checker(hints[name])) for name in defaults}
    required = [wire_name(name) for name, default in defaults.items() if default is REQUIRED]

    def check(value: Any, path: Path) -> Any:
        if type(value) is not dict:
            raise _expected("a table", value, path)
        given = {}
        for key, item in value.items():
            if key not in fields:
                raise Wrong((*path, key), f"unknown key{did_you_mean(key, fields)}")
            name, inner = fields[key]
            given[name] = inner(item, (*path, key))
        for key in required:
            if key not in value:
                raise Wrong((*path, key), "missing")
        return kind(**given)

    return check


def _attrs_defaults(kind: type) -> Mapping[str, Any]:
    return {field.name: REQUIRED if field.default is attrs.NOTHING else None for field in attrs.fields(kind)}
