"""Hooks and notices with the real programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.conftest import CONFIG
from tests.e2e.harness import Home, eventually
from tests.e2e.model import Model


def configure(home: Home, model: Model, more: str) -> None:
    (home.path / "config.toml").write_text(CONFIG.format(url=model.url) + more)


def lines(path: Path) -> list[dict[str, Any]]:
    """What a hook appended to a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_what_needs_a_person_is_told_once(home: Home, model: Model) -> None:
    told = home.work / "told"
    configure(home, model, f"""
        [notify]
        command = "echo $DSHD_KIND $DSHD_SESSION_NAME $DSHD_AUTOSTART >>{told}.env; cat >>{told}"
        [[hooks]]
        event = "attention"
        matcher = "approval"
        command = "touch {told}.no"
        [routes.broken]
        adapter = "openai"
        base_url = "{model.url}"
        model = "mock"
        api_key_env = "NO_SUCH_KEY"
    """)  # fmt: skip
    home.start()
    assert home.ctl("run", "--name", "one", "--model", "broken", "hello").returncode == 9
    eventually(lambda: lines(told), what="the notice")
    (notice,) = lines(told)
    assert (notice["event"], notice["kind"], notice["hook_event_name"]) == (
        "attention", "credential", "Notification",
    )  # fmt: skip
    assert "NO_SUCH_KEY" in notice["text"]
    assert (told.parent / "told.env").read_text() == "credential one 0\n"
    home.ctl("run", "--name", "two", "--model", "broken", "hello")
    home.ok("daemon", "stop")
    assert len(lines(told)) == 1
    assert not Path(f"{told}.no").exists()
