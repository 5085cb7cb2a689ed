"""Looking after it: doctor, usage, tools and models, asked of the real daemon and of its files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.harness import Home
from tests.e2e.model import Model, bash, script

KEY = "sk-secret-0123456789"
CONFIG = """
model = "mock"
[routes.mock]
adapter = "openai"
base_url = "{url}"
model = "m"
api_key_env = "MOCK_KEY"
price = {{ input = 1000.0, output = 1000.0 }}
[[rules]]
action = "deny"
tool = "bash"
command = "git push*"
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Model() as model, Home(CONFIG.format(url=model.url), env={"MOCK_KEY": KEY}) as home:
        yield home


def test_doctor_usage_tools_and_models(home: Home) -> None:
    before = home.json("doctor")
    assert not home.state.exists()
    home.start()
    home.ok(
        "followup", "--wait", "-s", "api", "--create", "--mode", "full", script(bash("true"), {"text": "x"})
    )
    checks = {check["check"]: check for check in home.json("doctor")}
    assert checks["daemon"]["what"].startswith("0.")
    assert "same as dshctl" in checks["daemon"]["what"]
    assert checks["mock"]["level"] == "ok"
    assert "key from MOCK_KEY" in checks["mock"]["what"]
    assert KEY not in str([before, checks])
    assert checks["sessions"]["what"].startswith("1 open")
    for by in ("day", "model", "session"):
        rows = home.json("usage", "--by", by)
        assert [(row["calls"], row["cost"]) for row in rows] == [(2, 0.03), (2, 0.03)]
    (bash_row,) = [row for row in home.json("tools", "-s", "api") if row["name"] == "bash"]
    assert (bash_row["action"], bash_row["unless"]) == ("allow", ['rule 1: deny command "git push*"'])
    assert "mode full" in bash_row["by"]
    assert "mode workspace" in home.ok("tools")
    (chosen,) = [row for row in home.json("models") if row["default"]]
    assert (chosen["route"], chosen["key"]) == ("mock", True)

    running = home.json("usage", "--by", "session")
    home.ok("daemon", "stop")
    assert home.json("usage", "--by", "session") == running
    assert home.json("usage", "-s", "api")[-1]["calls"] == 2


def test_a_damaged_session_and_a_broken_config_fail(home: Home) -> None:
    (log,) = home.state.glob("sessions/*/log.jsonl")
    whole = log.read_bytes()
    lines = whole.split(b"\n")
    lines[2] = lines[2][:-30] + b"x" * 30
    log.write_bytes(b"\n".join(lines))
    failed = {check["check"]: check for check in home.json("doctor", exit=1)}
    assert failed["sessions"]["fix"].startswith("dshctl fsck --repair")
    log.write_bytes(whole)
    (home.path / "config.toml").write_text("[routes.mock]\nmax_token = 1\n")
    failed = {check["check"]: check for check in home.json("doctor", exit=1)}
    assert failed["config"]["level"] == "fail"
    assert failed["sessions"]["level"] == "ok"
