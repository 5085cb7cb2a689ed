"""Runs with the real programs: what stays of one that a limit stopped, and of one that is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.harness import Home
from tests.e2e.model import Model, bash, script

CONFIG = """
model = "mock"
[routes.mock]
adapter = "openai"
base_url = "{url}"
model = "m"
price = {{ input = 100000, output = 0 }}
"""


@pytest.fixture
def home(model: Model) -> Iterator[Home]:
    with Home(CONFIG.format(url=model.url)) as home:
        home.start()
        yield home


def test_a_run_that_its_budget_stopped_is_seen_until_it_went_on(home: Home) -> None:
    steps = script(bash("true"), bash("true"), {"text": "all done"}, say="work")
    stopped = home.ctl("run", "--max-cost", "1", steps)
    assert stopped.returncode == 15
    assert "--add cost=" in stopped.stderr
    (view,) = home.json("ls")
    name = str(view["name"])
    assert (view["state"], view["needs"]) == ("parked", [{"kind": "parked", "id": None}])
    assert f"dshctl wake -s {name} --add cost=" in home.ok("status")
    assert home.ctl("status", "--short").stdout == "dshd 1p\n"
    assert home.ctl("status", "--check").returncode == 1
    assert home.ctl("ls").stdout.splitlines()[1].split()[:2] == [name, "parked"]
    home.ok("wake", "-s", name, "--add", "cost=9")
    home.ok("wait", "-s", name)
    assert home.ok("answer", "-s", name) == "all done"
    assert home.ctl("status", "--check").returncode == 0
    assert home.json("ls", "--all")[0]["state"] == "closed"
    assert home.ctl("ls", "--json").stdout.count('"session"') == 0


def test_what_was_spent_today_stays_spent_when_a_session_is_removed_and_imported(home: Home) -> None:
    def today() -> float:
        (status,) = home.json("status")
        return float(status["today"]["cost"])

    home.ok("new", "a")
    home.ok("followup", "-s", "a", "--wait", "hello")
    home.ok("export", "a", "-o", "a.tar")
    home.ok("rm", "--yes", "a")
    home.ok("import", "a.tar")
    home.ok("followup", "-s", "a", "--wait", "hello again")
    assert today() == 2.0
    home.ok("daemon", "restart")
    assert today() == 2.0


def test_a_key_of_a_run_outlives_its_session(home: Home, model: Model) -> None:
    first = home.ctl("run", "--rm", "--key", "rr", "hi")
    assert (first.returncode, first.stdout) == (0, "echo: hi\n")
    assert home.sessions() == []
    for restart in (False, True):
        if restart:
            home.ok("daemon", "restart")
        again = home.ctl("run", "--rm", "--key", "rr", "hi")
        assert (again.returncode, again.stdout) == (0, "")
        assert "same key as" in again.stderr
        assert "its session was removed, and its answer with it; nothing was run." in again.stderr
        receipt, result = home.json("run", "--key", "rr", "hi")
        assert (receipt["type"], receipt["duplicate"], receipt["state"]) == ("receipt", True, "settled")
        assert (result["type"], result["outcome"], result["text"]) == ("result", "completed", None)
        other = home.ctl("run", "--key", "rr", "ho")
        assert other.returncode == 5
        assert 'key "rr" was used for another text' in other.stderr
    assert len(model.requests) == 1
    assert home.sessions() == []


def test_a_run_that_failed_and_is_gone_is_run_again_only_by_retry(home: Home, model: Model) -> None:
    said = script({"status": 400, "body": "no"}, say="work")
    failed = home.ctl("run", "--key", "k", said)
    assert failed.returncode == 10
    (id,) = home.sessions()
    home.ok("rm", "--yes", id)
    assert home.ctl("run", "--key", "k", said).returncode == 10
    assert home.sessions() == []
    assert home.ctl("run", "--key", "k", "--retry", said).returncode == 10
    assert len(home.sessions()) == 1


def test_the_key_of_a_new_session_means_what_was_asked_first(home: Home) -> None:
    id = home.ok("new", "--key", "n1", "aa")
    again = home.ctl("new", "--key", "n1", "aa")
    assert (again.returncode, again.stdout) == (0, f"{id}\n")
    other = home.ctl("new", "--key", "n1", "bb")
    assert other.returncode == 5
    assert 'key "n1" was used, and aa has name aa, not bb' in other.stderr
    home.ok("rename", "aa", "cc")
    assert home.ok("new", "--key", "n1", "aa") == id
    here = home.ok("new", "--key", "here")
    assert home.ok("new", "--key", "here") == here
    assert home.ctl("new", "--key", "here", "--mode", "full").returncode == 5


def test_a_turn_that_a_crash_ended_has_lasted_until_then_and_says_what_is_unknown(home: Home) -> None:
    child = home.popen("run", "--key", "k", script(bash("sleep 60; true"), say="work"))
    home.wait_event("tool/call")
    (early,) = home.json("answer", f"{home.sessions()[0]}.1", exit=75)
    assert early["outcome"] is None
    assert "has not ended yet" in home.ctl("answer", f"{home.sessions()[0]}.1").stderr
    heard = home.log()[-1]["time"]
    home.children[0].kill()
    home.children[0].wait()
    home.start()
    child.wait(30)
    (result,) = home.json("answer", f"{home.sessions()[0]}.1", exit=14)
    assert (result["outcome"], result["ended_at"]) == ("interrupted", heard)
    assert result["unknown"] == [{"tool": "bash", "what": "sleep 60; true"}]
    (end,) = home.log(type="turn/end")
    assert end["data"]["ended_at"] == heard <= end["time"]


def test_an_answer_for_a_program_fits_its_schema_or_is_an_error(home: Home) -> None:
    (home.work / "s.json").write_text('{"type": "object", "required": ["n"]}')
    (home.work / "bad.json").write_text('{"type": 5}')
    mended = home.ctl("run", "--schema", "s.json", script({"text": "five"}, {"text": '{"n": 5}'}, say="mend"))
    assert (mended.returncode, mended.stdout) == (0, '{"n": 5}\n')
    kept = home.ctl("run", "--rm", "--schema", "s.json", script({"text": "five"}, {"text": "5"}, say="no"))
    assert kept.returncode == 10
    assert "does not fit the schema" in kept.stderr
    for file in ("missing.json", "bad.json"):
        assert home.ctl("run", "--schema", file, "x").returncode == 2
    assert len(home.json("ls", "--all")) == 2
