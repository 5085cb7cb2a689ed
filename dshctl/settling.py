"""Which session is meant, where it is to be made if there is none, and what it is to have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dshctl import text
from dshctl.base import Cli, Mistake, here
from dshctl.options import BUDGETS
from dshd import paths, wire
from dshd.errors import Invalid, NotFound


def setting(name: str, value: str | None) -> Any:
    """An option's value as the daemon takes it."""
    if value == "":
        wire.check_unset(name)
    return None if not value else wire.setting(name, value)


def create_params(
    cli: Cli, given: dict[str, Any], *, implicit: bool = False, run: bool = False
) -> wire.CreateParams:
    """A session to be made, from the session options (``given``, by option name)."""
    name = given.get("name")
    return wire.CreateParams(
        dir=directory(given.get("directory")),
        name=None if name is None else wire.check_name(name),
        implicit=implicit,
        run=run,
        model=setting("model", given.get("model")),
        mode=setting("mode", given.get("mode")),
        net=setting("net", given.get("net")),
        ask=setting("ask", given.get("ask")),
        patience=setting("patience", given.get("patience")),
        **{name: setting(name, given.get(name)) for name in BUDGETS},
        env=environment(cli.out.environ, given.get("env") or ()),
        terminal=cli.terminal,
    )


def environment(environ: Mapping[str, str], named: tuple[str, ...]) -> dict[str, str]:
    """What the session's tools get of ours; values that are not UTF-8 are made so."""
    taken = paths.session_environment(environ, named)
    return {name: text.clean(os.fsencode(value)).text for name, value in taken.items()}


def directory(option: str | None) -> str:
    """The session's directory: ``-C``, else this one. Raises NotFound, Invalid."""
    if option is not None:
        return existing_directory("-C", option)
    found = here()
    if found is None:
        gone = "the current directory is gone or its name is no UTF-8"
        raise Invalid(f"{gone}; name one with -C DIR, or a session with -s")
    return found


def existing_directory(what: str, typed: str) -> str:
    """A directory as typed here: absolute, without links. Raises NotFound, Invalid."""
    if not typed:
        raise Invalid(f"{what} can't be empty: a directory")
    absolute = os.path.realpath(text.absolute(typed))
    if not os.path.isdir(absolute):
        raise NotFound(f"{what} {text.clean_word(absolute).text}: no such directory")
    return text.clean_word(absolute).text


def worktree(start: str) -> str:
    """The top of the git work tree that holds this directory, else the directory itself."""
    place = start
    while True:
        if os.path.exists(os.path.join(place, ".git")):
            return place
        above = os.path.dirname(place)
        if above == place:
            return start
        place = above


def to_create(cli: Cli, ref: str | None, create: bool, given: dict[str, Any]) -> wire.CreateParams | None:
    """What to make if there is no such session: for this directory always, for a name with --create."""
    place = where(cli, ref, given)
    if place["session"] in (None, "."):
        if place["cwd"] is None:
            return None
        return create_params(cli, {**given, "directory": worktree(place["cwd"])}, implicit=True)
    if not create:
        return None
    if given.get("name") not in (None, place["session"]):
        raise Mistake(f'two names: "{place["session"]}" and "{given["name"]}"')
    return create_params(cli, {**given, "name": place["session"]})


def where(cli: Cli, ref: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """`Cli.where`, with ``-C``: as if typed there, whatever the environment says."""
    if given.get("directory") is None:
        return cli.where(ref)
    return {"session": ref or ".", "cwd": existing_directory("-C", given["directory"])}


def settings(cli: Cli, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a session that is there already must have, of the session options given."""
    names = ("model", "mode", "net", "ask", "patience", *BUDGETS)
    wanted = {name: setting(name, given.get(name)) for name in names}
    wanted["name"] = given.get("name")
    if given.get("directory") is not None and given.get("session") not in (None, "."):
        wanted["dir"] = existing_directory("-C", given["directory"])
    named = [item.partition("=")[0] for item in given.get("env") or ()]
    taken = environment(cli.out.environ, tuple(given.get("env") or ()))
    wanted |= {f"env.{name}": taken[name] for name in named}
    return {name: value for name, value in wanted.items() if value is not None}
