"""`dshctl tools`: the tools of a session, and what decides about their calls."""

from __future__ import annotations

import os
from typing import Any

from dshctl.base import SESSION, Cli, command
from dshctl.output import one_line, table
from dshd import wire

Json = dict[str, Any]
HEAD = ("TOOL", "MAY", "WHAT DECIDES")


@command("tools", short_help="The tools, and what decides about them.",
         examples=["dshctl tools", "dshctl tools -s api"])  # fmt: skip
@SESSION
def COMMAND(cli: Cli, session: str | None) -> None:
    """The tools, whether their calls would be allowed, and by what: of a session if one is named, else of a
    new one."""
    named = session or os.environ.get("DSHD_SESSION")
    answer = cli.ask(wire.ToolListParams(**(cli.where(named) if named else {})))
    for tool in answer["tools"]:
        cli.out.item(tool)
    if not cli.json:
        rows = [HEAD, *(row for tool in answer["tools"] for row in rows_of(tool))]
        limit = cli.out.columns - 1 if cli.out.out.tty else None
        cli.out.lines(table(rows, limit=limit, ellipsis=cli.out.ellipsis))


def rows_of(tool: Json) -> list[tuple[str, str, str]]:
    """A line for the tool, and one for each rule about something special."""
    first = (str(tool["name"]), str(tool["action"]), one_line(tool["by"]))
    return [first, *(("", "", one_line(rule)) for rule in tool.get("unless") or ())]
