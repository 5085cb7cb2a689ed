"""Path globs as a little automaton over path components. Sans-IO, standard library only.

`*`, `?` and `[...]` match within one component, `**` any number of components, `{a,b}` either. A set of
states is carried down a tree: a directory whose set is empty can hold no match and need not be read.
Matching takes time linear in the path for any pattern (components go through `fnmatch`, whose
expressions don't backtrack), so a pattern from a model can't stall anyone.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable

MOST_ALTERNATIVES = 64
MAGIC = re.compile(r"[*?\[{]")

States = frozenset[int]


class BadGlob(ValueError):
    """``str()`` says what is wrong with the pattern."""


class Glob:
    """One compiled pattern without braces. ``parts`` are its components."""

    def __init__(self, pattern: str) -> None:
        self.parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if ".." in self.parts:
            raise BadGlob('".." can only stand at the beginning of a pattern')
        self._tests: list[Callable[[str], object] | None] = [_component(part) for part in self.parts]
        self.start = self._closed({0})

    def _closed(self, states: Iterable[int]) -> States:
        found = set(states)
        for state in sorted(found):
            while state < len(self.parts) and self._tests[state] is None:
                state += 1
                found.add(state)
        return frozenset(found)

    def advance(self, states: States, name: str) -> States:
        """The states after one more path component."""
        after = set()
        for state in states:
            if state == len(self.parts):
                continue
            test = self._tests[state]
            if test is None:
                after.add(state)
            elif test(name):
                after.add(state + 1)
        return self._closed(after)

    def accepts(self, states: States) -> bool:
        return len(self.parts) in states

    def names(self, name: str) -> bool:
        """Whether the pattern spells this component out."""
        return name in self.parts

    def match(self, path: str) -> bool:
        """Whether a whole path, ``/`` between its components, matches."""
        states = self.start
        for part in path.split("/"):
            if part not in ("", "."):
                states = self.advance(states, part)
        return self.accepts(states)


def _component(part: str) -> Callable[[str], object] | None:
    if part == "**":
        return None
    # translate() reads a run of stars as one, so "a**b" is "a*b", as in other shells
    return re.compile(fnmatch.translate(part)).match


def compile_globs(pattern: str) -> list[Glob]:
    """All alternatives of a pattern; one without a slash is looked for at any depth."""
    if not pattern.strip("/"):
        raise BadGlob("the pattern is empty")
    if len(pattern) > 1000:
        raise BadGlob("the pattern is longer than 1000 characters")
    return [Glob(one if "/" in one else f"**/{one}") for one in expand(pattern)]


def path_matches(pattern: str, path: str, directory: str) -> bool:
    """How a rule's path glob is read: an absolute one sees the whole path, one with a slash what is below
    ``directory``, one without only the name. Both paths absolute and resolved."""
    text = path
    if not pattern.startswith("/") and "/" in pattern:
        base = directory.rstrip("/") + "/"
        if not path.startswith(base):
            return False
        text = path[len(base) :]
    try:
        return any(glob.match(text) for glob in compile_globs(pattern))
    except BadGlob:
        return False


def expand(pattern: str) -> list[str]:
    """``a/{b,c}`` to ``a/b`` and ``a/c``; braces without a comma or a partner stand for themselves."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        text = todo.pop(0)
        found = re.search(r"\{([^{}]*,[^{}]*)\}", text)
        if not found:
            done.append(text)
            continue
        before, after = text[: found.start()], text[found.end() :]
        todo += [f"{before}{choice}{after}" for choice in found.group(1).split(",")]
        if len(todo) + len(done) > MOST_ALTERNATIVES:
            raise BadGlob(f"the braces stand for more than {MOST_ALTERNATIVES} patterns")
    return list(dict.fromkeys(done))


def literal_prefix(pattern: str) -> tuple[str, str]:
    """A pattern as (directory without magic, rest): ``../src/**/*.py`` is (``../src``, ``**/*.py``)."""
    parts = pattern.split("/")
    count = next((i for i, part in enumerate(parts[:-1]) if MAGIC.search(part)), len(parts) - 1)
    return "/".join(parts[:count]) or ("/" if count else ""), "/".join(parts[count:])
