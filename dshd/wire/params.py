"""What every class of parameters is made of.

Why not dataclasses: making forty of them costs 40 ms at import, more than half of what ``import click``
takes, and dshctl has some made for ``ping``. `Params` does the same for well under a millisecond, and type
checkers see dataclasses all the same.

The types of fields are looked up in the module of their class, when the daemon first checks one: so a
family imports them by name, and not only for type checkers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform

from dshd.errors import Invalid
from dshd.wire.terms import MAX_LABEL, MAX_REASON

_T = TypeVar("_T", bound="Params")


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Params:
    """Base of all parameter classes: keyword-only, frozen, compared by value.

    ``method`` is the RPC method that takes it; ``fields`` is ``{name: default}``, with `REQUIRED`
    where there is none.
    """

    method: ClassVar[str] = ""
    fields: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, *, method: str = "") -> None:
        cls.method = method
        own = {name: cls.__dict__.get(name, REQUIRED) for name in cls.__annotations__}
        cls.fields = {**cls.fields, **own}

    def __init__(self, **given: Any) -> None:
        values = {**self.fields, **given}
        if len(values) != len(self.fields):
            raise TypeError(f"{type(self).__name__} has no field {sorted(given.keys() - self.fields.keys())}")
        missing = [name for name, value in values.items() if value is REQUIRED]
        if missing:
            raise TypeError(f"{type(self).__name__} needs {missing}")
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), repr(self.__dict__)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.to_json().items())})"

    def check(self) -> None:
        """What a field's type doesn't say. Raises `Invalid`."""

    def replace(self: _T, **changes: Any) -> _T:
        """A copy with these fields changed."""
        return type(self)(**{**self.__dict__, **changes})

    def to_json(self) -> dict[str, Any]:
        """What goes on the wire: the fields that differ from their defaults, by their wire names."""
        return {wire_name(k): _plain(v) for k, v in self.__dict__.items() if v != self.fields[k]}


def check_labels(**labels: str | None) -> None:
    """Raises `Invalid` for one that is empty or too long."""
    for name, text in labels.items():
        if text is not None and not 0 < len(text) <= MAX_LABEL:
            raise Invalid(
                f"a {name} has 1 to {MAX_LABEL} characters, not {len(text)} @ $.{name}", outcome="not-written"
            )


def check_reason(reason: str | None) -> None:
    """Raises `Invalid` for one that is too long."""
    if reason is not None and len(reason) > MAX_REASON:
        raise Invalid(
            f"a reason has at most {MAX_REASON} characters, not {len(reason)} @ $.reason",
            outcome="not-written",
        )


def check_variables(env: Mapping[str, str]) -> None:
    """Raises `Invalid` for what no process can have in its environment."""
    for name, value in env.items():
        if not is_variable(name, value):
            why = "has a =" if "=" in name else "or its value has a NUL" if name else "is empty"
            raise Invalid(f"{name!r} can't be a variable: its name {why} @ $.env", outcome="not-written")


def is_variable(name: str, value: str) -> bool:
    """Whether a process can have it in its environment."""
    return bool(name) and "=" not in name and "\0" not in name + value


REQUIRED: Final[Any] = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


def wire_name(field: str) -> str:
    """``as_`` is ``as`` on the wire."""
    return field.removesuffix("_")


def _plain(value: Any) -> Any:
    if isinstance(value, Params):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


class Position(Params):
    """A place in a log: that line's ``seq`` and ``crc``. ``seq`` -1 is before the first line."""

    seq: int
    crc: str = ""


class InSession(Params):
    """Where: the session reference as typed (None: the session of the directory ``cwd``)."""

    session: str | None = None
    cwd: str | None = None


class OfMessages(Params):
    """Which messages, by id; an id names its log, so no session is needed."""

    messages: tuple[str, ...]
