"""`dshctl doctor`: is all well? One line a check, with what to type where it isn't."""

from __future__ import annotations

import os
from typing import Any, Final

from dshctl import exits, pages
from dshctl.base import Cli, command
from dshctl.output import cut, one_line, pad, width
from dshd import __version__, wire
from dshd.errors import DshError

Json = dict[str, Any]
LEVELS: Final = {"ok": "ok", "warn": "warn", "fail": "FAIL"}
GAP: Final = "  "
LEAST: Final = 20  # columns for what is said


@command("doctor", short_help="Is all well? What to type if not.", examples=["dshctl doctor"])
def COMMAND(cli: Cli) -> int:
    """Look at the daemon, its state, the sandbox, the models and their keys, the sessions: one line for each,
    what to type at its right. Exit 1 on FAIL. Works without a daemon, and never starts one."""
    checks = [*_asked(cli), *pages.checks(os.environ)]
    for check in checks:
        cli.out.item(check)
    if not cli.json:
        cli.out.lines(lines(checks, cli.out.columns - 1 if cli.out.out.tty else None, cli.out.ellipsis))
    return exits.FAILURE if any(check["level"] == "fail" for check in checks) else exits.DONE


def _asked(cli: Cli) -> list[Json]:
    """Of a daemon that can't say it: what is wrong with it, and what its files say."""
    if not cli.client().is_running():
        return _looked(cli)
    try:
        checks: list[Json] = cli.ask(wire.DoctorParams(), start=False)["checks"]
    except DshError as error:
        rest = [check for check in _looked(cli) if check["check"] != "daemon"]
        return [_failed(error, cli.client().hello.get("version")), *rest]
    return [_compared(check, cli.client().hello.get("version")) for check in checks]


def _looked(cli: Cli) -> list[Json]:
    from dshctl import offline

    return offline.examined(cli)


def _failed(error: DshError, version: str | None) -> Json:
    other = version not in (None, __version__)
    what = f"{version}, and dshctl is {__version__}: {error.message}" if other else error.message
    fix = "dshctl daemon restart" if version else error.hint.split("\n")[0].split("   ")[0]
    return {"type": "check", "check": "daemon", "level": "fail", "what": what, "fix": fix or "dshctl ping"}


def _compared(check: Json, version: str | None) -> Json:
    """The daemon's line, with what only a client can know."""
    if check["check"] != "daemon":
        return check
    if version == __version__:
        return {**check, "what": check["what"].replace(__version__, f"{__version__}, same as dshctl", 1)}
    return {**check, "level": "warn", "what": f"{check['what']}; dshctl is {__version__}",
            "fix": "dshctl daemon restart"}  # fmt: skip


def lines(checks: list[Json], limit: int | None, ellipsis: str) -> list[str]:
    """``warn  sandbox  Landlock used    man dshd, SANDBOX``; on a terminal what is said gives way to what is
    to be typed, which is never cut."""
    left = _widest(checks, "check")
    heads = [f"{LEVELS.get(c['level'], c['level']):<4}{GAP}{pad(c['check'], left)}{GAP}" for c in checks]
    fixed = [check for check in checks if check["fix"]]
    middle = _widest(fixed, "what")
    if limit is not None:
        middle = max(LEAST, min(middle, limit - width(heads[0]) - len(GAP) - _widest(fixed, "fix")))
    return [_line(h, c, middle, limit, ellipsis) for h, c in zip(heads, checks, strict=True)]


def _widest(checks: list[Json], member: str) -> int:
    return max((width(one_line(check[member])) for check in checks), default=0)


def _line(head: str, check: Json, middle: int, limit: int | None, ellipsis: str) -> str:
    what, fix = one_line(check["what"]), check["fix"]
    if fix is None:
        return head + (what if limit is None else cut(what, limit - width(head), ellipsis))
    return f"{head}{pad(what if limit is None else cut(what, middle, ellipsis), middle)}{GAP}{fix}"
