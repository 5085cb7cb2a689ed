from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from dshd.tools.arguments import Checker, expected
from dshd.tools.mcp.names import sort_out
from dshd.tools.mcp.remote import remote
from dshd.tools.mcp.results import output
from dshd.tools.tool import ToolContext, ToolOutput


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], "(no output)"),
        (None, "(no output)"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        (
            [{"type": "image", "data": "AAAA", "mimeType": "image/png"}],
            "[image: image/png, 3 bytes, not shown]",
        ),
        ([{"type": "resource_link", "name": "n", "uri": "file:///x"}], "[n: file:///x]"),
        ([{"type": "resource", "resource": {"uri": "u", "text": "inside"}}], "inside"),
        ([{"type": "resource", "resource": {"uri": "u", "blob": "AAAA"}}], "[u: not text]"),
        ([{"type": "hologram"}, 5], "[hologram: not shown]\n[something that is no block]"),
    ],
)
def test_what_is_not_text_is_marked(content: Any, text: str) -> None:
    assert output({"content": content}).text == text


def test_an_error_is_one_and_what_is_structured_is_shown_when_it_is_all() -> None:
    assert output({"content": [], "structuredContent": {"a": 1}}).text == '{\n "a": 1\n}'
    assert output({"content": [], "isError": True}).error == "TOOL_FAILED"


def test_names_are_such_as_models_take_and_two_of_one_name_are_one() -> None:
    found, problems = sort_out("my.srv", ["b c", "a", "b_c", "x" * 60])
    assert found == {"mcp__my_srv__a": "a", "mcp__my_srv__b_c": "b c"}
    assert [problem.split(" ")[0] for problem in problems] == ["b_c", "x" * 60]
    found, problems = sort_out("many", map(str, range(1000)))
    assert (len(found), len(problems)) == (128, 872)


async def calling(ctx: ToolContext, tool: str, args: dict[str, Any]) -> ToolOutput:
    raise AssertionError


@pytest.mark.parametrize("schema", [None, 5, {"type": "array"}])
def test_a_tool_without_a_schema_is_none(schema: Any) -> None:
    with pytest.raises(ValueError, match="arguments"):
        remote("x", {"name": "x", "inputSchema": schema}, calling)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "object", "properties": {"a": {"type": "nothing"}}},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"type": "object", "required": 5},
    ],
)
def test_a_schema_that_is_wrong_refuses_and_breaks_nothing(schema: dict[str, Any]) -> None:
    (problem,) = Checker(schema).problems({"a": "x"})
    assert "own schema is wrong" in problem
    assert expected(schema)
    assert expected({"properties": {"a": True, "b": {"items": 5, "type": "array"}}}) == "{...}"


def test_nothing_is_fetched_that_a_schema_refers_to(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text('{"type": "integer"}')
    far = {"type": "object", "properties": {"a": {"$ref": f"file://{tmp_path}/schema"}}}
    for foreign in (True, False):
        (problem,) = Checker(far, foreign=foreign).problems({"a": "x"})
        assert "own schema is wrong" in problem


@pytest.mark.parametrize(
    "more", [{"properties": {"a": {"pattern": "^(a+)+$"}}}, {"patternProperties": {"^(a+)+$": {}}}]
)
@pytest.mark.parametrize("rest", [{}, {"additionalProperties": False}, {"unevaluatedProperties": False}])
def test_a_regular_expression_of_somebody_elses_takes_no_time(
    more: dict[str, Any], rest: dict[str, Any]
) -> None:
    checker, long = Checker({"type": "object", **more, **rest}, foreign=True), "a" * 40 + "!"
    before = time.process_time()
    assert checker.problems({"a": long, long: 1} if "patternProperties" in more else {"a": long}) == []
    assert time.process_time() - before < 1


def test_what_a_foreign_tool_does_not_know_is_said_all_the_same() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    assert Checker(schema, foreign=True).problems({"bee": 1}) == ['$: unknown key "bee"']
