"""Near words: what was meant by one that nothing is called."""

from __future__ import annotations

from collections.abc import Iterable


def near(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Those of ``known`` that someone who typed ``word`` may have meant, the nearest first.

    Near is: few edits away from the word or from its beginning, so that ``apy`` finds ``apidoc``.
    """
    limit = max(1, len(word) // 3)
    ranked = sorted((*_distances(word.lower(), name.lower()), name) for name in known)
    return [name for start, whole, _longer, name in ranked if start <= limit or whole <= limit][:most]


def _distances(word: str, name: str) -> tuple[int, int, int]:
    """Edits from ``word`` to the nearest beginning of ``name`` at least 2 long, and to all of it; and how
    different their lengths are."""
    row = list(range(len(name) + 1))
    before: list[int] = row
    for i, a in enumerate(word, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(name, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == name[j - 2] and word[i - 2] == b:
                best = min(best, older[j - 2] + 1)  # two letters swapped are one slip
            row.append(best)
    return min(row[min(2, len(name)) :]), row[-1], abs(len(name) - len(word))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean max_tokens?`` or nothing."""
    close = near(word, known, most=1)
    return f"; did you mean {close[0]}?" if close else ""
