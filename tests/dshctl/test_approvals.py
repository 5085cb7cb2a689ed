"""What waits for an answer, as it is shown, and asking in place."""

from __future__ import annotations

from typing import Any

import pytest

from dshctl import approvals
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, RESULT, Fake, Refuse
from tests.dshctl.test_schemas import ALLOWED, APPROVAL

Json = dict[str, Any]
MIN = 60_000
WHY = "clean build before checking links"
WAITING: Json = {**APPROVAL, "command": "rm -rf build/ && make html", "why": WHY}


def test_a_question_is_shown_whole_with_what_to_type(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["approval.list"] = {"approvals": [WAITING], "allowed": [ALLOWED]}
    lines = dshctl("approvals").out.splitlines()
    assert lines[0].startswith("a3  docs, turn 5, ")
    assert lines[1:5] == [
        "    bash in /home/you/src/docs:",
        "      rm -rf build/ && make html",
        '    why: "clean build before checking links"',
        "    dshctl allow a3    dshctl deny a3 --reason '...'",
    ]
    assert lines[6:] == [
        "allowed",
        "  a2   always, bash in /home/you/src/docs: make html    dshctl approvals --forget a2",
    ]


def test_a_subagents_question_names_whose_it_is() -> None:
    above = [{"id": "s4h8w2c1", "name": "api"}]
    told = {**WAITING, "session": "s5h8w2c1", "name": "s5h8w2c1", "works_for": above}
    assert approvals.lines(told, 0)[0].startswith("a3  s5h8w2c1, a subagent of api, turn 5, ")


def test_when_it_expires_is_told_as_people_say_it() -> None:
    told = {**WAITING, "asked_at": 0, "expires_at": 24 * 60 * MIN - 6 * MIN}
    assert approvals.lines(told, 6 * MIN)[0].startswith("a3  docs, turn 5, 6 min, expires ")
    assert "expires" not in approvals.lines({**WAITING, "expires_at": None}, 0)[0]


def test_on_a_phone_words_are_wrapped_and_what_is_to_be_allowed_is_whole() -> None:
    long = {**WAITING, "command": "rm -rf build/ && make html && make check && make install"}
    lines = approvals.lines(long, 6 * MIN, 40)
    assert [line.strip() for line in lines if len(line) >= 40] == [long["command"]]
    assert lines[-2:] == ["    dshctl allow a3", "    dshctl deny a3 --reason '...'"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("a" * 5000, ["a" * 5000]),
        ("one\ntwo", ["one", "two"]),
        ("safe\r\x1b[1Aevil", ["safe^M^[[1Aevil"]),
        ("\u202egnp.exe\u202c", ["<U+202E>gnp.exe<U+202C>"]),
        ("a\u2028b\x85c", ["a<U+2028>b<U+0085>c"]),
    ],
)
def test_nothing_in_it_is_cut_or_hidden_or_obeyed(command: str, shown: list[str]) -> None:
    assert approvals.body({**WAITING, "command": command}) == shown


def test_a_call_without_a_command_is_shown_with_all_its_arguments() -> None:
    raw = '{"path": "x.py", "content": "one\\ntwo", "n": 3}'
    told = {**WAITING, "tool": "write", "command": None, "path": "/src/x.py", "arguments": raw}
    assert approvals.body(told) == ["/src/x.py", "path: x.py", "content:", "  one", "  two", "n: 3"]
    assert approvals.body({**told, "path": None, "arguments": "{broken"}) == ["{broken"]


def test_allow_and_deny_say_what_became_of_it(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["approval.answer"] = lambda p: {**APPROVAL, "scope": "once", **p}
    assert dshctl("allow", "a3", tty=True).err == "a3: allowed; docs goes on.\n"
    assert "again in docs" in dshctl("allow", "a3", "--session", tty=True).err
    assert "again everywhere" in dshctl("allow", "a3", "--always", tty=True).err
    assert dshctl("deny", "a3", "--reason", "no", tty=True).err == "a3: denied; docs is told.\n"
    asked = [(p["answer"], p.get("scope"), p.get("reason")) for p in fake.params("approval.answer")]
    assert asked == [
        ("allow", None, None), ("allow", "session", None), ("allow", "always", None), ("deny", None, "no"),
    ]  # fmt: skip
    assert dshctl("allow", "a3", "--session", "--always").code == 2
    fake.answers["approval.answer"] = Refuse("CONFLICT", "a3 is allowed already, by you at 12:04.")
    assert dshctl("deny", "a3").code == 5


ASKS = {"results": [{**RESULT, "exit": 16, "outcome": None, "text": None, "approvals": [WAITING]}]}
DONE = {"results": [RESULT]}


def typed(dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch, text: bytes) -> Any:
    import io
    import sys

    class Typed(io.BytesIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("tests.dshctl.conftest._stdin", lambda data: io.TextIOWrapper(Typed(text)))
    assert sys.stdin is not None
    fake.answers |= {
        "session.send": RECEIPT, "session.wait": [ASKS, DONE],
        "approval.answer": lambda p: {**APPROVAL, "scope": "once", **p},
    }  # fmt: skip
    return dshctl("followup", "--wait", "x", tty=True)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (b"y\n", {"answer": "allow"}),
        (b"YES\n", {"answer": "allow"}),
        (b"s\n", {"answer": "allow", "scope": "session"}),
        (b"n\n", {"answer": "deny"}),
        (b"no use make clean\n", {"answer": "deny", "reason": "use make clean"}),
        (b"\nhm\nyes please\ny\n", {"answer": "allow"}),
    ],
)
def test_who_waits_on_a_terminal_is_asked_in_place(
    dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch, text: bytes, answer: Json
) -> None:
    ran = typed(dshctl, fake, monkeypatch, text)
    assert ran.code == 0
    assert "      rm -rf build/ && make html\n" in ran.err
    assert fake.params("approval.answer") == [{"id": "a3", **answer}]
    assert [p.get("asked") for p in fake.params("session.wait")] == [[], ["a3"]]


def test_the_end_of_input_is_no_answer_and_the_waiting_goes_on(
    dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = typed(dshctl, fake, monkeypatch, b"")
    assert ran.code == 0
    assert fake.params("approval.answer") == []
    assert "dshctl allow a3" in ran.err
    assert [p.get("asked") for p in fake.params("session.wait")] == [[], ["a3"]]


def test_elsewhere_nobody_is_asked_and_the_work_stays(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": ASKS}
    ran = dshctl("followup", "--wait", "x", stdin=b"y\n")
    assert ran.code == 16
    assert "api: waits for your answer to a3 (rm -rf build/)." in ran.err
    assert "asked" not in fake.params("session.wait")[0]
