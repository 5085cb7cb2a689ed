"""`dshctl key`: keep a provider's key."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from dshctl.base import Cli, Mistake, command
from dshd import paths
from dshd.errors import Invalid, NotFound

Json = dict[str, Any]


@command(
    "key",
    short_help="Keep a provider's key.",
    examples=["dshctl key deepseek", "pass show deepseek | dshctl key deepseek", "dshctl key --rm deepseek"],
)
@click.argument("route", required=False)
@click.option("--rm", "remove", is_flag=True, help="Forget the stored key.")
def COMMAND(cli: Cli, route: str | None, remove: bool) -> None:
    """Ask for a route's key (or read it from standard input) and keep it in a 0600 file.

    Alone: which routes have one stored. The key itself is never shown.
    """
    keys = Path(paths.find_places(os.environ, socket=cli.socket).keys)
    if route is None:
        _list(cli, keys)
    elif remove:
        _remove(cli, keys, route)
    else:
        _store(cli, keys, route)


def _list(cli: Cli, keys: Path) -> None:
    names = sorted(path.name for path in keys.iterdir() if path.name[0] != ".") if keys.is_dir() else []
    for name in names:
        cli.out.item({"type": "key", "route": name, "stored": True, "path": str(keys / name)})
        cli.out.line(name)
    if not names:
        cli.out.say("no keys are stored.   dshctl key deepseek")


def known_routes(cli: Cli) -> list[str]:
    """The built-in routes, and those of the config. Raises NotConfigured if that can't be read."""
    from dshd.config import BUILT_IN_ROUTES, load

    return [*BUILT_IN_ROUTES, *load(paths.find_places(os.environ, socket=cli.socket)).routes]


def _check_known(cli: Cli, route: str) -> None:
    """A key for a name that nothing asks for would never be used, and its owner never told."""
    known = list(dict.fromkeys(known_routes(cli)))
    if route not in known:
        raise NotFound(
            f'no route "{route}". There are: {", ".join(known)}; nothing was kept', hint="dshctl models"
        )


def _store(cli: Cli, keys: Path, route: str) -> None:
    from dshd.model import credentials

    try:
        credentials.key_path(keys.parent, route)
        _check_known(cli, route)
        path = credentials.store_key(keys.parent, route, read_secret(cli, route))
    except ValueError as error:
        raise Invalid(f"{error}; nothing was kept") from None
    cli.out.item({"type": "key", "route": route, "stored": True, "path": str(path)})
    cli.out.say(f"kept in {path} (0600).")


def _remove(cli: Cli, keys: Path, route: str) -> None:
    from dshd.model import credentials

    try:
        found = credentials.remove_key(keys.parent, route)
    except ValueError as error:
        raise Invalid(str(error)) from None
    if not found:
        raise NotFound(f'no key is stored for "{route}"', hint="dshctl key")
    cli.out.item({"type": "key", "route": route, "stored": False, "path": None})
    cli.out.say(f"the key of {route} is forgotten.")


def read_secret(cli: Cli, route: str) -> str:
    """From the terminal, unseen; or the first line of standard input. Never from argv: `ps` shows it."""
    if cli.terminal:
        import getpass

        return getpass.getpass(f"Key for {route} (it is not shown): ")
    if sys.stdin is None or sys.stdin.isatty():
        raise Mistake("no key: give it on standard input", f"pass show {route} | dshctl key {route}")
    return sys.stdin.buffer.readline(65536).decode("utf-8", "replace").strip()
