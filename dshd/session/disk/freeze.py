"""Values of the fold as plain JSON and back, field by field, whatever fields there are.

Nothing here names a field: the classes are found from `State`'s own annotations, so a field or a class
that is added to the fold is covered without a word here. What is not plain JSON is an object with one
key that begins with ``~``:

| value                                     | as                              |
|-------------------------------------------|---------------------------------|
| an attrs object                           | ``{"~Name": [field, ...]}``     |
| a tuple, a `Line`                         | ``{"~": [...]}``                |
| a `Table`: what it holds in memory        | ``{"~Table": [[key, value]]}``  |
| `Rows`: what it holds in memory           | ``{"~Rows": [...]}``            |
| a dict with other keys than plain strings | ``{"~dict": [[key, value]]}``   |

`fingerprint` names the fold: what one version of it has frozen is for no other. Sans-IO but for that:
it reads the fold's own source, once.
"""

from __future__ import annotations

import hashlib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import attrs

from dshd import __version__
from dshd.session.fold import folding
from dshd.session.fold.layer import Line, Rows, Table
from dshd.session.fold.state import State
from dshd.session.fold.surface import Entry
from dshd.session.fold.values import shared

FORMAT: Final = 1  # of this module's JSON


class Unfreezable(TypeError):
    """A value of a kind that this module doesn't know."""


class Stale(ValueError):
    """This JSON is not what `freeze` of this version makes."""


def freeze(value: Any) -> Any:
    """``value`` as JSON. Raises `Unfreezable`."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    write = _FREEZE.get(kind)
    if write is not None:
        return write(value)
    tag, fields_of = _reader(kind)
    return {tag: _all(fields_of(value))}


def _all(items: Iterable[Any]) -> list[Any]:
    """Most of what a state holds is plain, so that is looked at here: a session that works writes all that
    waits in it, again and again."""
    return [item if type(item) in _PLAIN else freeze(item) for item in items]


def _freeze_dict(value: dict[Any, Any]) -> Any:
    for key in value:
        if type(key) is not str or key[:1] == "~":
            return {"~dict": _pairs(value.items())}
    return {key: item if type(item) in _PLAIN else freeze(item) for key, item in value.items()}


def _pairs(items: Iterable[tuple[Any, Any]]) -> list[list[Any]]:
    return [_all(pair) for pair in items]


_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
_FREEZE: Final[dict[type, Callable[[Any], Any]]] = {
    dict: _freeze_dict,
    list: _all,
    tuple: lambda value: {"~": _all(value)},
    Line: lambda value: {"~": _all(value)},
    Table: lambda value: {"~Table": _pairs(value.hot().items())},
    Rows: lambda value: {"~Rows": _all(value.hot())},
}


@cache
def _reader(kind: type) -> tuple[str, Callable[[Any], Iterable[Any]]]:
    """What an attrs class is written as, and what reads all its fields at once."""
    names = _fields().get(kind)
    if names is None:
        raise Unfreezable(f"{kind.__name__} is not part of a session's state")
    read = attrgetter(*names)
    return f"~{kind.__name__}", read if len(names) > 1 else lambda value: (read(value),)


def thaw(value: Any) -> Any:
    """The value that was frozen. Raises `Stale`."""
    try:
        return _thaw(value)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise Stale(f"{type(error).__name__}: {error}") from error


def _thaw(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return _thaw_object(value)
    return [_thaw(item) for item in value] if kind is list else value


def _thaw_object(value: dict[str, Any]) -> Any:
    if len(value) == 1:
        ((tag, inner),) = value.items()
        if tag[:1] == "~":
            read = _THAW.get(tag)
            return read(inner) if read is not None else _thaw_attrs(tag, inner)
    return {key: _thaw(item) for key, item in value.items()}


def _thaw_attrs(tag: str, inner: list[Any]) -> Any:
    kind = _classes()[tag]
    if len(inner) != len(_fields()[kind]):
        raise Stale(f"{tag} has {len(inner)} fields")
    return kind(*(shared(_thaw(item)) for item in inner))


def _thaw_table(inner: list[Any]) -> Table[Any, Any]:
    return Table.of({_thaw(key): _thaw(item) for key, item in inner})


_THAW: Final[dict[str, Callable[[Any], Any]]] = {
    "~": lambda inner: tuple(map(_thaw, inner)),
    "~Table": _thaw_table,
    "~Rows": lambda inner: Rows.of([_thaw(item) for item in inner]),
    "~dict": lambda inner: {_thaw(key): _thaw(item) for key, item in inner},
}


# --- which classes there are ---------------------------------------------------------------------


@cache
def _fields() -> Mapping[type, tuple[str, ...]]:
    """Every attrs class that a state is made of, with its fields; not the surface's entries, which
    are lines of the log."""
    found: dict[type, tuple[str, ...]] = {}
    waiting: list[Any] = [State]
    while waiting:
        hint = waiting.pop()
        waiting.extend(_parts(hint))
        if isinstance(hint, type) and attrs.has(hint) and hint not in found and hint is not Entry:
            found[hint] = tuple(field.name for field in attrs.fields(hint) if field.init)
            waiting.extend(_hints(hint).values())
    return found


def _parts(hint: Any) -> Iterator[Any]:
    yield from typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is not None and origin is not typing.Literal and not isinstance(hint, types.UnionType):
        yield origin


def _hints(kind: type) -> dict[str, Any]:
    names = {field.name for field in attrs.fields(kind)}
    return {name: hint for name, hint in typing.get_type_hints(kind).items() if name in names}


@cache
def _classes() -> Mapping[str, type]:
    return {f"~{kind.__name__}": kind for kind in _fields()}


@cache
def fingerprint() -> str:
    """Names this version of the fold: a hash of its source, so that no change of it is ever missed."""
    digest = hashlib.sha256(f"{FORMAT} {__version__} {sys.version_info[:2]}".encode())
    for module in fold_modules():
        digest.update(Path(str(sys.modules[module].__file__)).read_bytes())
    return digest.hexdigest()[:32]


def fold_modules() -> list[str]:
    """The modules of the session room that the fold is made of: all that `folding` imports, and this."""
    found = {__name__}
    waiting = [folding.__name__]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting.extend(_imports(name))
    return sorted(found)


def _imports(name: str) -> Iterator[str]:
    for value in vars(sys.modules[name]).values():
        module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        if isinstance(module, str) and module.startswith(_ROOM) and module in sys.modules:
            yield module


_ROOM: Final = "dshd.session."
