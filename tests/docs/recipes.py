"""The recipes of dshd-cookbook(7), as a person would copy them from the page."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

PAGE = ROOT / "man" / "dshd-cookbook.7"
_RECIPE = re.compile(r'^\.\\" recipe: (\w+)\n\.Bd -literal[^\n]*\n(.*?)^\.Ed', re.MULTILINE | re.DOTALL)


def recipes() -> dict[str, str]:
    """{name: its lines}, in the page's order."""
    return {name: _shown(text) for name, text in _RECIPE.findall(PAGE.read_text())}


def _shown(text: str) -> str:
    """What man prints of literal text."""
    for escape, char in ((r"\(dq", '"'), (r"\(aq", "'"), (r"\e", "\\"), (r"\&", "")):
        text = text.replace(escape, char)
    return text
