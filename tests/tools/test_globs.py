from __future__ import annotations

import time

import pytest

from dshd.tools.globs import BadGlob, Glob, compile_globs, expand, literal_prefix


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/er/a.py", True),
        ("./*.py", "deep/a.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/b/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/b/c/a.py", True),
        ("src/**", "src/b/c", True),
        ("**/test_*", "a/b/test_x", True),
        ("a/**/b/**/c", "a/x/b/c", True),
        ("a/**/b/**/c", "a/x/c", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("*.{c,h}", "x.h", True),
        ("{src,lib}/*", "lib/x", True),
        ("{src}/*", "{src}/x", True),
        (".github/**", ".github/x", True),
        ("*", ".hidden", True),
        ("A", "a", False),
        ("[", "[", True),
    ],
)
def test_how_patterns_match(pattern: str, path: str, matches: bool) -> None:
    assert any(glob.match(path) for glob in compile_globs(pattern)) is matches


def test_a_directory_that_can_hold_no_match_is_known_by_its_empty_states() -> None:
    glob = Glob("src/**/*.py")
    assert not glob.advance(glob.start, "docs")
    assert glob.advance(glob.advance(glob.start, "src"), "anything")


@pytest.mark.parametrize("pattern", ["", "/", "a/../b", "x" * 2000, "{a,b}" * 10])
def test_patterns_that_can_not_be_used_are_refused(pattern: str) -> None:
    with pytest.raises(BadGlob):
        compile_globs(pattern)


def test_nested_braces_are_expanded() -> None:
    assert sorted(expand("{a,b{c,d}}")) == ["a", "bc", "bd"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ("", "*.py")),
        ("src/*.py", ("src", "*.py")),
        ("src/a.py", ("src", "a.py")),
        ("../x/**/*.c", ("../x", "**/*.c")),
        ("/etc/*.conf", ("/etc", "*.conf")),
        ("/*", ("/", "*")),
        ("{a,b}/c", ("", "{a,b}/c")),
    ],
)
def test_what_stands_before_the_first_magic_is_a_directory(pattern: str, expected: tuple[str, str]) -> None:
    assert literal_prefix(pattern) == expected


def test_no_pattern_takes_long_on_any_name() -> None:
    began = time.process_time()
    assert not Glob("/".join(["**", "*a" * 100 + "b"] * 5)).match("/".join(["a" * 250] * 40))
    assert time.process_time() - began < 2
