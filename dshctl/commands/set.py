"""`dshctl set`: change a session's settings."""

from __future__ import annotations

from typing import Any

import click

from dshctl import sentences, settling
from dshctl.base import SESSION, Cli, Mistake, command, one_session
from dshctl.commands.show import facts
from dshctl.times import now_ms
from dshd import wire

Json = dict[str, Any]


@command(
    "set",
    short_help="Change a session's settings: K=V.",
    examples=[
        "dshctl set net=on",
        "dshctl set nightly model=fast mode=read-only",
        "dshctl set env.NODE_ENV=test",
    ],
)
@click.argument("words", nargs=-1, required=True, metavar="[SESSION] K=V...")
@SESSION
def COMMAND(cli: Cli, words: tuple[str, ...], session: str | None) -> None:
    """Change settings: model, mode, net, ask, patience, max-cost, max-steps, max-time, max-tokens,
    max-errors, session_cost, dir, env.NAME. An empty value unsets."""
    which, pairs = split(words)
    values = dict(value_of(pair) for pair in pairs)
    params = wire.SetParams(**cli.where(one_session(session, which)), values=values)
    changed: Json = cli.ask(params, repeat=True)
    cli.out.item({"type": "session", **changed})
    if not cli.out.quiet:
        now = dict(facts(changed, now_ms()))
        told = [f"{name} {now.get(name) or said(name, values[name])}" for name in values]
        cli.out.line(f"{sentences.name_of(changed)}: {', '.join(told)}.")


def said(name: str, value: Any) -> str:
    """A value as a person reads it; of a budget with its unit."""
    from dshd import budgets

    kind = next((budget.kind for budget in budgets.TABLE if budget.setting == name), None)
    if kind is None or value is None:
        return pair_text(value)
    return budgets.shown(kind, value) if value else "none"


def pair_text(value: Any) -> str:
    return "unset" if value is None else {True: "on", False: "off"}.get(value, str(value))


def split(words: tuple[str, ...]) -> tuple[str | None, list[str]]:
    """A session, if the first word is no pair, and the pairs. Raises Mistake."""
    which = None if "=" in words[0] else words[0]
    pairs = list(words if which is None else words[1:])
    wrong = next((word for word in pairs if "=" not in word), None)
    if wrong is not None:
        raise Mistake(f'"{wrong}" is not K=V', "dshctl set net=on")
    if not pairs:
        raise Mistake("nothing to set", "dshctl set net=on")
    return which, pairs


def value_of(pair: str) -> tuple[str, Any]:
    """``net=on`` as a name and a value; an empty value is None, which unsets what can be unset."""
    typed, _, value = pair.partition("=")
    name = wire.setting_name(typed)
    if not value:
        wire.check_unset(name)
        return name, None
    if name == "dir":
        return name, settling.existing_directory("dir", value)
    return name, wire.setting(name, value)
