from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from dshd.tools.grants import Grant
from dshd.tools.policy import Subject, decide, names_host
from dshd.tools.tool import Rule, ToolContext

DIR = Path("/home/you/src/api")


def ctx(mode: str = "workspace", *rules: Rule) -> ToolContext:
    return ToolContext(
        session="s1",
        name="n",
        dir=DIR,
        spill_dir=Path("/state/s1/spill"),
        mode=mode,
        rules=rules,
        hidden=(Path("/state"),),
        protected=(Path("/state"), Path("/home/you/.dshd")),
    )


def bash(command: str) -> Subject:
    return Subject(tool="bash", dir=DIR, command=command)


def at(path: str, tool: str = "write", named: str | None = None) -> Subject:
    return Subject(tool=tool, dir=DIR, home=Path("/home/you"), path=Path(path), named=Path(named or path))


def action(subject: Subject, mode: str, *rules: Rule) -> str:
    return decide(subject, ctx(mode, *rules)).action


@pytest.mark.parametrize(
    ("mode", "tool", "path", "expected"),
    [
        ("read-only", "read", "/home/you/src/api/a", "allow"),
        ("read-only", "read", "/etc/hosts", "allow"),
        ("read-only", "write", "/home/you/src/api/a", "deny"),
        ("read-only", "edit", "/home/you/src/api/a", "deny"),
        ("workspace", "read", "/etc/hosts", "allow"),
        ("workspace", "read", "/state/key", "deny"),
        ("workspace", "read", "/State/key", "deny"),
        ("workspace", "read", "/state/s1/spill/out", "allow"),
        ("workspace", "read", "/state/s1/log.jsonl", "deny"),
        ("workspace", "read", "/proc/77/environ", "deny"),
        ("workspace", "read", "/proc/meminfo", "allow"),
        ("workspace", "write", "/home/you/src/api/a", "allow"),
        ("workspace", "write", "/home/you/src/api2/a", "deny"),
        ("workspace", "write", "/home/you/src/API/a", "deny"),
        ("workspace", "write", "/home/you/src/api/.git/config", "deny"),
        ("workspace", "edit", "/etc/hosts", "deny"),
        ("full", "write", "/etc/hosts", "allow"),
        ("full", "write", "/home/you/.bashrc", "allow"),
        ("full", "write", "/state/key", "deny"),
        ("full", "read", "/state/key", "deny"),
    ],
)
def test_what_each_mode_allows_without_rules(mode: str, tool: str, path: str, expected: str) -> None:
    assert action(at(path, tool), mode) == expected


A, D, Q = "allow", "deny", "ask"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((), A),
        ((Rule(D),), D),
        ((Rule(D), Rule(A)), A),
        ((Rule(A), Rule(D)), D),
        ((Rule(D), Rule(Q)), Q),
        ((Rule(D, tool="bash"),), D),
        ((Rule(D, tool="ba*"),), D),
        ((Rule(D, tool="{bash,write}"),), D),
        ((Rule(D, tool="write"),), A),
        ((Rule(D, path="**"),), A),
        ((Rule(D, host="*"),), A),
        ((Rule(D, command="rm *"),), A),
        ((Rule(D, command="make*"),), D),
        ((Rule(D, tool="bash", command="make *"), Rule(A, tool="bash", command="make test")), A),
        ((Rule(A, tool="bash", command="make test"), Rule(D, tool="bash", command="make *")), D),
    ],
)
def test_the_last_rule_that_matches_wins(rules: tuple[Rule, ...], expected: str) -> None:
    assert action(bash("make test"), "workspace", *rules) == expected


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf ~",
        "git status && curl x | sh",
        "git status\nrm x",
        "git status & rm x",
        "git log | sh",
        "git log $(rm x)",
        "git log `rm x`",
        "git log > ~/.bashrc",
        "git diff <(rm x)",
        "rm x; git status",
        "{ git status; rm x; }",
    ],
)
def test_an_allow_for_one_command_lets_no_other_ride_along(command: str) -> None:
    rules = (Rule(D, tool="bash"), Rule(A, tool="bash", command="git *"))
    assert action(bash(command), "workspace", *rules) == D


def test_an_allow_holds_for_each_part_that_matches_it() -> None:
    rules = (Rule(D, tool="bash"), Rule(A, tool="bash", command="git *"))
    assert action(bash("git add . && git commit -m x"), "workspace", *rules) == A
    assert action(bash("anything; at all"), "workspace", Rule(D), Rule(A, command="*")) == A


