"""May this call run? A decision over mode, places and rules, in that order of growing force. Sans-IO.

1. The mode gives the default. ``read-only``: nothing is written. ``workspace``: files are written inside
   the session's directory. ``full``: anywhere. What commands may do is the sandbox's business. Where they
   have no network, `fetch` has none.
2. ``[[rules]]`` change the default; the last that matches wins. An allow can let a file outside of the
   directory be written, but it never lifts ``read-only``, or gives a network: only a person raises those.
3. Hidden places are never reached, and protected ones never written in ``workspace``, whatever rules say.
4. What is left at "ask" is allowed if a person has allowed this very thing (`grants`).

Rules match what would really happen: an *allow* must match the resolved path, and each part of a command
line (`commands`); a *deny* or *ask* is satisfied with the path as given, or any part. So ``allow git *``
does not let ``git status; rm -rf ~`` through, and ``deny *secret*`` can't be dodged with a link.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import attrs

from dshd.tools.commands import all_match, any_matches
from dshd.tools.globs import BadGlob, expand, path_matches
from dshd.tools.grants import Subject as Subject
from dshd.tools.grants import covered
from dshd.tools.places import inside, maybe_inside, why_protected
from dshd.tools.tool import Rule, ToolContext
from dshd.tools.urls import spellings

WRITERS = frozenset({"write", "edit"})
NETWORKED = frozenset({"fetch"})


@attrs.frozen(slots=True)
class Verdict:
    """``action`` is allow, ask or deny; ``reason`` says why, in words for the model."""

    action: str
    reason: str = ""

    @property
    def sentence(self) -> str:
        """What the model is told instead of a result, where nobody has been asked."""
        if self.action == "ask":
            return f"denied: nobody to ask ({self.reason})"
        return f"denied: {self.reason}"


ALLOWED = Verdict("allow")


def decide(subject: Subject, ctx: ToolContext) -> Verdict:
    """Allow, ask or deny one call."""
    verdict = _decide(subject, ctx)
    if verdict.action == "ask" and covered(subject, ctx.grants):
        return ALLOWED
    return verdict


def _decide(subject: Subject, ctx: ToolContext) -> Verdict:
    if subject.tool in WRITERS and ctx.mode == "read-only":
        change = f"dshctl set mode=workspace{ctx.whose}"
        return Verdict("deny", f"this session is read-only. A person can change that: {change}")
    if subject.tool in NETWORKED and not has_net(ctx.mode, ctx.net):
        return Verdict("deny", f"network is off here. A person can change that: dshctl set net=on{ctx.whose}")
    verdict = _by_rules(subject, ctx.rules, _by_mode(subject, ctx))
    if verdict.action == "deny" or subject.path is None:
        return verdict
    return _by_place(subject.path, subject, ctx) or verdict


def has_net(mode: str, net: bool) -> bool:
    """Whether tools reach the network."""
    return net or mode == "full"


def _by_mode(subject: Subject, ctx: ToolContext) -> Verdict:
    if subject.tool not in WRITERS or ctx.mode == "full" or subject.path is None:
        return ALLOWED
    if inside(subject.path, [subject.dir]):
        return ALLOWED
    return Verdict("deny", f"{subject.path} is outside of the session's directory, {subject.dir}")


def _by_place(path: Path, subject: Subject, ctx: ToolContext) -> Verdict | None:
    if is_hidden(path, ctx):
        return Verdict("deny", f"{path} is hidden from tools")
    if subject.tool in WRITERS and ctx.mode != "full":
        why = why_protected(path, ctx.protected)
        if why:
            return Verdict("deny", f"{path} is never writable in mode {ctx.mode}: {why}")
    return None


def is_hidden(path: Path, ctx: ToolContext) -> bool:
    """Whether a resolved path is kept from every tool. The insides of processes are: they hold keys."""
    if re.match(r"/proc/(\d+|self|thread-self)(/|$)", str(path)) or str(path) in ("/proc/kcore", "/dev/mem"):
        return True
    return maybe_inside(path, ctx.hidden) and not inside(path, (ctx.spill_dir, *ctx.readable))


# -- rules ----------------------------------------------------------------------------------------------


def _by_rules(subject: Subject, rules: Sequence[Rule], default: Verdict) -> Verdict:
    verdict = default
    for rule in rules:
        if matches(rule, subject):
            verdict = ALLOWED if rule.action == "allow" else Verdict(rule.action, _because(rule))
    return verdict


def _because(rule: Rule) -> str:
    given = attrs.asdict(rule, filter=lambda _, value: value is not None)
    del given["action"]
    what = ", ".join(f'{key} "{value}"' for key, value in given.items()) or "everything"
    return f"the rule on {what} says {rule.action}"


def matches(rule: Rule, subject: Subject) -> bool:
    """Whether every glob that the rule gives matches; one about something the call has not, does not."""
    strict = rule.action == "allow"
    return (
        (rule.tool is None or _any(rule.tool, [subject.tool]))
        and (rule.command is None or _command_matches(rule.command, subject.command, strict))
        and (rule.path is None or _path_matches(rule.path, subject, strict))
        and (rule.host is None or (subject.host is not None and _host_matches(rule.host, subject.host)))
    )


def names_host(subject: Subject, ctx: ToolContext) -> bool:
    """Whether the rules, or a person whom they ask, let the call have a host that nobody reaches by chance:
    a rule that names it does, not one about every host."""
    named = False
    for rule in ctx.rules:
        if not matches(rule, subject):
            continue
        if rule.action == "deny":
            named = False
        elif rule.host is not None and rule.host.strip("*.") != "":
            named = rule.action == "allow" or covered(subject, ctx.grants)
    return named


def _any(pattern: str, values: Sequence[str]) -> bool:
    try:
        choices = expand(pattern)
    except BadGlob:
        choices = [pattern]
    return any(fnmatchcase(value, choice) for value in values for choice in choices)


def _host_matches(pattern: str, host: str) -> bool:
    return _any(pattern.casefold(), spellings(host.casefold()))


def _command_matches(pattern: str, command: str | None, strict: bool) -> bool:
    if command is None:
        return False

    def this(text: str) -> bool:
        return _any(pattern, [text])

    if not strict:
        return any_matches(command, this)
    return pattern.strip() in ("*", "**", command) or all_match(command, this)


def _path_matches(pattern: str, subject: Subject, strict: bool) -> bool:
    if subject.path is None:
        return False
    pattern = at_home(pattern, subject.home)
    candidates = [subject.path] if strict or subject.named is None else [subject.path, subject.named]
    return any(path_matches(pattern, str(path), str(subject.dir)) for path in candidates)


def at_home(pattern: str, home: Path | None) -> str:
    """A path glob with ``~/`` filled in."""
    return f"{home}{pattern[1:]}" if pattern.startswith("~/") and home is not None else pattern


def path_rules(tool: str, ctx: ToolContext, root: Path) -> list[tuple[bool, str | None]]:
    """(allows, path glob) of the rules that can concern the files that a search of ``root`` meets, in order.
    Who has allowed the search has answered for what is asked about in it."""
    answered = any(grant.tool == tool and grant.path == str(root) for grant in ctx.grants)
    allowing = ("allow", "ask") if answered else ("allow",)
    return [
        (rule.action in allowing, None if rule.path is None else at_home(rule.path, ctx.home))
        for rule in ctx.rules
        if (rule.tool is None or _any(rule.tool, [tool])) and rule.command is None and rule.host is None
    ]
