"""What would become of a tool's calls in a session, before there is one: for people who ask. Sans-IO.

`policy` decides each call by what it is about; here it is said what that depends on: the mode, then each rule
that may concern the tool, the last that matches counting most.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import attrs

from dshd.tools.globs import BadGlob, expand
from dshd.tools.policy import NETWORKED, WRITERS, has_net
from dshd.tools.tool import Rule

MODES = {
    "read-only": "nothing is written",
    "workspace": "inside the session's directory",
    "full": "anywhere",
}
COMMANDS = {
    "read-only": "sandboxed, nothing is written",
    "workspace": "sandboxed, writes inside the session's directory",
    "full": "without a sandbox",
}


@attrs.frozen(slots=True)
class Outlook:
    """``action``: what holds unless a rule about something special matches; ``by``: what decides that;
    ``unless``: such rules, in their order."""

    action: str
    by: str
    unless: tuple[str, ...] = ()


def outlook(tool: str, mode: str, net: bool, sandbox: str, rules: Sequence[Rule]) -> Outlook:
    """For a tool in a session of this mode."""
    found = _by_mode(tool, mode, net, sandbox)
    if found.action == "deny":
        return found  # no rule lifts what only a person may
    for number, rule in enumerate(rules, 1):
        if not _concerns(rule, tool):
            continue
        if rule.command is rule.path is rule.host is None:
            found = Outlook(rule.action, f"rule {number}")
        else:
            found = attrs.evolve(
                found, unless=(*found.unless, f"rule {number}: {rule.action} {_about(rule)}")
            )
    return found


def _by_mode(tool: str, mode: str, net: bool, sandbox: str) -> Outlook:
    if tool in WRITERS:
        return Outlook("deny" if mode == "read-only" else "allow", f"mode {mode}: {MODES[mode]}")
    if tool == "bash":
        free = mode == "workspace" and sandbox == "none"
        how = 'without a sandbox, for sandbox = "none"' if free else COMMANDS[mode]
        return Outlook(
            "allow", f"mode {mode}: {how}; {'network' if net or mode == 'full' or free else 'no network'}"
        )
    if tool in NETWORKED:
        there = has_net(mode, net)
        return Outlook("allow" if there else "deny", f"mode {mode}: {'network' if there else 'no network'}")
    return Outlook("allow", f"mode {mode}")


def _concerns(rule: Rule, tool: str) -> bool:
    if rule.tool is None:
        return tool == "bash" if rule.command is not None else True
    try:
        choices = expand(rule.tool)
    except BadGlob:
        choices = [rule.tool]
    return any(fnmatchcase(tool, choice) for choice in choices)


def _about(rule: Rule) -> str:
    given: dict[str, Any] = {"command": rule.command, "path": rule.path, "host": rule.host}
    return ", ".join(f'{name} "{value}"' for name, value in given.items() if value is not None)
