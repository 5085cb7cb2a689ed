"""One of a thing is never told as several."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import dshctl
import dshd
from dshd.plural import count

SEVERAL = re.compile(r" (messages|sends|sessions|turns|lines|events|steps|calls|waits?|requests|files)\b")
# What a model has been told stays as it was: requests are made again from old logs, byte by byte.
KEPT = {"events.py"}


@pytest.mark.parametrize(("number", "says"), [(0, "0 wait"), (1, "1 waits"), (2, "2 wait")])
def test_things_and_what_they_do_agree(number: int, says: str) -> None:
    assert count(number, "waits", "wait") == says


@pytest.mark.parametrize(("number", "says"), [(0, "0 sends"), (1, "1 send"), (2, "2 sends")])
def test_one_is_singular(number: int, says: str) -> None:
    assert count(number, "send") == says


def sources() -> Iterator[Path]:
    for package in (dshd, dshctl):
        yield from Path(str(package.__file__)).parent.rglob("*.py")


def bare(source: Path) -> Iterator[str]:
    """``{number} messages`` in a text, where the number may be one. A constant in capitals isn't."""
    for node in ast.walk(ast.parse(source.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        for before, after in pairwise(node.values):
            if isinstance(before, ast.FormattedValue) and isinstance(after, ast.Constant):
                number, words = ast.unparse(before.value), str(after.value)
                if SEVERAL.match(words) and not number.split(".")[-1].isupper():
                    yield f"{source.name}:{node.lineno}: {number}{words}"


def test_no_text_puts_a_number_before_several_by_hand() -> None:
    found = [text for source in sources() if source.name not in KEPT for text in bare(source)]
    assert found == []
