from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.tools.arguments import BadArguments, Checker, expected, parse

READ = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "offset": {"type": "integer"}, "how": {"enum": ["a", "b"]}},
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("raw", ["", "   ", "\n", "{}", " {} "])
def test_no_arguments_are_an_empty_object(raw: str) -> None:
    assert parse(raw) == {}


@pytest.mark.parametrize(
    "raw",
    [
        '{"path":"a',
        '{"path":',
        '{"path"',
        "{",
        '{"a": [1, 2',
        '{"a": {"b": 1}',
        '{"content": "one\\ntwo',
        '{"a": "x\\',
    ],
)
def test_arguments_that_break_off_are_said_to_and_how_to_go_on(raw: str) -> None:
    with pytest.raises(BadArguments, match=r"break off after \d+ characters?, .*smaller pieces"):
        parse(raw)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("not json", "not valid JSON at character 0"),
        ('{"a": 1,, "b": 2}', "not valid JSON at character"),
        ("{'a': 1}", "not valid JSON at character 1"),
        ('{"a": 1} {"a": 2}', "more text after the end"),
        ('{"a": 1}\n```', "more text after the end"),
        ("[1, 2]", "array instead of an object"),
        ('"{}"', 'string "{}" instead of an object'),
        ("null", "null instead of an object"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1, "a": 2}', '"a" stands twice'),
        ('{"o": {"k": 1, "k": 1}}', '"k" stands twice'),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "can't be read"),
    ],
)
def test_arguments_that_make_no_sense_are_told_apart(raw: str, said: str) -> None:
    with pytest.raises(BadArguments) as caught:
        parse(raw)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ('{"a": "one\ntwo\tthree"}', "one\ntwo\tthree"),  # raw control characters
        ('{"a": "\\ud83d"}', "\ufffd"),
        ('{"a": "x\\udc00y"}', "x\ufffdy"),
        ('{"a": "\\ud83d\\ude00"}', "😀"),
        ('{"a": "\u2028\u2029\x85"}', "\u2028\u2029\x85"),
        ('{"a": 1152921504606846976}', 2**60),
    ],
)
def test_foreign_json_is_taken_where_its_meaning_is_certain(raw: str, value: object) -> None:
    assert parse(raw) == {"a": value}


def test_a_lone_surrogate_in_a_key_is_replaced_too() -> None:
    assert parse('{"\\ud83d": 1}') == {"\ufffd": 1}


@given(st.text())
def test_any_text_gives_an_object_or_a_sentence(raw: str) -> None:
    try:
        assert isinstance(parse(raw), dict)
    except BadArguments as error:
        str(error).encode()


@given(st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.booleans() | st.none()))
def test_what_was_encoded_comes_back(value: dict[str, object]) -> None:
    assert parse(json.dumps(value)) == value
    assert parse(json.dumps(value, ensure_ascii=False)) == value


@given(st.dictionaries(st.text(), st.text() | st.booleans() | st.integers(), min_size=1), st.data())
def test_no_beginning_of_an_object_is_taken_for_the_whole(
    value: dict[str, object], data: st.DataObject
) -> None:
    raw = json.dumps(value)
    end = data.draw(st.integers(1, len(raw) - 1))
    with pytest.raises(BadArguments, match="break off"):
        parse(raw[:end])


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, '$: "path" is missing'),
        ({"path": 5}, "$.path: expected string, got integer 5"),
        ({"path": True}, "$.path: expected string, got boolean true"),
        ({"path": None}, "$.path: expected string, got null"),
        ({"path": "x", "offset": "5"}, '$.offset: expected integer, got string "5"'),
        ({"path": "x", "offset": 1.5}, "$.offset: expected integer, got number 1.5"),
        ({"path": "x", "ofset": 5}, '$: unknown key "ofset"; did you mean offset?'),
        ({"path": "x", "how": "c"}, '$.how: expected one of "a", "b", got string "c"'),
    ],
)
def test_a_wrong_argument_is_named_with_its_path_and_what_is_expected(
    args: dict[str, object], problem: str
) -> None:
    assert problem in Checker(READ).problems(args)


def test_good_arguments_have_no_problems_and_are_not_coerced() -> None:
    assert Checker(READ).problems({"path": "x", "offset": 3, "how": "b"}) == []


def test_all_problems_are_listed_but_not_without_end() -> None:
    problems = Checker(READ).problems({f"key{n}": "v" * 1000 for n in range(50)})
    assert len(problems) == 6
    assert problems[-1] == "and 46 more"
    assert all(len(problem) < 250 for problem in problems)


def test_the_expected_arguments_read_like_a_signature() -> None:
    assert expected(READ) == "{path: string, offset?: integer, how?: a|b}"
    items = {"type": "array", "items": {"type": "object", "properties": {"text": {"type": "string"}}}}
    assert expected({"properties": {"items": items}}) == "{items?: [{text?: string}, ...]}"


@pytest.mark.parametrize("levels", [99, 101, 500, 900, 3000, 100_000])
@pytest.mark.parametrize("pair", ["[]", ('{"a":', "}")])
def test_what_is_nested_too_deeply_is_refused_before_anybody_walks_it(levels: int, pair: Any) -> None:
    raw = '{"x": ' + pair[0] * levels + ("1" if pair[1] == "}" else "") + pair[1] * levels + "}"
    if levels < 100:
        json.dumps(parse(raw))
        return
    with pytest.raises(BadArguments, match="nested too deeply"):
        parse(raw)
