from __future__ import annotations

from pathlib import Path

import pytest

from dshd.tools.tool import ToolContext
from tests.tools.doubles import context


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The session's directory; ``state``, ``config``, ``home`` and ``outside`` stand beside it."""
    for name in ("work", "state", "config", "home", "outside"):
        (tmp_path / name).mkdir()
    return tmp_path / "work"


@pytest.fixture
def ctx(place: Path) -> ToolContext:
    return context(place)
