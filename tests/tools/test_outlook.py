"""What would become of a tool's calls, told before there is one; and that `policy` then says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshd.tools.outlook import Outlook, outlook
from dshd.tools.policy import Subject, decide
from dshd.tools.tool import Rule, ToolContext

DENY_PUSH = Rule("deny", tool="bash", command="git push*")


@pytest.mark.parametrize(
    ("tool", "mode", "rules", "action", "word"),
    [
        ("bash", "workspace", (), "allow", "sandboxed"),
        ("bash", "full", (), "allow", "without a sandbox"),
        ("bash", "read-only", (), "allow", "nothing is written"),
        ("write", "read-only", (), "deny", "read-only"),
        ("write", "read-only", (Rule("allow", tool="write"),), "deny", "read-only"),
        ("write", "workspace", (), "allow", "inside"),
        ("read", "workspace", (), "allow", "workspace"),
        ("read", "workspace", (Rule("deny", tool="re*"),), "deny", "rule 1"),
        ("read", "workspace", (Rule("deny"), Rule("allow", tool="read")), "allow", "rule 2"),
        ("bash", "workspace", (Rule("deny", tool="{read,write}"),), "allow", "mode"),
        ("fetch", "workspace", (Rule("allow", tool="fetch"),), "deny", "no network"),
        ("fetch", "full", (), "allow", "mode full: network"),
    ],
)
def test_the_mode_decides_and_then_the_last_rule(
    tool: str, mode: str, rules: tuple[Rule, ...], action: str, word: str
) -> None:
    found = outlook(tool, mode, False, "auto", rules)
    assert (found.action, word in found.by) == (action, True), found


def test_rules_about_something_special_are_told_beside() -> None:
    rules = (DENY_PUSH, Rule("ask", path="*.lock"), Rule("allow", command="make*"))
    assert outlook("bash", "workspace", True, "auto", rules) == Outlook(
        "allow",
        "mode workspace: sandboxed, writes inside the session's directory; network",
        ('rule 1: deny command "git push*"', 'rule 2: ask path "*.lock"', 'rule 3: allow command "make*"'),
    )
    assert outlook("write", "workspace", True, "auto", rules).unless == ('rule 2: ask path "*.lock"',)


def test_a_sandbox_that_is_off_is_told() -> None:
    assert "without a sandbox" in outlook("bash", "workspace", False, "none", ()).by
    assert "sandboxed" in outlook("bash", "read-only", False, "none", ()).by


@pytest.mark.parametrize("mode", ["read-only", "workspace", "full"])
@pytest.mark.parametrize("tool", ["write", "read"])
@pytest.mark.parametrize("rules", [(), (Rule("deny"),), (Rule("deny"), Rule("allow"))])
def test_what_is_told_is_what_is_done(mode: str, tool: str, rules: tuple[Rule, ...], tmp_path: Path) -> None:
    ctx = ToolContext(session="s", name="n", dir=tmp_path, spill_dir=tmp_path, mode=mode, rules=rules)
    subject = Subject(tool=tool, dir=tmp_path, path=tmp_path / "a", named=tmp_path / "a")
    assert decide(subject, ctx).action == outlook(tool, mode, False, "auto", rules).action
