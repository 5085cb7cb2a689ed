"""What a server's tools are called: ``mcp__NAME__tool``. Sans-IO."""

from __future__ import annotations

import re
from collections.abc import Iterable

PREFIX = "mcp__"
LONGEST = 64  # what models take
MOST = 128  # tools of a server; some providers take no more in all
FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


def named(server: str, tool: str) -> str:
    return FOREIGN.sub("_", f"{PREFIX}{server}__{tool}")


def sort_out(server: str, tools: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """{name: the server's own name} in order, and a sentence for each tool that can't be offered."""
    found: dict[str, str] = {}
    problems: list[str] = []
    for tool in sorted(tools):
        name = named(server, tool)
        if len(found) >= MOST:
            problems.append(f"{tool[:80]} is left out: {MOST} of a server are the most")
        elif len(name) > LONGEST:
            problems.append(f"{tool[:80]} is left out: {name[:80]} is longer than {LONGEST} characters")
        elif name in found:
            problems.append(f"{tool} is left out: another tool is called {name} already")
        else:
            found[name] = tool
    return found, problems
