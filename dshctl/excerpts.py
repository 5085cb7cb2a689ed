"""Pieces of a conversation in a few words: a call, a text, how a result went, what it cost."""

from __future__ import annotations

import re
from typing import Any, Final

from dshctl.output import one_line
from dshctl.sentences import count
from dshd import budgets, nesting

Json = dict[str, Any]

HEAD: Final = 400  # characters of a long text that are shown, and
HEAD_LINES: Final = 4


def text_of(data: Json, place: str = "") -> str:
    """The text of a message or a result. ``place``: where the session keeps long texts, of which the
    beginning is shown, and where the whole is."""
    blocks = data.get("content") or ()
    return "\n".join(_block_text(block, place) for block in blocks if block.get("type") in ("text", "file"))


def _many(block: Json, thing: str) -> str:
    return count(int(block.get(f"{thing}s") or 0), thing)


def _block_text(block: Json, place: str) -> str:
    if block["type"] == "text":
        return str(block.get("text") or "")
    head = str(block.get("head") or "")[:HEAD]
    lines = head.split("\n")[:HEAD_LINES]
    size = f"{_many(block, 'byte')}, {_many(block, 'line')} in all"
    where = f": {place}/{block.get('sha256')}.txt" if place else ""
    return "\n".join([*lines, f"[... {size}{where}]"])


EXIT_NOTE: Final = re.compile(r"\[exit \d+\b[^\]]*\]$")


def failed(data: Json, name: str) -> bool:
    """Whether a result is worth showing although nobody asked: an error, or a command that failed."""
    summary = str(data.get("summary") or "exit 0")
    return bool(data.get("is_error")) or (name == "bash" and not summary.startswith("exit 0"))


def error_word(data: Json) -> str:
    code = str((data.get("error") or {}).get("code") or "error")
    return code.lower().replace("_", " ")


def call_line(name: str, arguments: str) -> str:
    """A tool call in a few words: ``$ make test``, ``edit src/api/token.py``, ``grep TODO``."""
    try:
        args = nesting.loads(arguments or "{}")
    except ValueError:
        args = {}
    if not isinstance(args, dict):
        args = {}
    if name == "bash":
        return "$ " + _first_line(str(args.get("command") or ""))
    what = next((args[key] for key in _TELLING if args.get(key)), "")
    return one_line(f"{name} {what if isinstance(what, str) else ''}")


_TELLING: Final = ("path", "pattern", "url", "prompt", "action", "job")


def _first_line(text: str) -> str:
    first, newline, _ = text.strip().partition("\n")
    return f"{one_line(first)} ..." if newline else one_line(first)


def budget_words(stop: Json | None) -> str:
    """``stopped at turn cost $5.00``."""
    return f"stopped at {budgets.limit(stop)}" if stop else "budget used up"


def tokens_of(usage: Json) -> int:
    """All that the provider counted."""
    return sum(int(usage.get(name) or 0) for name in ("input", "cached", "output"))


def tokens_text(number: float) -> str:
    """``950``, ``41 k``, ``1.9 M``."""
    return budgets.thousands(number)


def cost_parts(usage: Json) -> list[str]:
    """``$0.21``, if it is known."""
    cost = usage.get("cost")
    if not cost:
        return []
    return [budgets.price(cost, usage.get("currency"))]
