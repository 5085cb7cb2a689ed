"""How a message or a turn ended, on both streams: the answer, the sentence, and the command that may help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dshctl import exits, sentences
from dshctl.output import error_text

if TYPE_CHECKING:
    from dshctl.base import Cli

Json = dict[str, Any]


def show_result(cli: Cli, result: Json) -> int:
    """The answer alone on standard output; on standard error how it ended, if not well."""
    code = exits.of_result(result)
    cli.out.item({"type": "result", **result, "exit": code})
    if result.get("text"):
        cli.out.line(str(result["text"]).rstrip("\n"))
    if code:
        cli.out.fail(how(result, cli.out.environ))
    for lost in result.get("unknown") or ():
        cli.out.fail(f"dshctl: it is not known whether this was done: {lost.get('tool')}: {lost.get('what')}")
    return code


def how(result: Json, environ: Mapping[str, str]) -> str:
    """The sentence, and below it what to type."""
    return error_text(f"{sentences.ended(result)}{_reaches(result, environ)}", "\n".join(way_out(result)))


def _wake(result: Json) -> Iterator[str]:
    stop = (result.get("parked") or {}).get("budget")
    if stop:
        yield f"dshctl wake -s {sentences.name_of(result)} --add {stop['add']}"
    elif result.get("message"):
        yield f"dshctl why {result['message']}"
    else:
        yield f"dshctl wake -s {sentences.name_of(result)}"


def _reaches(result: Json, environ: Mapping[str, str]) -> str:
    """Why a variable that is set here is missing there."""
    error = result.get("error") or {}
    named = re.findall(r"[A-Z][A-Z0-9_]+", str(error.get("message")))
    if error.get("code") == "MISSING_CREDENTIAL" and any(name in environ for name in named):
        return " It was started without; your shell's variables don't reach a daemon that runs."
    return ""


def _key(result: Json) -> Iterator[str]:
    """Where a key is missing or refused: `dshctl key ROUTE`."""
    route = str(result.get("model") or "ROUTE").partition("/")[0]
    yield f"dshctl key {route}            (asks for the key, keeps it in a 0600 file)"
    yield f"dshctl retry -s {sentences.name_of(result)}"


def way_out(result: Json) -> Iterator[str]:
    """The command that may help, by how it ended."""
    name = sentences.name_of(result)
    for approval in result.get("approvals") or ():
        yield f"dshctl allow {approval.get('id') if isinstance(approval, dict) else approval}"
    code = exits.of_result(result)
    if code == exits.PARKED:
        yield from _wake(result)
    elif result.get("turn") and result.get("newest") is False:  # its session has gone on: no retry takes it
        yield f"dshctl log -s {name} --turn {result['turn']}"
        yield f"dshctl followup -s {name} 'TEXT'"
    elif code == exits.BUDGET and result.get("budget"):
        yield f"dshctl wake -s {name} --add {result['budget']['add']}"
    elif code == exits.DAMAGED:
        yield f"dshctl show {name}"
    elif (result.get("error") or {}).get("code") in ("MISSING_CREDENTIAL", "AUTH"):
        yield from _key(result)
    elif code == exits.NOT_CONFIGURED:
        yield "dshctl models"
    elif code in (exits.BLOCKED, exits.REMOVED) and result.get("message"):
        yield f"dshctl message {result['message']}"
    elif code in (exits.ERROR, exits.LATER, exits.INTERRUPTED):
        yield f"dshctl log -s {name}"
        yield f"dshctl retry -s {name}"
