"""Foreign data becomes ours exactly as it is, or is refused at its place."""

from __future__ import annotations

import importlib
from typing import Annotated, Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd import config
from dshd.strict import Wrong, _fields, checker, dotted, structure
from dshd.wire import HOLDS, Params


class Inner(Params):
    n: int


class Outer(Params):
    text: str
    flag: bool = False
    number: float = 0.0
    maybe: int | None = None
    word: Literal["a", "b"] = "a"
    many: tuple[int, ...] = ()
    pair: tuple[int, str] | None = None
    table: dict[str, Inner] = {}  # noqa: RUF012 - never changed
    anything: Any = None
    as_: str | None = None


@attrs.frozen
class Section:
    n: int = 1
    either: str | list[str] = ""


def wrong(value: Any, kind: type = Outer) -> str:
    with pytest.raises(Wrong) as caught:
        structure(value, kind)
    return f"{dotted(caught.value.path)}: {caught.value.what}"


def test_what_fits_is_taken_as_it_is() -> None:
    found = structure(
        {"text": "x", "flag": True, "number": 2, "maybe": None, "word": "b", "many": [1, 2], "pair": [1, "x"],
         "table": {"k": {"n": 1}}, "anything": {"a": [1]}, "as": "hook"},
        Outer,
    )  # fmt: skip
    assert found == Outer(
        text="x", flag=True, number=2.0, word="b", many=(1, 2), pair=(1, "x"), table={"k": Inner(n=1)},
        anything={"a": [1]}, as_="hook",
    )  # fmt: skip
    assert type(found.number) is float


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"text": 5}, "text: expected a string, got an integer"),
        ({"text": "x", "flag": 1}, "flag: expected a boolean, got an integer"),
        ({"text": "x", "number": "2"}, "number: expected a number, got a string"),
        ({"text": "x", "number": 10**400}, "number: expected a finite number"),
        ({"text": "x", "number": float("nan")}, "number: expected a finite number"),
        ({"text": "x", "number": True}, "number: expected a number, got a boolean"),
        ({"text": "x", "maybe": "5"}, "maybe: expected an integer, got a string"),
        ({"text": "x", "maybe": True}, "maybe: expected an integer, got a boolean"),
        ({"text": "x", "maybe": 1.0}, "maybe: expected an integer, got a number"),
        ({"text": "x", "word": "c"}, "word: expected a or b, got 'c'"),
        ({"text": "x", "word": []}, "word: expected a or b, got []"),
        ({"text": "x", "many": [1, "2"]}, "many[1]: expected an integer, got a string"),
        ({"text": "x", "many": "12"}, "many: expected a list, got a string"),
        ({"text": "x", "pair": [1]}, "pair: expected a list of 2, got a list"),
        ({"text": "x", "table": {"k": {}}}, "table.k.n: missing"),
        ({"text": "x", "table": []}, "table: expected a table, got a list"),
        ({"text": None}, "text: expected a string, got null"),
        ({}, "text: missing"),
        ({"text": "x", "falg": True}, "falg: unknown key; did you mean flag?"),
        ({"text": "x", "as_": "hook"}, "as_: unknown key; did you mean as?"),
        ([], ": expected a table, got a list"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(value: Any, says: str) -> None:
    assert wrong(value) == says


def test_attrs_classes_and_alternatives_are_understood() -> None:
    assert structure({"either": ["a"]}, Section) == Section(1, ["a"])
    assert structure({"either": "a"}, Section) == Section(1, "a")
    assert wrong({"either": ["a", 1]}, Section) == "either[1]: expected a string, got an integer"
    assert "unknown key" in wrong({"m": 1}, Section)


def test_a_further_check_sees_what_passed_the_first() -> None:
    def even(value: int, path: Any) -> int:
        if value % 2:
            raise Wrong(path, "must be even")
        return value

    check = checker(Annotated[int, even])
    assert check(2, ()) == 2
    for value in (1, "2"):
        with pytest.raises(Wrong):
            check(value, ())


def test_a_type_it_does_not_know_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError):
        checker(set[int])


def subclasses(kind: type) -> set[type]:
    below: list[type] = type.__subclasses__(kind)
    return {kind}.union(*map(subclasses, below))


SECTIONS = [kind for kind in vars(config).values() if isinstance(kind, type) and attrs.has(kind)]
for family in HOLDS:
    importlib.import_module(f"dshd.wire.{family}")
PARAMS = [kind for kind in subclasses(Params) if kind.__module__.startswith("dshd.wire.")]


@pytest.mark.parametrize("kind", [*SECTIONS, *PARAMS], ids=lambda kind: kind.__name__)
def test_every_field_of_ours_is_of_a_type_that_it_knows(kind: type) -> None:
    for field in _fields(kind).values():
        assert callable(field.hook)


def test_of_many_wrong_items_only_the_first_is_looked_at() -> None:
    looked = []

    def never(value: Any, path: Any) -> Any:
        looked.append(value)
        raise Wrong(path, "never right")

    kind = Annotated[Any, never]
    for form, value in (
        (list[kind], [1, 2]),
        (tuple[kind, ...], [1, 2]),
        (dict[str, kind], {"a": 1, "b": 2}),
    ):
        with pytest.raises(Wrong):
            checker(form)(value, ())
    assert looked == [1, 1, 1]


def test_an_error_of_our_own_is_not_taken_for_wrong_data() -> None:
    @attrs.frozen
    class Picky:
        n: int = attrs.field(validator=lambda self, field, value: 1 // value)

    with pytest.raises(ZeroDivisionError):
        structure({"n": 0}, Picky)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(Outer.fields)), inner),
    max_leaves=8,
)


@given(JSON)
def test_no_data_gets_through_in_another_shape(value: Any) -> None:
    try:
        found = structure(value, Outer)
    except Wrong:
        return
    assert type(found.flag) is bool
    assert type(found.text) is str
    assert found.maybe is None or type(found.maybe) is int
