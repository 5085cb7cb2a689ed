"""`dshctl paths`: where everything is."""

from __future__ import annotations

import os

from dshctl.base import Cli, command
from dshctl.output import table


@command(
    "paths",
    short_help="Where everything is.",
    examples=["dshctl paths", 'ls "$(dshctl paths --json | jq -r .state)"'],
)
def COMMAND(cli: Cli) -> None:
    """Where the config, the state and the socket are. Needs no daemon and creates nothing."""
    from dshd import paths

    places = paths.find_places(os.environ, socket=cli.socket)
    rows = [
        ("config", places.config),
        ("system", places.system_config),
        ("env", places.env_file),
        ("state", places.state),
        ("sessions", places.sessions),
        ("keys", places.keys),
        ("log", places.log),
        ("socket", places.socket),
        *(("or", other) for other in places.sockets[1:]),
    ]
    cli.out.lines(table(rows))
    cli.out.item(
        {
            "type": "paths",
            "config": places.config,
            "system_config": places.system_config,
            "env": places.env_file,
            "state": places.state,
            "sessions": places.sessions,
            "keys": places.keys,
            "log": places.log,
            "socket": places.socket,
            "sockets": list(places.sockets),
        }
    )
