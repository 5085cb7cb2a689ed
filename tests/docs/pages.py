"""Reads the manual pages' source, as far as the tests need it: list items and what stands in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Item:
    """One ``.It`` of a list, with the section and subsection it stands in."""

    section: str
    subsection: str
    tag: str  # the macro line after .It
    body: str

    @property
    def source(self) -> str:
        return f"{self.tag}\n{self.body}"


@dataclass(frozen=True)
class Page:
    name: str
    source: str
    items: tuple[Item, ...]

    def section(self, title: str) -> list[Item]:
        return [item for item in self.items if item.section == title]


def read(name: str) -> Page:
    """The page ``man/NAME``."""
    source = (ROOT / "man" / name).read_text()
    return Page(name, source, tuple(_items(source)))


def _items(source: str) -> list[Item]:
    section = subsection = ""
    items: list[Item] = []
    open_item: list[str] | None = None
    for line in source.splitlines():
        if line.startswith((".Sh ", ".Ss ")):
            open_item = None
            section, subsection = (line[4:], "") if line.startswith(".Sh ") else (section, line[4:])
        elif line.startswith(".It"):
            open_item = [line[4:]]
            items.append(Item(section, subsection, line[4:], ""))
        elif line.startswith(".El"):
            open_item = None
        elif open_item is not None:
            last = items.pop()
            items.append(Item(last.section, last.subsection, last.tag, f"{last.body}{line}\n"))
    return items


_MACROS = re.compile(r"[A-Z][a-z]\b")


def words(text: str, macro: str) -> set[str]:
    """What stands after ``macro`` on its lines: ``words(".Er A , B", "Er") == {"A", "B"}``."""
    found: set[str] = set()
    for line in text.splitlines():
        taken = False
        for token in line.lstrip(".").split():
            if _MACROS.fullmatch(token):
                taken = token == macro
            elif taken and re.search(r"\w", token):
                found.add(token.strip(",").replace("\\", ""))
    return found


def flags(text: str) -> set[str]:
    """The options in ``text`` as they are typed: ``-s``, ``--key``."""
    return {f"-{word}" for word in re.findall(r"\bFl (-?\w[\w-]*)", text)} | {
        f"-{word}" for word in re.findall(r"\bFl [\w-]+ , (-[\w-]+)", text)
    }
