"""`dshctl ping`: is a daemon there?"""

from __future__ import annotations

from dshctl import unreached
from dshctl.base import Cli, command


@command("ping", short_help="Is a daemon there?")
def COMMAND(cli: Cli) -> None:
    """Ask the daemon for a sign of life. Exit 3 without one; never starts one."""
    client = cli.client()
    if not client.is_running():
        raise unreached.nobody(client.places, off=False)
    client.connection(start=False)
    hello = client.hello
    pid = f", pid {hello['pid']}" if hello.get("pid") else ""
    cli.out.line(f"dshd {hello.get('version', '?')}{pid}.")
    cli.out.item({"type": "pong", "version": hello.get("version"), "protocol": hello.get("protocol"),
                  "pid": hello.get("pid")})  # fmt: skip
