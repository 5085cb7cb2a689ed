"""The plugins in the box, with the real programs and a config."""

from __future__ import annotations

from tests.e2e.conftest import CONFIG
from tests.e2e.harness import Home, texts
from tests.e2e.model import Model

LIMITED = "[plugins.rate_limit]\nper_minute = 2\n"


def limited(home: Home, model: Model) -> None:
    (home.path / "config.toml").write_text(CONFIG.format(url=model.url) + LIMITED)
    home.start()


def test_a_rate_limit_lets_so_many_of_one_session_s_turns_begin(home: Home, model: Model) -> None:
    limited(home, model)
    sent = [home.json("followup", f"number {n}")[0]["message"] for n in range(5)]
    for message in sent[:2]:
        home.ok("wait", message)
    home.ok("daemon", "reload")
    for message in sent[2:]:
        assert home.ctl("wait", message, "--timeout", "0.5").returncode == 124
    assert texts(home.said()) == ["number 0", "number 1"]
    assert [m["id"] for m in home.json("queue")] == sent[2:]
    assert "rate_limit" in home.ok("why", sent[2])
    late = home.json("followup", "one more")[0]["message"]
    assert home.ctl("wait", late, "--timeout", "0.5").returncode == 124


def test_a_rate_limit_is_the_same_over_many_sessions(home: Home, model: Model) -> None:
    limited(home, model)
    ran = [home.ctl("run", f"number {n}", "--timeout", "1").returncode for n in range(5)]
    assert ran == [0, 0, 124, 124, 124]
    assert sum(len(home.said(session)) for session in home.sessions()) == 2