@pytest.mark.parametrize(
    "command", ["rm -rf x", "cd y && rm -rf x", "(rm -rf x)", "true; $(rm -rf x)", "`rm -rf x`"]
)
def test_a_deny_for_a_command_finds_it_anywhere_in_the_line(command: str) -> None:
    assert action(bash(command), "workspace", Rule(D, command="rm *")) == D


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("docs/**", "/home/you/src/api/docs/a/b.md", True),
        ("docs/*", "/home/you/src/api/docs/a/b.md", False),
        ("docs/**", "/home/you/src/api/src/docs/b.md", False),
        ("docs/**", "/elsewhere/docs/b.md", False),
        ("*.pem", "/home/you/src/api/deep/x.pem", True),
        ("*.pem", "/etc/x.pem", True),
        ("/etc/**", "/etc/ssl/x", True),
        ("/etc/*", "/etc/ssl/x", False),
        ("~/notes/**", "/home/you/notes/a", True),
        ("~/notes/**", "/home/her/notes/a", False),
        ("{a,b}/*", "/home/you/src/api/b/x", True),
        ("[", "/home/you/src/api/[", True),
    ],
)
def test_how_path_globs_match(pattern: str, path: str, matches: bool) -> None:
    assert (action(at(path, "read"), "workspace", Rule(D, path=pattern)) == D) is matches


def test_an_allow_opens_a_place_outside_of_the_directory() -> None:
    rule = Rule(A, tool="write", path="~/notes/**")
    assert action(at("/home/you/notes/a"), "workspace", rule) == A
    assert action(at("/home/you/notes/a", "edit"), "workspace", rule) == D


def test_an_allow_opens_neither_a_protected_nor_a_hidden_place_nor_read_only() -> None:
    assert action(at("/home/you/.ssh/config"), "workspace", Rule(A)) == D
    assert action(at("/home/you/.dshd/config.toml"), "workspace", Rule(A)) == D
    assert action(at("/state/key", "read"), "full", Rule(A)) == D
    assert action(at("/home/you/src/api/a"), "read-only", Rule(A)) == D


def test_an_allow_looks_at_where_a_link_leads_and_a_deny_at_its_name_too() -> None:
    subject = at("/etc/passwd", named="/home/you/notes/link")
    assert action(subject, "workspace", Rule(A, tool="write", path="~/notes/**")) == D
    assert action(subject, "full", Rule(D, path="~/notes/**")) == D


def test_hosts_match_without_case() -> None:
    subject = Subject(tool="fetch", dir=DIR, host="Docs.Python.org")
    assert action(subject, "full", Rule(D, host="*.Python.org")) == D
    assert action(subject, "full", Rule(D, host="python.org")) == A


def test_a_host_matches_as_people_write_it_and_as_the_network_has_it() -> None:
    subject = Subject(tool="fetch", dir=DIR, host="xn--bcher-kva.example")
    for pattern in ("bücher.*", "BÜCHER.example", "xn--*"):
        assert action(subject, "full", Rule(D, host=pattern)) == D


def test_no_rule_gives_a_network_where_there_is_none() -> None:
    subject = Subject(tool="fetch", dir=DIR, host="docs.example")
    assert action(subject, "workspace", Rule(A, tool="fetch", host="docs.example")) == D
    online = attrs.evolve(ctx("read-only"), net=True)
    assert decide(subject, online).action == A


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ((), False),
        ((Rule(A),), False),
        ((Rule(A, host="*"),), False),
        ((Rule(A, host="*.*"),), False),
        ((Rule(A, host="router"),), True),
        ((Rule(A, tool="bash", host="router"),), False),
        ((Rule(A, host="router"), Rule(A)), True),
        ((Rule(A, host="router"), Rule(D, tool="fetch")), False),
        ((Rule(D), Rule(A, host="rout?r")), True),
        ((Rule(Q, host="router"),), False),
    ],
)
def test_a_host_that_nobody_reaches_by_chance_must_be_named(rules: tuple[Rule, ...], named: bool) -> None:
    subject = Subject(tool="fetch", dir=DIR, host="router")
    assert names_host(subject, ctx("full", *rules)) is named
    answered = attrs.evolve(ctx("full", *rules), grants=(Grant(tool="fetch", host="router"),))
    assert names_host(subject, answered) is (named or rules == (Rule(Q, host="router"),))


def test_asking_is_denied_because_nobody_is_there_and_the_rule_is_named() -> None:
    verdict = decide(bash("make deploy"), ctx("workspace", Rule(Q, tool="bash", command="make deploy*")))
    assert verdict.action == "ask"
    assert verdict.sentence == (
        'denied: nobody to ask (the rule on tool "bash", command "make deploy*" says ask)'
    )
