from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.harness import Home
from tests.e2e.model import Model

CONFIG = """
model = "mock"
[routes.mock]
adapter = "openai"
base_url = "{url}"
model = "mock"
context_window = 1000000
"""


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as model:
        yield model


@pytest.fixture
def home(model: Model) -> Iterator[Home]:
    """A home whose default route is the model server; no daemon runs in it yet."""
    with Home(CONFIG.format(url=model.url)) as home:
        yield home
