from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dshd.spawn.client import Spawner, launch
from tests.spawn.helpers import Tree


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    spawner = Spawner(launch())
    yield spawner
    await spawner.aclose()


@pytest.fixture
def tree(spawner: Spawner, tmp_path: Path) -> Tree:
    return Tree(spawner, tmp_path)
