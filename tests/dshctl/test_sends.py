from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dshctl import output
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, Drop, Fake, Hang, Refuse


def test_a_send_prints_its_id_on_stdout_and_nothing_else_in_a_pipe(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    ran = dshctl("steer", "use", "the", "new", "fixture")
    assert ran == (0, "s4h8w2c1.17\n", "")
    assert fake.params("session.send")[0]["text"] == "use the new fixture"


def test_a_terminal_also_gets_one_sentence(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    ran = dshctl("steer", "x", tty=True)
    assert ran.out == "s4h8w2c1.17\n"
    assert ran.err == "steer     -> api, joins turn 12 at its next step, after bash make test.\n"


def test_quiet_says_nothing(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    assert dshctl("steer", "-q", "x", tty=True) == (0, "", "")


@pytest.mark.parametrize(
    "args", [("--json", "steer", "x"), ("steer", "--json", "x"), ("steer", "x", "--json")]
)
def test_global_options_stand_anywhere(dshctl: Dshctl, fake: Fake, args: tuple[str, ...]) -> None:
    fake.answers["session.send"] = RECEIPT
    ran = dshctl(*args)
    assert ran.last == RECEIPT
    assert list(ran.last)[-1] in RECEIPT


def test_a_receipt_has_every_field_and_counts_what_was_replaced(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    ran = dshctl("followup", "--json", stdin=b"a\0b\xff")
    assert fake.params("session.send")[0]["text"] == "a\ufffdb\ufffd"
    assert ran.last == {**RECEIPT, "replaced": 2}
    assert "2 characters replaced" in ran.err


def test_where_and_what_go_by_their_names(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    dshctl("followup", "-s", "api", "--key", "k", "--tag", "t", "--first", "--if-idle", "--if-empty",
           "--if-turn", "3", "--no-wake", "--as", "schedule", "x")  # fmt: skip
    sent = fake.params("session.send")[0]
    expected = {
        "session": "api", "verb": "followup", "key": "k", "tag": "t", "first": True, "if_idle": True,
        "if_empty": True, "if_turn": 3, "no_wake": True, "as": "schedule", "text": "x",
    }  # fmt: skip
    assert expected.items() <= sent.items()
    assert "create" not in sent


def test_the_session_of_the_environment_is_used_without_s(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    dshctl("followup", "x", DSHD_SESSION="nightly")
    dshctl("followup", "-s", "api", "x", DSHD_SESSION="nightly")
    assert [sent["session"] for sent in fake.params("session.send")] == ["nightly", "api"]


@pytest.mark.parametrize("verb", ["followup", "steer"])
def test_without_a_session_one_may_be_made_at_the_top_of_the_work_tree(
    dshctl: Dshctl, fake: Fake, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["session.send"] = RECEIPT
    below = dshctl.home / "tree" / "a" / "b"
    below.mkdir(parents=True)
    (dshctl.home / "tree" / ".git").mkdir()
    monkeypatch.chdir(below)
    dshctl(verb, "x", EDITOR="vi", API_TOKEN="secret")
    sent = fake.params("session.send")[0]
    assert sent["cwd"] == str(below)
    assert sent["create"]["dir"] == str(dshctl.home / "tree")
    assert sent["create"]["implicit"] is True
    assert sent["create"]["env"]["EDITOR"] == "vi"
    assert "API_TOKEN" not in sent["create"]["env"]


def test_an_inject_makes_no_session(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = Refuse("NOT_FOUND", "no session for ~/src/web yet.", hint="dshctl ls")
    ran = dshctl("inject", "x")
    assert "create" not in fake.params("session.send")[0]
    assert ran.code == 4
    assert ran.err == "dshctl: no session for ~/src/web yet.\n      dshctl ls\n"
    assert dshctl("inject", "--if-exists", "x", tty=True) == (0, "", "")


def test_create_makes_the_named_session_with_the_options_given(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    dshctl("followup", "-s", "nightly", "--create", "--mode", "read-only", "--net", "on", "--env", "A=b", "x")
    made = fake.params("session.send")[0]["create"]
    assert (made["name"], made["mode"], made["net"], made["env"]["A"]) == ("nightly", "read-only", True, "b")
    assert "implicit" not in made


def test_a_new_session_is_said(dshctl: Dshctl, fake: Fake) -> None:
    header = {"seq": 0, "type": "session/header", "data": {"model": "fast", "model_why": "config"}, "crc": ""}
    fake.answers |= {
        "session.send": {**RECEIPT, "created": True},
        "log.read": {"type": "log", "damage": None},
    }
    fake.during["log.read"] = lambda peer, _: peer.notify("log.event", {"session": "s", "event": header})
    assert dshctl("followup", "x").err.splitlines() == [
        "dshctl: new session api for /home/you/src/api.",
        "dshctl: model fast (config).",
    ]
    assert dshctl("followup", "-q", "x").err == ""


def test_a_lost_receipt_is_repeated_only_with_a_key(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = [Drop(), RECEIPT]
    ran = dshctl("followup", "--key", "k", "x")
    assert ran.out == "s4h8w2c1.17\n"
    assert len(fake.params("session.send")) == 2


def test_a_lost_receipt_without_a_key_is_an_unknown_outcome(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = [Drop(), RECEIPT]
    ran = dshctl("followup", "--json", "x")
    assert ran.code == 1
    assert ran.last["outcome"] == "unknown"
    assert ran.last["exit"] == 1
    assert len(fake.params("session.send")) == 1


def test_a_timeout_without_a_receipt_is_124(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = Hang()
    ran = dshctl("followup", "--timeout", "0.2", "x")
    assert ran.code == 124


@pytest.mark.parametrize(
    ("code", "exit_status"),
    [("INVALID", 2), ("NOT_FOUND", 4), ("CONFLICT", 5), ("FULL", 6), ("DAMAGED", 7), ("FAULTED", 7),
     ("UNSUPPORTED", 7), ("DENIED", 8), ("NOT_CONFIGURED", 9), ("NO_SPACE", 75), ("STALLED", 75),
     ("UNAVAILABLE", 75), ("INTERNAL", 1), ("SOMETHING_NEW", 1)],
)  # fmt: skip
def test_an_error_is_told_on_stderr_and_as_an_object_with_its_exit(
    dshctl: Dshctl, fake: Fake, code: str, exit_status: int
) -> None:
    fake.answers["session.send"] = Refuse(code, "not sent: so it is", hint="dshctl ls", outcome="not-written")
    ran = dshctl("followup", "--json", "x")
    assert ran.code == exit_status
    assert ran.err == "dshctl: not sent: so it is.\n      dshctl ls\n"
    assert ran.last == {
        **dict.fromkeys(output.FACTS), "type": "error", "code": code, "message": "not sent: so it is",
        "hint": "dshctl ls", "retryable": ran.last["retryable"], "retry_at": None, "outcome": "not-written",
        "exit": exit_status,
    }  # fmt: skip


def test_files_are_snapshots_with_absolute_names(
    dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["session.send"] = RECEIPT
    (dshctl.home / "a.txt").write_text("one\ntwo\nthree\n")
    monkeypatch.chdir(dshctl.home)
    dshctl("followup", "--file", "a.txt:2-3", "--ref", "a.txt", "look")
    content: list[dict[str, Any]] = fake.params("session.send")[0]["content"]
    assert content[0]["text"] == "look"
    assert content[1]["text"] == f"File {dshctl.home}/a.txt, lines 2-3, as it is now:\ntwo\nthree"
    assert f"{dshctl.home}/a.txt" in content[2]["text"]


def test_a_missing_file_is_named_by_its_absolute_path(
    dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dshctl.home)
    ran = dshctl("followup", "--file", "gone.txt", "look")
    assert ran.code == 4
    assert f"{dshctl.home}/gone.txt" in ran.err


def test_tied_needs_something_to_wait_for(dshctl: Dshctl) -> None:
    assert dshctl("followup", "--tied", "x").code == 2


@pytest.mark.parametrize("verb", ["followup", "steer", "inject", "interrupt"])
def test_a_directory_means_its_session_as_if_started_there(dshctl: Dshctl, fake: Fake, verb: str) -> None:
    method = "session.interrupt" if verb == "interrupt" else "session.send"
    fake.answers[method] = RECEIPT
    below = dshctl.home / "tree" / "a"
    below.mkdir(parents=True)
    (dshctl.home / "tree" / ".git").mkdir()
    dshctl(verb, "-C", str(below), "x", DSHD_SESSION="nightly")
    sent = fake.params(method)[0]
    assert (sent["session"], sent["cwd"]) == (".", str(below))
    if verb in ("followup", "steer"):
        assert sent["create"]["dir"] == str(dshctl.home / "tree")
    assert "settings" not in sent


def test_session_options_of_a_send_say_what_a_session_that_is_there_must_have(
    dshctl: Dshctl, fake: Fake, tmp_path: Path
) -> None:
    fake.answers["session.send"] = RECEIPT
    given = ("-C", str(tmp_path), "--name", "api", "--model", "m", "--mode", "full", "--net", "on", "--ask",
             "deny", "--patience", "2m", "--max-cost", "2", "--max-steps", "3", "--max-time", "1h",
             "--max-tokens", "5k", "--env", "A_TOKEN", "--env", "B=c")  # fmt: skip
    dshctl("followup", "-s", "api", *given, "x", A_TOKEN="sesame")
    dshctl("followup", "-s", "api", "--create", *given, "x", A_TOKEN="sesame")
    settings = {
        "dir": str(tmp_path), "name": "api", "model": "m", "mode": "full", "net": True, "ask": "deny",
        "patience": 120, "max_cost": 2, "max_steps": 3, "max_time": 3600, "max_tokens": 5000,
        "env.A_TOKEN": "sesame", "env.B": "c",
    }  # fmt: skip
    assert [sent["settings"] for sent in fake.params("session.send")] == [settings] * 2
    refused = dshctl("followup", "-s", "api", "--create", "--name", "web", "x")
    assert (refused.code, refused.err.count("two names")) == (2, 1)
