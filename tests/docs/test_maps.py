"""Each room's docstring is its map: a stranger finds every module named there, and no door to nowhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(
    str(path.parent.relative_to(ROOT))
    for program in ("dshd", "dshctl")
    for path in (ROOT / program).rglob("__init__.py")
    if path.parent.name != "commands"  # one module a command, named after it
)


def mapped(room: str) -> set[str]:
    text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text())) or ""
    return set(re.findall(r"(?<!`)`([a-z_]+)`(?!`)", text))


def modules(room: str) -> set[str]:
    files = {path.stem for path in (ROOT / room).glob("*.py")}
    folders = {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}
    return (files | folders) - {"__init__", "__main__"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_rooms_map_names_what_is_in_it(room: str) -> None:
    assert not modules(room) - mapped(room)
