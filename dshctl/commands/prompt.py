"""`dshctl prompt show`: what the model is told, and how large it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from dshctl.base import SESSION, Cli, Group, command, one_session, session_argument
from dshctl.output import table
from dshctl.sentences import count, name_of
from dshctl.words import mistaken
from dshd import budgets, wire

Json = dict[str, Any]


class Prompt(Group):
    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """``dshctl prompt fix the tests`` is somebody's idea of a followup."""
        if args[0] not in self.commands and args[0] not in self.near:
            raise mistaken("prompt", ())
        return super().resolve_command(ctx, args)


COMMAND = Prompt(
    "prompt",
    default="show",
    short_help="What the model is told.",
    help="What the model is told, and how large it is. Alone: show.",
    near={"ls": "show", "list": "show", "cat": "show --text"},
)


@command("show", short_help="Its parts and their sizes (the default).",
         examples=["dshctl prompt show", "dshctl prompt show api --text"])  # fmt: skip
@session_argument()
@SESSION
@click.option("--text", "whole", is_flag=True, help="The system prompt itself.")
def show(cli: Cli, which: str | None, session: str | None, whole: bool) -> None:
    """The sections of the system prompt, their sizes, what was cut and why; the tools, the conversation."""
    found = cli.ask(wire.PromptShowParams(**cli.where(one_session(session, which))))
    cli.out.item({"type": "prompt", **found})
    if cli.json:
        return
    limit = cli.out.columns if cli.out.out.tty else None
    cli.out.lines(str(found["text"]).split("\n") if whole else list(lines(found, limit, cli.out.ellipsis)))


def lines(found: Json, limit: int | None, ellipsis: str) -> Iterator[str]:
    size, window = budgets.thousands, found.get("window")
    whole = size(found["tokens"])
    if window:
        whole = f"{budgets.in_window(found['tokens'], window)} of {budgets.window(window)}"
    from_on = found.get("compacts_at")
    late = f"; compacted from {budgets.in_window(from_on, window or 0)} on" if from_on else ""
    yield f"{name_of(found)}: {whole} tokens, model {found.get('model')}{late}"
    yield ""
    rows = [(row["section"], size(row["tokens"]), _cut(row)) for row in found["sections"]]
    tools = f"{count(len(found['tools']), 'tool')}: {', '.join(tool['tool'] for tool in found['tools'])}"
    times = int(found.get("compactions") or 0)
    said = count(found["messages"], "message") + (f", compacted {count(times, 'time')}" if times else "")
    rows += [("tools' schemas", size(found["parts"]["tools"]), tools),
             ("conversation", size(found["parts"]["conversation"]), said)]  # fmt: skip
    yield from table(rows, right=frozenset({1}), limit=limit, ellipsis=ellipsis)


def _cut(row: Json) -> str:
    """What became of a section: ``of 12 k; its budget is 8 k``."""
    if row["rule"] == "whole":
        return ""
    own = row["why"] == "budget"
    why = f"its budget is {budgets.thousands(row['budget'])}" if own else "no room for more"
    kept = {"dropped": "left out", "head": "its beginning", "tail": "its end", "middle": "its two ends"}
    return f"{kept.get(row['rule'], row['rule'])}, of {budgets.thousands(row['was'])}: {why}"


COMMAND.add_command(show)
