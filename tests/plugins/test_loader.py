from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dshd.errors import NotConfigured
from dshd.plugins import PreStep
from dshd.plugins.loader import BUILT_IN, GROUP, load_plugins


class Mine:
    name = "mine"

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    async def pre_step(self, proposal: PreStep) -> PreStep:
        return proposal


class Point:
    """An entry point that gives what it was made with."""

    def __init__(self, name: str, gives: Any) -> None:
        self.name = name
        self.gives = gives

    def load(self) -> Any:
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives


def installed(monkeypatch: pytest.MonkeyPatch, *points: Point) -> None:
    def entry_points(*, group: str) -> tuple[Point, ...]:
        assert group == GROUP
        return points

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def test_plugins_come_in_the_order_of_the_config() -> None:
    tables: dict[str, dict[str, Any]] = {"rate_limit": {"per_minute": 5}, "content_filter": {"deny": []}}
    assert [plugin.name for plugin in load_plugins(tables)] == ["rate_limit", "content_filter"]
    assert [plugin.name for plugin in load_plugins(dict(reversed(tables.items())))] == [
        "content_filter",
        "rate_limit",
    ]
    assert load_plugins({}) == []


def test_a_plugin_whose_table_has_not_changed_stays_with_what_it_remembers() -> None:
    was: dict[str, dict[str, Any]] = {"rate_limit": {"per_minute": 5}, "content_filter": {"deny": []}}
    made = load_plugins(was)
    again = load_plugins({"content_filter": {"deny": ["x"]}, "rate_limit": {"per_minute": 5}}, was, made)
    assert [plugin.name for plugin in again] == ["content_filter", "rate_limit"]
    assert again[1] is made[0]
    assert again[0] is not made[1]


def test_an_installed_plugin_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Point("mine", Mine))
    (plugin,) = load_plugins({"mine": {"a": 1}})
    assert isinstance(plugin, Mine)
    assert plugin.config == {"a": 1}


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (ImportError("no module named x"), "can't be loaded: no module named x"),
        (SimpleNamespace, "is not a plugin"),
        (lambda config: 1 / 0, "refused its settings: division by zero"),
    ],
)
def test_a_plugin_that_can_not_be_made_is_a_config_error(
    monkeypatch: pytest.MonkeyPatch, gives: Any, said: str
) -> None:
    installed(monkeypatch, Point("mine", gives if not isinstance(gives, type) else lambda config: gives()))
    with pytest.raises(NotConfigured, match=said):
        load_plugins({"mine": {}})


def test_an_unknown_plugin_names_the_nearest() -> None:
    with pytest.raises(
        NotConfigured, match=r"no plugin is named rate_limits; did you mean rate_limit\? @ \$\.plugins"
    ):
        load_plugins({"rate_limits": {"per_minute": 1}})


def test_the_plugins_in_the_box_are_entry_points_too() -> None:
    points = {point.name: point.value for point in importlib.metadata.entry_points(group=GROUP)}
    if not points:
        pytest.skip("this installation is older than its entry points: pip install -e . again")
    for name, (module, attribute) in BUILT_IN.items():
        assert points[name] == f"{module}:{attribute}"


def test_without_plugins_nothing_of_them_is_imported() -> None:
    program = (
        "import sys, dshd.plugins.loader as l; l.load_plugins({})\n"
        "assert 'importlib.metadata' not in sys.modules or 'trio' in sys.modules\n"
        "assert 'dshd.plugins.rate_limit' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
