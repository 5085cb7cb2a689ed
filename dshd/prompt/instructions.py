"""`AGENTS.md`: what the person and the project want an agent to know; `PERSONA.md`: how it is to be.
Blocking, but bounded.

Broadest first, so that what is nearest to the work comes last and counts most: the user's own file, then
each directory from the repository's root down to the session's. Outside of a repository only the
session's directory is looked at: nobody meant ``/tmp/AGENTS.md`` for whatever runs below it.
"""

from __future__ import annotations

import os
from pathlib import Path

from dshd.prompt.git import git_root
from dshd.small import read_small

NAME = "AGENTS.md"
PERSONA = "PERSONA.md"
MOST_BYTES = 64 * 1024  # of one file
MARK = "\n[... the rest of this file is left out: it is longer than 64 KiB ...]"


def find_instructions(directory: Path, config_dir: Path | None) -> list[tuple[str, str]]:
    """(label, text) of each file that says something, broadest first; equal texts once."""
    root = git_root(directory) or directory
    found = [_user(config_dir)] if config_dir is not None else []
    found += [_project(place, root) for place in _down(root, directory)]
    seen: set[str] = set()
    kept = []
    for label, text in found:
        if text and text not in seen:
            seen.add(text)
            kept.append((label, text))
    return kept


def find_persona(config_dir: Path) -> str:
    """How the user wants the agent to be, in every session; "" if they don't say."""
    return _text(config_dir / PERSONA)


def _down(root: Path, directory: Path) -> list[Path]:
    """The directories from the root to the session's, both included."""
    below = [place for place in (directory, *directory.parents) if place.is_relative_to(root)]
    return below[::-1]


def _user(config_dir: Path) -> tuple[str, str]:
    path = config_dir / NAME
    return f"{path} (the user's)", _text(path)


def _project(place: Path, root: Path) -> tuple[str, str]:
    path = place / NAME
    real = Path(os.path.realpath(path))
    # a link may lead to another file of the project, not out of it: the text goes to a provider
    inside = real.is_relative_to(os.path.realpath(root))
    return str(path), _text(real) if inside else ""


def _text(path: Path) -> str:
    data = read_small(path, MOST_BYTES + 1)
    if not data or b"\0" in data:
        return ""
    text = data[:MOST_BYTES].decode("utf-8", "ignore" if len(data) > MOST_BYTES else "replace")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").strip()
    return text + MARK if len(data) > MOST_BYTES else text
