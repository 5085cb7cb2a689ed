"""`dshctl usage`: tokens and cost, by day, session or model."""

from __future__ import annotations

import time
from typing import Any, Literal

import click

from dshctl.base import SESSION, Cli, Read, command
from dshctl.commands.log import read_since
from dshctl.output import table
from dshd import budgets, wire

Json = dict[str, Any]
DAYS = 7


@command("usage", short_help="Tokens and cost, by day, session or model.",
         examples=["dshctl usage", "dshctl usage --by model --since '2026-11-01 00:00'"])  # fmt: skip
@SESSION
@click.option("--by", type=click.Choice(["day", "session", "model"]), default="day", metavar="WHAT",
              help="day, session or model.")  # fmt: skip
@click.option("--since", type=Read("T", read_since), metavar="T", help="From this time on (7 days).")
def COMMAND(cli: Cli, session: str | None, by: Literal["day", "session", "model"], since: int | None) -> None:
    """What was spent in the last seven days, from the logs: by all sessions, or by one. Works without a
    daemon."""
    begin = since if since is not None else days_ago(DAYS - 1)
    where = cli.where(session) if session else {}
    answer = _ask(cli, wire.UsageShowParams(by=by, since=begin, **where))
    rows = [*answer["rows"], answer["total"]]
    for row in rows:
        cli.out.item(row)
    if not cli.json:
        cli.out.lines(lines(cli, by, rows))


def _ask(cli: Cli, params: wire.UsageShowParams) -> Json:
    if cli.client().is_running():
        answer: Json = cli.ask(params, start=False)
        return answer
    from dshctl import offline

    return offline.usage(cli, params)


def days_ago(number: int) -> int:
    """The beginning of that local day, in Unix ms."""
    now = time.localtime()
    begin = (now.tm_year, now.tm_mon, now.tm_mday - number, 0, 0, 0, 0, 0, -1)
    return int(time.mktime(begin) * 1000)


def lines(cli: Cli, by: str, rows: list[Json]) -> list[str]:
    if not any(row["calls"] for row in rows):
        return ["Nothing was spent."]
    head = (by.upper(), "CALLS", "INPUT", "CACHED", "OUTPUT", "COST")
    limit = cli.out.columns - 1 if cli.out.out.tty else None
    cells = [head, *map(row_of, rows)]
    return table(cells, right=frozenset({1, 2, 3, 4}), limit=limit, ellipsis=cli.out.ellipsis)


def row_of(row: Json) -> tuple[str, ...]:
    counts = (budgets.thousands(row[kind]) for kind in ("input", "cached", "output"))
    return (str(row["what"]), str(row["calls"]), *counts, money(row))


def money(row: Json) -> str:
    """``$2.31``, in each currency; ``-`` where no price was known."""
    costs = {**row.get("earlier", {}), **({row["currency"]: row["cost"]} if row["cost"] is not None else {})}
    return " + ".join(budgets.price(cost, currency) for currency, cost in costs.items()) or "-"
