"""`dshctl rpc`: the daemon's protocol over standard input and output, and one call from a shell."""

from __future__ import annotations

from typing import Any

import click

from dshctl import exits
from dshctl.base import Cli, Mistake, command
from dshctl.client import OutcomeUnknown
from dshctl.output import dump
from dshd import nesting, paths
from dshd.errors import Unreachable


@command(
    "rpc",
    short_help="The daemon's protocol, for programs.",
    examples=[
        "dshctl rpc session.list",
        """dshctl rpc session.send '{"session":"api","verb":"say","text":"go on"}'""",
        "dshctl rpc      (JSON-RPC, a line each way; daemon.hello first)",
    ],
)
@click.argument("method", required=False, metavar="[METHOD]")
@click.argument("params", required=False, metavar="[JSON]")
def COMMAND(cli: Cli, method: str | None, params: str | None) -> int:
    """Lines of JSON-RPC from standard input to the daemon, and what it says to standard output.

    With METHOD one call is made, and its result printed. See dshd-rpc(7).
    """
    if method is None:
        return _pipe(cli)
    return _call(cli, method, _object(params))


def _object(text: str | None) -> dict[str, Any]:
    try:
        params = nesting.loads(text or "{}")
    except ValueError as error:
        raise Mistake(f"the parameters are no JSON: {error}") from None
    if not isinstance(params, dict):
        raise Mistake("the parameters are an object: {...}")
    return params


def _call(cli: Cli, method: str, params: dict[str, Any]) -> int:
    """Notifications as they come, then the result; each a line."""
    for name, told in cli.client().call(method, params):
        if cli.out.out.gone:
            break
        line = {"method": name, "params": told} if name else told
        cli.out.item(line) if cli.json else cli.out.out.write(dump(line) + "\n")
    return exits.DONE


def _pipe(cli: Cli) -> int:
    """A connection that nobody has said hello on: that is for who speaks through us."""
    from dshctl.piping import Pipe

    client = cli.client()
    client.connection()
    client.drop()
    sock = _connected(client.places)
    with sock:
        pipe = Pipe(sock, cli.out.out, client.deadline)
        pipe.run()
    if pipe.asked > 0 and not cli.out.out.gone:
        raise OutcomeUnknown(
            "the connection was lost before the daemon had answered everything", hint="dshctl status"
        )
    if not pipe.ended and not cli.out.out.gone:
        raise Unreachable("the daemon closed the connection", hint="dshctl ping")
    return exits.DONE


def _connected(places: paths.Places) -> Any:
    for path in places.sockets:
        try:
            return paths.connect(path, 5.0)
        except OSError:
            continue
    raise Unreachable("the daemon was there and is gone", hint="dshctl ping")
