from __future__ import annotations

import pytest
import trio

from tests.model.server import Server


@pytest.fixture
async def server(nursery: trio.Nursery) -> Server:
    made = Server()
    await nursery.start(made.run)
    return made
