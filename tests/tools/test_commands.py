"""Which commands a line of shell holds, for rules that allow and for rules that ask or deny."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import pytest

from dshd.tools.commands import all_match, any_matches, commands


def git(text: str) -> bool:
    return fnmatchcase(text, "git *")


def rm(text: str) -> bool:
    return fnmatchcase(text, "rm *")


@pytest.mark.parametrize(
    "line",
    [
        "git status", "git add . && git commit -m x", " git log ; git status\n", "git log | git apply",
        "(git status)", "{ git status; }", "git log 'a b'",
    ],
)  # fmt: skip
def test_a_line_of_nothing_but_this_command_is_all_this(line: str) -> None:
    assert all_match(line, git)


@pytest.mark.parametrize(
    "line",
    [
        "", " ", ";", "git", "gitx status", "git status; rm -rf ~", "git status && rm x",
        "git status || rm x",
        "git status & rm x", "git status\nrm x", "git log | sh", "git log $(rm x)", "git log `rm x`",
        "git log > ~/.bashrc", "git log >> x", "git log 2>x",
        "git apply < x", "git diff <(rm x)",
        "git log ${x:-$(rm x)}", "git log ${x}", "git log $[x]", "git log $((x))", "X=1 git status",
        "if git status; then rm x; fi", "! git status", "git() { rm x; }; git status", "git status #\nrm x",
        "git status \\\nrm x", "\u2028git status", "\x0bgit status", "git status |& rm x",
        "git\tstatus; rm x",
        "time git status", "eval git status", "git status;rm x", "git log <<< x", "coproc git status",
    ],
)  # fmt: skip
def test_a_line_with_anything_else_in_it_is_not(line: str) -> None:
    assert not all_match(line, git)


@pytest.mark.parametrize(
    "line",
    [
        "rm x", "cd y && rm x", "(rm x)", "true; $(rm x)", "`rm x`", "rm\tx", "  rm x", "\"rm\" x", "r\\m x",
        "r''m x", "r\\\nm x", "/bin/rm x", "./rm x", "FOO=1 rm x", "A=1 B=2 rm x", "a[0]=1 rm x", "a+=1 rm x",
        "if true; then rm x; fi", "while :; do rm x; done", "! rm x", "time rm x", "{ rm x; }", "true&&rm x",
        "true|rm x", "true\nrm x", "sudo rm x", "sudo -u me rm x", "env A=1 rm x", "env -i rm x",
        "nohup rm x",
        "command rm x", "exec rm x", "builtin rm x", "nice -n 5 /usr/bin/rm x", "timeout 5 rm x",
        "ls | xargs rm x", "ls | xargs -0 -n1 rm x", "find . -exec rm {} +", "sh -c 'rm x'",
        "bash -lc \"cd y; rm x\"", "bash -c 'bash -c \"rm x\"'", "eval rm x", "eval 'r''m x'",
        "eval \"rm x\"", "trap 'rm x' EXIT", "echo \"$(rm x)\"", "echo \"$(true; r'm' x)\"", "echo `r\\m x`",
        "a=$(b) rm x", "<f rm x", "2>/dev/null rm x", "> out rm x", "echo <(rm x)", "echo $(echo $(rm x))",
        "echo 'it''s'; rm x", "echo \"'\"; rm x", "echo '\"' ; rm x", "cat <<E\nx\nE\nrm x",
        "sudo env X=1 nice rm x", "bash <<< 'rm x'", "sudo sh -s <<<\"true; rm x\"", "$'rm' x",
        "$'\\x72\\155' x", "true; $'\\u0072m' x", "sh -c $'rm\\tx'", "echo $'\\x00'; rm x",
    ],
)  # fmt: skip
def test_a_command_is_found_however_it_is_run(line: str) -> None:
    assert any_matches(line, rm)


@pytest.mark.parametrize(
    "line",
    ["echo rm", "grep rm x", "farm x", "git rm x", "git commit -m 'farm x'", "rmdir x", "echo 'a b'", ""],
)
def test_a_word_that_is_no_command_is_not_taken_for_one(line: str) -> None:
    assert not any_matches(line, rm)


@pytest.mark.parametrize(
    "line",
    [
        "sudo " * 9_000,
        "sh " * 9_000,
        "$(" * 20_000,
        "`" * 9_999,
        "x;" * 9_000,
        "'" * 9_999,
        "eval 'a b' " * 2_000,
    ],
    ids=lambda line: line[:8],
)
def test_a_tangled_line_costs_little_and_is_rather_asked_about_than_not(line: str) -> None:
    began = time.process_time()
    any_matches(line, rm)
    all_match(line, git)
    assert time.process_time() - began < 2
    assert any_matches(f"{line} ; rm x" if "'" not in line else f"rm x; {line}", rm)


def test_words_are_as_the_shell_makes_them() -> None:
    assert commands("a 'b c' \"d $e\" f\\ g; h") == [["a", "b c", "d $e", "f g"], ["h"]]
    assert commands("a \"$(b 'c d')e\" f") == [["a", ""], ["b", "c d"], ["e", "f"]]
    assert commands("a ''") == [["a", ""]]
