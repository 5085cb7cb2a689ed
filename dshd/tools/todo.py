"""`todo`: the agent's list of what it means to do, whole each time, kept in the log for people to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dshd.tools.files import schema
from dshd.tools.tool import Args, ToolContext, ToolFailure, ToolOutput, text_output

STATES = {"pending": "[ ]", "active": "[>]", "done": "[x]"}
MOST_ITEMS = 100
MOST_CHARACTERS = 500


class Todo:
    """Replace the list."""

    name: ClassVar[str] = "todo"
    description: ClassVar[str] = (
        "Set your list of what is to be done (the whole list each time, an empty one clears it). For work of"
        " several steps: write it first, keep one item active, mark items done as soon as they are."
    )
    schema: ClassVar[dict[str, Any]] = schema(
        ["items"],
        items={
            "type": "array",
            "maxItems": MOST_ITEMS,
            "items": schema(
                ["text", "state"],
                text={"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS},
                state={"type": "string", "enum": list(STATES)},
            ),
        },
    )
    read_only: ClassVar[bool] = False

    def describe(self, args: Args) -> str:
        return f"todo: {progress(args['items'])}"

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        items = args["items"]
        if any(not item["text"].strip() for item in items):
            raise ToolFailure("an item has no text", code="INVALID_ARGS")
        event = ("todo/write", {"items": items})
        return text_output(render(items), events=(event,), summary=progress(items))


def render(items: Sequence[Args]) -> str:
    """The list as the model and a person see it."""
    return "\n".join(f"{STATES[item['state']]} {item['text']}" for item in items) or "(the list is empty)"


def progress(items: Sequence[Args]) -> str:
    done = sum(item["state"] == "done" for item in items)
    return f"{done} of {len(items)} done" if items else "cleared"
