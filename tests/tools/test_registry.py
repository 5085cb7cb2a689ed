from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from dshd.errors import Denied
from dshd.tools.builtin import builtin_tools
from dshd.tools.registry import Registry
from dshd.tools.tool import Call, Rule, ToolContext, ToolFailure, ToolOutput, text_output
from tests.tools.doubles import Made, call, context, execute, files


def test_specs_are_sorted_by_name_however_tools_were_added() -> None:
    one = Registry([Made("zulu"), Made("alpha"), Made("mike")])
    other = Registry([Made("mike"), Made("zulu"), Made("alpha")])
    assert [spec.name for spec in one.specs()] == ["alpha", "mike", "zulu"]
    assert one.specs() == other.specs()


def test_specs_are_the_same_object_until_a_tool_comes() -> None:
    """What is worked out for them, step by step, goes by identity."""
    registry = Registry([Made("a")])
    before = registry.specs()
    assert registry.specs() is before
    registry.add(Made("b"))
    assert [spec.name for spec in registry.specs()] == ["a", "b"]


async def test_a_tool_that_is_off_is_not_offered_and_says_why_when_it_is_called(ctx: ToolContext) -> None:
    registry = Registry([Made("a"), Made("b")])
    registry.turn("b", "nobody wants it")
    assert (registry.names, [spec.name for spec in registry.specs()]) == (("a",), ["a"])
    output = await registry.execute(call("b"), ctx)
    assert (output.error, output.text) == ("DENIED", "b is off here: nobody wants it")
    before = registry.specs()
    registry.turn("b", "nobody wants it")
    assert registry.specs() is before
    registry.turn("b", None)
    assert registry.names == ("a", "b")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools"):
        Registry([Made("a"), Made("a")])


def test_the_tools_in_the_box_are_those_of_the_contract() -> None:
    registry = builtin_tools()
    assert registry.names == ("agent", "bash", "edit", "glob", "grep", "job", "read", "todo", "write")
    assert set(registry.off) == {"fetch"}
    registry.turn("fetch", None)
    assert {n for n in registry.names if registry.read_only(Call("c", n, ""))} == {
        "fetch", "glob", "grep", "read",
    }  # fmt: skip


def test_every_schema_is_closed_and_every_property_typed() -> None:
    for spec in builtin_tools().specs():
        assert spec.schema["additionalProperties"] is False
        assert set(spec.schema["required"]) <= set(spec.schema["properties"])
        assert all("type" in prop for prop in spec.schema["properties"].values())


def test_a_call_that_makes_no_sense_still_has_a_line_for_status() -> None:
    registry = files()
    assert registry.describe(call("read", path="src/a.py")) == "read: src/a.py"
    assert registry.describe(Call("c", "read", '{"pa')) == "read"
    assert registry.describe(Call("c", "nothing", "")) == "nothing"
    assert "\n" not in registry.describe(call("grep", pattern="a\nb"))


@pytest.mark.parametrize(
    ("name", "raw", "code", "said"),
    [
        ("reed", "{}", "UNKNOWN_TOOL", "Did you mean read? The tools are: edit, glob"),
        ("", "{}", "UNKNOWN_TOOL", "there is no tool"),
        ("read", '{"path":"a', "INVALID_ARGS", "break off"),
        ("read", '{"path":"a","path":"b"}', "INVALID_ARGS", "stands twice"),
        ("read", '{"pth":"a"}', "INVALID_ARGS", "did you mean path?"),
        ("read", '{"path":["a"]}', "INVALID_ARGS", "read expects {path: string, offset?: integer"),
        ("read", "[]", "INVALID_ARGS", "read was not run"),
    ],
)
async def test_a_bad_call_gets_a_result_that_says_what_is_wrong_and_what_is_expected(
    ctx: ToolContext, name: str, raw: str, code: str, said: str
) -> None:
    output = await files().execute(Call("c", name, raw), ctx)
    assert output.is_error
    assert output.error == code
    assert said in output.text


async def test_a_bad_call_does_not_run_the_body(ctx: ToolContext) -> None:
    ran: list[object] = []

    async def body(args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        ran.append(args)
        return text_output("ran")

    tool = Made("t", body, schema={"type": "object", "required": ["x"]})
    await Registry([tool]).execute(Call("c", "t", "{}"), ctx)
    assert ran == []


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ToolFailure("no such thing", code="NOT_FOUND"), "NOT_FOUND", "no such thing"),
        (
            Denied("the sandbox is missing", hint="dshctl doctor"),
            "DENIED",
            "missing. A person may type: dshctl doctor",
        ),
        (
            ZeroDivisionError("division by zero"),
            "TOOL_FAILED",
            "t failed: ZeroDivisionError: division by zero",
        ),
        (KeyError(), "TOOL_FAILED", "t failed: KeyError"),
        (ExceptionGroup("two", [ValueError("a"), OSError("b")]), "TOOL_FAILED", "t failed: ExceptionGroup"),
        (StopIteration("odd"), "TOOL_FAILED", "t failed"),
    ],
)
async def test_whatever_a_body_raises_becomes_an_error_output(
    ctx: ToolContext, error: Exception, code: str, said: str
) -> None:
    async def body(args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        raise error

    output = await Registry([Made("t", body)]).execute(Call("c", "t", ""), ctx)
    assert output.is_error
    assert output.error == code
    assert said in output.text


async def test_a_cancelled_body_that_also_fails_is_a_cancellation_and_nothing_else(ctx: ToolContext) -> None:
    started = trio.Event()

    async def body(args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        async def fails() -> None:
            started.set()
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("while being cancelled")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            nursery.start_soon(trio.sleep_forever)
        raise AssertionError

    with trio.fail_after(5), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Registry([Made("t", body)]).execute, Call("c", "t", ""), ctx)
            await started.wait()
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught


async def test_an_output_of_any_tool_is_bounded_and_free_of_lone_surrogates(ctx: ToolContext) -> None:
    async def body(args: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        await trio.lowlevel.checkpoint()
        return ToolOutput([{"type": "text", "text": "a" * 10 + "\ud83d" + "😀" * 500_000}])

    output = await Registry([Made("t", body)]).execute(Call("c", "t", ""), ctx)
    assert len(output.text) < 65_000
    assert "left out" in output.text
    output.text.encode()


async def test_a_rule_that_denies_or_asks_answers_instead_of_the_body(place: Path) -> None:
    ctx = context(place, rules=(Rule("deny", tool="todo"), Rule("ask", tool="read", path="*.pem")))
    assert "denied: the rule" in (await execute(ctx, "todo", items=[])).text
    output = await execute(ctx, "read", path="key.pem")
    assert output.error == "DENIED"
    assert output.text.startswith("denied: nobody to ask (")


def test_the_schema_library_is_not_loaded_before_a_call_is_checked() -> None:
    program = (
        "import sys\n"
        "from dshd.tools.builtin import builtin_tools\n"
        "registry = builtin_tools(); registry.specs()\n"
        "assert 'jsonschema' not in sys.modules\n"
        "registry.parse('todo', '{}')\n"
        "assert 'jsonschema' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
