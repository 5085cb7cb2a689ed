"""A server's tool as the registry sees one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from dshd.tools.tool import Args, ToolContext, ToolOutput

LONGEST = 4_000  # characters of a description

Calling = Callable[[ToolContext, str, Args], Awaitable[ToolOutput]]


@attrs.frozen(slots=True, kw_only=True)
class Remote:
    """``own``: what the server calls it. ``read_only`` is the server's word, and good for nothing but which
    calls run side by side."""

    name: str
    own: str
    description: str
    schema: dict[str, Any]
    read_only: bool
    calling: Calling = attrs.field(eq=False)

    def describe(self, args: Args) -> str:
        return self.name

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        return await self.calling(ctx, self.own, args)


def remote(name: str, tool: dict[str, Any], calling: Calling) -> Remote:
    """From the JSON of ``tools/list``. Raises `ValueError` for a schema that is none."""
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError("its arguments are no object")
    return Remote(
        name=name,
        own=str(tool["name"]),
        description=str(tool.get("description") or tool.get("title") or name)[:LONGEST],
        schema=schema,
        read_only=(tool.get("annotations") or {}).get("readOnlyHint") is True,
        calling=calling,
    )
