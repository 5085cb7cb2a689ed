"""Foreign data into our classes, strictly: one cattrs converter for requests and for the config.

Nothing is coerced: ``"5"`` is not 5, ``true`` is not 1, a missing field is not zero, an unknown one is
refused and the nearest known one named. The one widening is from int to float, because JSON has only one
kind of number.

Understood are str, int, float, bool, None, Any, ``X | Y``, Literal, list, tuple, ``dict[str, X]``,
`wire.Params`, attrs classes, and `Annotated` with further functions ``(value, path) -> value``.

A hook raises `Wrong` with the path from its own value; whoever holds that value puts its place before it.
Lists and tables stop at the first wrong item: cattrs' own keep an error for each, and a line holds millions.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs
from cattrs import Converter

from dshd.wire import REQUIRED, Params, did_you_mean, wire_name

Path = tuple[str | int, ...]
Hook = Callable[[Any, Any], Any]  # (value, what cattrs passes besides and ours don't need) -> value
T = TypeVar("T")


class Wrong(Exception):
    """What is wrong, and where: ``path`` is the way to it from the top, keys and indexes."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(what)
        self.path = path
        self.what = what

    def under(self, place: str | int) -> Wrong:
        return Wrong((place, *self.path), self.what)


def dotted(path: Path) -> str:
    """``routes.fast.fallback[0]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def structure(value: Any, kind: type[T]) -> T:
    """``value`` as a ``kind``. Raises `Wrong` at the first place that isn't right."""
    return _converter.structure(value, kind)


def checker(kind: Any) -> Hook:
    """The hook of a type. Raises TypeError for types that are not understood (a mistake of ours)."""
    return _converter.get_structure_hook(kind)


_KINDS: Final[dict[type, str]] = {
    str: "a string", bool: "a boolean", int: "an integer", float: "a number",
    list: "a list", dict: "a table", type(None): "null",
}  # fmt: skip


def _expected(what: str, value: Any) -> Wrong:
    return Wrong((), f"expected {what}, got {_KINDS.get(type(value), type(value).__name__)}")


def _exactly(kind: type, then: Callable[[Any], Any] = lambda value: value) -> Hook:
    def hook(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise _expected(_KINDS[kind], value)
        return then(value)

    return hook


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise _expected("a number", value)
    if not abs(value) <= sys.float_info.max:  # NaN and infinities, and integers beyond all floats
        raise Wrong((), "expected a finite number")
    return float(value)


def _literal(*words: Any) -> Hook:
    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, str) or value not in words:
            raise Wrong((), f"expected {' or '.join(words)}, got {value!r}")
        return value

    return hook


def _union(*kinds: Any) -> Hook:
    """The members must differ in their JSON kind, or be tried in the order written."""
    hooks = [checker(kind) for kind in kinds]

    def hook(value: Any, _: Any) -> Any:
        wrongs = []
        for attempt in hooks:
            try:
                return attempt(value, None)
            except Wrong as wrong:
                wrongs.append(wrong)
        raise max(wrongs, key=lambda wrong: len(wrong.path))  # the one that came furthest fits best

    return hook


def _at(place: str | int, hook: Hook, value: Any) -> Any:
    try:
        return hook(value, None)
    except Wrong as wrong:
        raise wrong.under(place) from None


def _list(kind: Any, make: Callable[..., Any] = list) -> Hook:
    hook = checker(kind)
    return _exactly(list, lambda value: make(_at(i, hook, item) for i, item in enumerate(value)))


def _tuple(*kinds: Any) -> Hook:
    if kinds[-1] is Ellipsis:
        return _list(kinds[0], tuple)
    hooks = [checker(kind) for kind in kinds]

    def hook(value: Any, _: Any) -> Any:
        if type(value) is not list or len(value) != len(hooks):
            raise _expected(f"a list of {len(hooks)}", value)
        return tuple(map(_at, range(len(hooks)), hooks, value))

    return hook


def _dict(_key: Any, kind: Any) -> Hook:
    hook = checker(kind)
    return _exactly(dict, lambda value: {key: _at(key, hook, item) for key, item in value.items()})


def _annotated(kind: Any, *more: Callable[[Any, Path], Any]) -> Hook:
    hook = checker(kind)
    return lambda value, _: functools.reduce(lambda so_far, check: check(so_far, ()), more, hook(value, None))


def _object(kind: type) -> Hook:
    return _exactly(dict, lambda value: _made(kind, value))


def _made(kind: type, value: dict[str, Any]) -> Any:
    """Only what is given is looked at: a send gives 4 of its 28 fields, thousands of times a second."""
    fields = _fields(kind)
    given = {}
    for key, item in value.items():
        field = fields.get(key)
        if field is None:
            raise Wrong((key,), f"unknown key{did_you_mean(key, fields)}")
        given[field.name] = _at(key, field.hook, item)
    for key in _required(kind):
        if key not in value:
            raise Wrong((key,), "missing")
    return kind(**given)


class _Field:
    """``name``: as the class takes it. Its hook is made when it comes up: most of a config doesn't."""

    def __init__(self, name: str, kind: Any, required: bool) -> None:
        self.name = name
        self.required = required
        self._kind = kind

    @functools.cached_property
    def hook(self) -> Hook:
        return checker(self._kind)


@functools.cache
def _fields(kind: Any) -> dict[str, _Field]:
    """By their names on the wire."""
    if not attrs.has(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {
            wire_name(name): _Field(name, hints[name], default is REQUIRED)
            for name, default in kind.fields.items()
        }
    return {
        wire_name(field.name): _Field(field.alias, field.type, field.default is attrs.NOTHING)
        for field in attrs.fields(attrs.resolve_types(kind))
        if field.init
    }


@functools.cache
def _required(kind: Any) -> tuple[str, ...]:
    return tuple(key for key, field in _fields(kind).items() if field.required)


_FACTORIES: Final[dict[Any, Callable[..., Hook]]] = {
    Union: _union, types.UnionType: _union, Literal: _literal, Annotated: _annotated,
    list: _list, tuple: _tuple, dict: _dict,
}  # fmt: skip


def _hook(kind: Any) -> Hook:
    """Of all but scalars and Any. Nothing is left to cattrs' own hooks, because they coerce."""
    if get_origin(kind) in _FACTORIES:
        return _FACTORIES[get_origin(kind)](*get_args(kind))
    if isinstance(kind, type) and (issubclass(kind, Params) or attrs.has(kind)):
        return _object(kind)
    raise TypeError(f"no checker for {kind!r}")


_converter: Final = Converter()
_converter.register_structure_hook_factory(lambda kind: kind is not Any, _hook)
for _scalar in (str, int, bool, type(None)):
    _converter.register_structure_hook(_scalar, _exactly(_scalar))
_converter.register_structure_hook(float, _number)
