from __future__ import annotations

import pytest

from dshd.tools.tool import ToolContext
from tests.tools.doubles import execute

ITEMS = [
    {"text": "read", "state": "done"},
    {"text": "fix", "state": "active"},
    {"text": "test", "state": "pending"},
]


async def test_the_list_is_shown_and_goes_to_the_log_as_one_event(ctx: ToolContext) -> None:
    output = await execute(ctx, "todo", items=ITEMS)
    assert output.text == "[x] read\n[>] fix\n[ ] test"
    assert output.events == (("todo/write", {"items": ITEMS}),)
    assert output.summary == "1 of 3 done"


async def test_an_empty_list_clears_it(ctx: ToolContext) -> None:
    output = await execute(ctx, "todo", items=[])
    assert output.events == (("todo/write", {"items": []}),)
    assert output.text == "(the list is empty)"


@pytest.mark.parametrize(
    "items",
    [
        [{"text": "x"}],
        [{"text": "x", "state": "later"}],
        [{"text": "", "state": "done"}],
        [{"text": "  ", "state": "done"}],
        ["x"],
        [{"text": "x", "state": "done"}] * 101,
        [{"text": "x" * 501, "state": "done"}],
    ],
)
async def test_a_list_that_is_not_one_writes_nothing(ctx: ToolContext, items: list[object]) -> None:
    output = await execute(ctx, "todo", items=items)
    assert output.error == "INVALID_ARGS"
    assert output.events == ()
