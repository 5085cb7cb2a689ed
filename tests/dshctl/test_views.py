from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from dshctl import fates, times
from dshd import __version__
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, RESULT, SESSION, Fake, Refuse, message
from tests.dshctl.test_schemas import PIECE

Json = dict[str, Any]
NOW = 1_796_040_000_000  # Nov 30 2026 12:00 UTC
MIN = 60_000


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    for module in (
        "dshctl.times",
        "dshctl.commands.ls",
        "dshctl.commands.status",
        "dshctl.commands.queue",
        "dshctl.commands.show",
        "dshctl.commands.message",
        "dshctl.commands.daemon",
    ):
        monkeypatch.setattr(f"{module}.now_ms", lambda: NOW, raising=False)


def session(name: str, state: str, **changes: Any) -> Json:
    idle: Json = {"phase": "idle", "turn": None, "step": None, "doing": None, "since_at": None}
    empty = {"next-turn": 0, "next-step": 0, "held": 0}
    return {
        **SESSION,
        "id": f"s{name:0<7}"[:8],
        "name": name,
        "state": state,
        "title": "",
        "pending": empty,
        **idle,
        "dir": f"/home/you/src/{name}",
        "active_at": NOW - 6 * MIN,
        **changes,
    }


API = session(
    "api",
    "running",
    phase="running",
    turn=12,
    step=4,
    doing="bash: make test",
    since_at=NOW - 4 * MIN,
    turn_started_at=NOW - 41 * MIN,
    pending={"next-turn": 1, "next-step": 1, "held": 0},
    title="Fix the flaky login tests",
    active_at=NOW,
)
DOCS = session(
    "docs",
    "asks",
    title="Rewrite the install guide",
    needs=[{"kind": "approval", "id": "a3", "what": "rm -rf build/", "at": NOW - 6 * MIN}],
)
PARKED_AT = NOW - 8 * 60 * MIN - 48 * MIN
NIGHTLY = session(
    "nightly",
    "parked",
    parked={"by": "error", "what": "bad key", "at": PARKED_AT, "count": 3},
    needs=[{"kind": "parked", "id": None}],
    pending={"next-turn": 3, "next-step": 0, "held": 0},
    active_at=PARKED_AT,
    title="Nightly triage",
)
WEB = session(
    "web",
    "waiting",
    phase="running",
    doing="rate limit, tries again 05:00",
    title="Why is CI slow?",
    pending={"next-turn": 1, "next-step": 0, "held": 0},
    active_at=NOW - 65 * MIN,
)
CLOSED = session(
    "s4h8w2c1", "closed", id="s4h8w2c1", active_at=NOW - 86_400_000, title="what is in this directory?"
)
STATUS: Json = {
    "type": "status",
    "version": __version__,
    "pid": 4121,
    "started_at": NOW - (3 * 24 + 4) * 60 * MIN,
    "supervisor": "systemd",
    "today": {"tokens": 1_900_000, "cost": 2.31, "currency": "USD"},
    "sessions": [API, DOCS, NIGHTLY, WEB, session("idle", "idle")],
    "closed": 212,
    "closed_bytes": 88_000_000,
}


def test_status_says_first_what_needs_a_person(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["daemon.status"] = STATUS
    assert dshctl("status").out.splitlines() == [
        f"dshd {__version__}, pid 4121, up 3 d 4 h, systemd.  Today 1.9 M tokens, $2.31.",
        "",
        "needs you",
        "  docs      wants to run: rm -rf build/ (6 min)                      dshctl allow a3",
        "  nightly   parked 03:12, a turn ended in an error: bad key, 3 wait  dshctl wake -s nightly",
        "waits",
        "  web       rate limit, tries again 05:00                            dshctl why -s web",
        "running",
        "  api       turn 12, step 4, 41 min: bash make test (4 min); 2 queued",
        "1 idle, 212 closed (88 MB).",
    ]


def test_a_subagent_is_named_with_whom_it_works_for(dshctl: Dshctl, fake: Fake) -> None:
    kid = {**SESSION, "id": "s5h8w2c1", "name": "s5h8w2c1", "agent": SESSION["id"], "state": "running"}
    fake.answers["daemon.status"] = {**STATUS, "sessions": [SESSION, kid]}
    (line,) = (line for line in dshctl("status").out.splitlines() if "s5h8w2c1" in line)
    assert line.startswith("  s5h8w2c1  for api: ")
    fake.answers["session.show"] = {**kid, "parent": SESSION["id"], "agents": 2}
    shown = dshctl("show", "s5h8w2c1").out
    assert f"  works     for {SESSION['id']}\n" in shown
    assert "  subagents 2 at work   dshctl agents -s s5h8w2c1\n" in shown
    assert "forked" not in shown


def test_status_names_the_turn_that_nobody_was_told_of(dshctl: Dshctl, fake: Fake) -> None:
    need = {"kind": "ended", "id": None, "turn": 7, "what": "interrupted", "code": None, "at": PARKED_AT}
    other = {**need, "what": "error", "code": "AUTH"}
    sessions = [session("night", "idle", needs=[need]), session("day", "idle", needs=[other])]
    fake.answers["daemon.status"] = {**STATUS, "sessions": sessions, "closed": 0}
    lines = dshctl("status").out.partition("needs you\n")[2].splitlines()
    assert lines[0].rstrip().endswith("dshctl retry -s night")
    assert "night     turn 7 was interrupted 03:12" in lines[0]
    assert "day       turn 7 ended in error 03:12 (AUTH)" in lines[1]
    assert dshctl("status", "--check").code == 1


def test_status_names_what_is_held_for_a_person_beside_what_else_is(dshctl: Dshctl, fake: Fake) -> None:
    held = {"kind": "held", "id": "s4h8w2c1.17", "what": "crash", "at": PARKED_AT, "count": 1}
    several = {**held, "what": "repair", "count": 3}
    ask = {"kind": "approval", "id": "a3", "what": "ls", "at": None}
    sessions = [session("api", "idle", needs=[held]), session("web", "asks", needs=[ask, several])]
    fake.answers["daemon.status"] = {**STATUS, "sessions": sessions, "closed": 0}
    lines = dshctl("status").out.partition("needs you\n")[2].splitlines()
    assert " ".join(lines[0].split()) == ("api s4h8w2c1.17 held 03:12, after a crash dshctl wake s4h8w2c1.17")
    assert lines[1].endswith("dshctl allow a3")
    assert lines[2].endswith("repaired, and 2 more  dshctl queue -s web --queue held")
    assert dshctl("status", "--check").code == 1


def test_a_spooled_send_that_was_refused_is_a_persons(dshctl: Dshctl, fake: Fake) -> None:
    spool = {"waiting": 0, "refused": 1, "problem": None, "dir": "/s/spool"}
    fake.answers["daemon.status"] = {**STATUS, "sessions": [], "spool": spool}
    ran = dshctl("status", "--check")
    assert ran.code == 1
    assert "nothing waits for you" not in ran.out
    assert "1 spooled send refused" in ran.out


def test_on_a_terminal_nothing_is_wider_than_it(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["daemon.status"] = STATUS
    fake.answers["session.list"] = {"sessions": STATUS["sessions"], "current": None, "closed": 0}
    for columns in ("36", "60", "80"):
        for command in ("status", "ls"):
            lines = dshctl(command, tty=True, COLUMNS=columns).out.splitlines()
            assert all(len(line) <= max(int(columns), 72) for line in lines), lines
    assert "\u2026" in dshctl("status", tty=True).out
    assert "..." in dshctl("status", tty=True, LANG="C").out


LONG = "the provider said " + "this conversation is full; " * 12


def test_long_reasons_and_names_are_cut_on_a_terminal_and_commands_stay(dshctl: Dshctl, fake: Fake) -> None:
    parked = {"by": "error", "what": LONG, "at": NOW - 5 * MIN, "count": 3}
    full = session("x" * 64, "parked", parked=parked, needs=[{"kind": "parked", "id": None}],
                   doing=LONG, id="s4h8w2c1")  # fmt: skip
    waits = session("w" * 64, "waiting", doing=LONG, id="s4h8w2c2", phase="running", turn=3)
    message = {"id": "s4h8w2c1.19", "verb": "followup", "queue": "next-turn", "position": 1, "text": LONG}
    fake.answers["daemon.status"] = {**STATUS, "sessions": [full, waits]}
    fake.answers["session.list"] = {"sessions": [full, waits], "current": None, "closed": 0}
    for listed, typed in ((full, "(dshctl wake -s " + "x" * 64 + ")"), (waits, "")):
        fake.answers["queue.ls"] = {"session": listed, "messages": [message]}
        head = dshctl("queue", tty=True).out.splitlines()[0]
        assert typed in head
        assert len(head.removesuffix(typed)) <= 80
        assert LONG.strip() in dshctl("queue").out.splitlines()[0]
    shown = dshctl("status", tty=True).out.splitlines()
    assert all(len(line) <= 80 for line in shown), shown
    assert any(line.endswith("  dshctl wake -s s4h8w2c1") for line in shown)
    assert any(line.endswith("  dshctl why -s s4h8w2c2") for line in shown)
    assert LONG.strip() in dshctl("status").out
    shown = dshctl("ls", tty=True).out.splitlines()
    assert all(len(line) <= 80 for line in shown)
    assert "TITLE" in shown[0]
    assert "x" * 64 in dshctl("ls").out


def test_status_in_a_word_when_all_is_well(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["daemon.status"] = {**STATUS, "sessions": [], "closed": 0, "today": {}, "supervisor": None}
    well = "pid 4121, up 3 d 4 h. Nothing running, nothing waits for you.\n"
    assert dshctl("status").out == f"dshd {__version__}, {well}"
    fake.answers["daemon.status"]["version"] = "9.9"
    assert dshctl("status").out == f"dshd 9.9 (dshctl {__version__}), {well}"
    assert dshctl("status", "--short").out == ""
    assert dshctl("status", "--check").code == 0


def test_status_and_its_short_form_count_the_same_sessions(dshctl: Dshctl, fake: Fake) -> None:
    retried = {**API, "name": "retried", "parked": NIGHTLY["parked"], "needs": NIGHTLY["needs"]}
    failed = session("failed", "idle", parked={**NIGHTLY["parked"], "count": 0})
    fake.answers["daemon.status"] = {**STATUS, "sessions": [NIGHTLY, retried, failed, DOCS]}
    needs = dshctl("status").out.partition("needs you\n")[2].splitlines()
    assert [line.split()[0] for line in needs] == ["nightly", "retried", "docs", "1"]
    assert dshctl("status", "--short").out == "dshd 1 run 1! 2p\n"
    fake.answers["daemon.status"] = {**STATUS, "sessions": [failed]}
    assert dshctl("status", "--short").out == ""
    assert dshctl("status", "--check").code == 0
    fake.answers["session.show"] = failed
    assert "  idle (a turn ended in an error: bad key)\n" in dshctl("show").out
    fake.answers["session.show"] = retried
    assert "  running, the queue parked since 03:12 (" in dshctl("show").out


def test_status_short_and_check(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["daemon.status"] = STATUS
    assert dshctl("status", "--short").out == "dshd 1 run 1 wait 1! 1p\n"
    assert dshctl("status", "--check").code == 1
    assert dshctl("status", "--check", "--json").last["exit"] == 1


def test_ls_marks_the_session_of_this_directory(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.list"] = {
        "sessions": [API, DOCS, NIGHTLY, WEB, CLOSED],
        "current": API["id"],
        "more": 14,
        "closed": 213,
    }
    assert dshctl("ls", HOME="/home/you").out.splitlines() == [
        "  NAME      STATE    QUEUE  ACTIVE  DIRECTORY       TITLE",
        "* api       running      2  now     ~/src/api       Fix the flaky login tests",
        "  docs      asks a3      0  6 min   ~/src/docs      Rewrite the install guide",
        "  nightly   parked       3  03:12   ~/src/nightly   Nightly triage",
        "  web       waiting      1  10:55   ~/src/web       Why is CI slow?",
        "  s4h8w2c1  closed       0  Nov 29  ~/src/s4h8w2c1  what is in this directory?",
        "14 more, 212 closed: dshctl ls --all",
    ]


def test_ls_of_nothing_says_how_to_begin(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.list"] = {"sessions": [], "current": None, "closed": 0}
    assert dshctl("ls").out.startswith("No sessions yet.   dshctl run")
    assert dshctl("ls", "--json").objects == [{"type": "end", "exit": 0}]


def test_queue_shows_what_waits_in_the_order_in_which_it_is_claimed(dshctl: Dshctl, fake: Fake) -> None:
    at = NOW - 4 * MIN
    rows = [
        message(
            20,
            verb="followup",
            queue="held",
            due_at=NOW + 6 * 60 * MIN,
            text="write the changelog",
            source={"kind": "user", "client": "nvim"},
        ),
        message(
            19,
            verb="followup",
            queue="next-turn",
            created_at=at,
            text="triage\nnew issues",
            source={"kind": "schedule"},
        ),
        message(
            18,
            verb="inject",
            position=2,
            created_at=at,
            text="HEAD is now 3f2c9a1",
            source={"kind": "hook", "via": "git"},
        ),
        message(17, created_at=at),
    ]
    fake.answers["queue.ls"] = {"session": API, "messages": rows}
    assert dshctl("queue", "-s", "api").out.splitlines() == [
        "api: turn 12 runs, step 4, 41 min (bash make test, 4 min)",
        "",
        "next step",
        "  1 s4h8w2c1.17  steer     11:56  you, pts/3  use the new fixture",
        "  2 s4h8w2c1.18  inject    11:56  hook git    HEAD is now 3f2c9a1",
        "next turn",
        "  1 s4h8w2c1.19  followup  11:56  schedule    triage new issues",
        "held",
        "    s4h8w2c1.20  followup  18:00  you, nvim   write the changelog",
    ]
    assert fake.params("queue.ls")[0]["session"] == "api"


def test_an_empty_and_a_parked_queue(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["queue.ls"] = {"session": session("api", "idle"), "messages": []}
    assert dshctl("queue").out == "api: idle, nothing queued.\n"
    fake.answers["queue.ls"] = {"session": NIGHTLY, "messages": [message(1, queue="next-turn")]}
    assert dshctl("queue").out.splitlines()[0] == (
        "nightly: PARKED since 03:12, a turn ended in an error: bad key (dshctl wake -s nightly)"
    )


def test_a_messages_way(dshctl: Dshctl, fake: Fake) -> None:
    way = [
        {"state": "pending", "at": NOW + 251_000, "seq": 412, "by": {}},
        {"state": "claimed", "at": NOW + 302_000, "seq": 420, "by": {}},
        {"state": "entered", "at": NOW + 302_500, "seq": 422, "by": {}, "turn": 12, "step": 4},
        {"state": "settled", "at": NOW + 760_000, "seq": 512, "by": {}, "turn": 12, "outcome": "completed"},
    ]
    fake.answers["message.show"] = message(
        way=way, turn=12, position=None, state="settled", outcome="completed"
    )
    assert dshctl("message", "s4h8w2c1.17").out.splitlines() == [
        "steer to api, from you (pts/3), 12:04:11",
        "  12:04:11  on disk, seq 412, next step",
        "  12:05:02  claimed",
        "  12:05:02  entered turn 12 step 4",
        "  12:12:40  turn 12 completed                         dshctl answer s4h8w2c1.17",
        "use the new fixture",
    ]


def test_why_is_one_sentence_and_at_most_one_command(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["message.why"] = {
        "message": "s4h8w2c1.19",
        "session": "s4h8w2c1",
        "state": "pending",
        "sentence": "Waits behind turn 12 (bash: make test).",
        "hint": "dshctl queue promote s4h8w2c1.19",
    }
    assert dshctl("why", "s4h8w2c1.19").out == (
        "Waits behind turn 12 (bash: make test).\n  dshctl queue promote s4h8w2c1.19\n"
    )


def test_show_says_all_about_a_session(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.show"] = {**API, "tokens": 118_000, "bytes": 412_690, "created_at": NOW}
    lines = dshctl("show", "api").out.splitlines()
    assert lines[:4] == [
        f"api  {API['id']}",
        "  /home/you/src/api",
        "  Fix the flaky login tests",
        "  running: turn 12, step 4, 41 min: bash make test (4 min); 2 queued",
    ]
    assert "  model     fast" in lines
    assert "  net       off" in lines
    assert "  spent     118 k tokens" in lines
    assert "  log       413 kB" in lines


def test_abort_says_what_it_stopped_and_how_to_go_on(dshctl: Dshctl, fake: Fake) -> None:
    aborted = {
        "type": "aborted",
        "exit": 0,
        "session": "s4h8w2c1",
        "name": "api",
        "turn": 12,
        "doing": "bash: make test",
        "outcome": "aborted",
        "started_at": 0,
        "ended_at": 41 * MIN,
        "cleared": [],
        "parked": {"by": "abort", "what": None, "at": 0, "count": 2},
        "survivors": [],
    }
    fake.answers["session.abort"] = aborted
    assert dshctl("abort").out.splitlines() == [
        "api: stopped turn 12 after 41 min (bash make test was killed).",
        "2 messages are parked.   go on: dshctl wake    drop: dshctl queue clear",
    ]
    assert dshctl("abort", "-s", "api").out.splitlines()[1:] == [
        "2 messages are parked.   go on: dshctl wake -s api",
        "                         drop:  dshctl queue clear -s api",
    ]
    fake.answers["session.abort"] = {**aborted, "survivors": [4711]}
    assert dshctl("abort").out.splitlines()[0] == (
        "api: stopped turn 12 after 41 min, but process 4711 of it could not be ended and is alive."
    )
    fake.answers["session.abort"] = {**aborted, "turn": None, "parked": None, "doing": None}
    assert dshctl("abort") == (0, "api: nothing is running.\n", "")
    compacting = {"turn": None, "parked": None, "doing": "compacting (118,000 tokens)"}
    fake.answers["session.abort"] = {**aborted, **compacting}
    stopped = "api: stopped (compacting (118,000 tokens)); the conversation is as it was.\n"
    assert dshctl("abort") == (0, stopped, "")
    beside = {"agents": ["s5h8w2c1", "s6h8w2c1"], "jobs": ["j3"], "goes_on": ["j4"], "parked": None}
    fake.answers["session.abort"] = {**aborted, **beside}
    assert dshctl("abort").out.splitlines() == [
        "api: stopped turn 12 after 41 min (bash make test was killed), "
        "and subagents s5h8w2c1, s6h8w2c1 and j3.",
        "j4 goes on.   end it: dshctl jobs stop j4",
    ]
    nothing: Json = {"turn": None, "doing": None, "jobs": [], "goes_on": []}
    fake.answers["session.abort"] = {**aborted, **beside, **nothing}
    assert dshctl("abort").out == "api: stopped subagents s5h8w2c1, s6h8w2c1; no turn ran.\n"
    dshctl("abort", "--clear", "--turn", "3", "--reason", "no", "api")
    assert fake.params("session.abort")[-1]["disposition"] == "clear"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "steer     -> api, joins turn 12 at its next step, after bash make test."),
        (
            {"verb": "followup", "queue": "next-turn", "position": 3},
            "followup  -> api, 3rd in the queue; turn 12 runs.",
        ),
        (
            {"verb": "followup", "queue": "next-turn", "phase": "idle", "turn": 13},
            "followup  -> api, starts now (turn 13).",
        ),
        (
            {"verb": "followup", "queue": "next-turn", "phase": "idle", "released": 3},
            "followup  -> api, starts now; then the 3 messages that had been parked.",
        ),
        (
            {"verb": "inject", "phase": "idle", "turn": None},
            "inject    -> api, rides along with the next turn; nothing is woken.",
        ),
        (
            {"redirected": True, "queue": "next-turn"},
            "steer     -> api, turn 12 is being aborted, so it will be the next turn.",
        ),
        (
            {
                "verb": "followup",
                "duplicate": True,
                "state": "settled",
                "outcome": "completed",
                "ended_at": NOW - 9 * 60 * MIN,
            },
            "followup  -> api, same key as s4h8w2c1.17, which ended completed at 03:00.",
        ),
        (
            {"verb": "followup", "duplicate": True},
            "followup  -> api, same key as s4h8w2c1.17, which is pending.",
        ),
        ({"queue": "held", "due_at": NOW + 348 * MIN}, "steer     -> api, held until 17:48 (in 5 h 48 min)."),
        (
            {"parked": {"by": "abort"}, "verb": "inject"},
            "inject    -> api, kept, but api is parked (abort); it waits for dshctl wake.",
        ),
        ({"name": None, "phase": "idle", "turn": None}, "steer     -> s4h8w2c1, starts now."),
        (
            {"verb": "interrupt", "queue": "next-turn", "position": 1},
            "interrupt -> api, stops turn 12 and runs next; then the rest of the queue.",
        ),
        (
            {"verb": "interrupt", "queue": "next-turn", "position": 2, "keep": True},
            "interrupt -> api, stops turn 12 and runs next, 2nd behind earlier interrupts; then the session "
            "is parked.",
        ),
        (
            {"verb": "interrupt", "queue": "next-turn", "phase": "idle", "turn": 13},
            "interrupt -> api, starts now (turn 13).",
        ),
        (
            {"verb": "followup", "queue": "next-turn", "position": 2, "superseded": ["s.1", "s.2"]},
            "followup  -> api, replaces s.1, s.2; 2nd in the queue; turn 12 runs.",
        ),
    ],
)
def test_receipts_in_a_sentence(changes: Json, sentence: str) -> None:
    assert fates.receipt({**RECEIPT, **changes}) == sentence


PARKED: Json = {"by": "abort", "count": 2}
NEXT_TURN: Json = {"queue": "next-turn"}
IDLE: Json = {"phase": "idle", "turn": None}
STARTING: Json = {"phase": "idle", "turn": 13}  # the turn that it opens


@pytest.mark.parametrize(
    ("verb", "wake", "state", "fate"),
    [
        ("followup", True, {**STARTING}, "starts now (turn 13)."),
        ("followup", True, {**IDLE, "position": 3}, "3rd in the queue."),
        ("followup", True, {"position": 2}, "2nd in the queue; turn 12 runs."),
        ("followup", True, {**STARTING, "released": 1},
         "starts now; then the 1 message that had been parked."),
        ("followup", True, {"redirected": True}, "turn 12 is being aborted, so it will be the next turn."),
        ("followup", True, {"phase": "maintenance"}, "1st in the queue; it starts after maintenance."),
        ("followup", False, {**IDLE}, "waits, 1st for the next turn; nothing is woken."),
        ("followup", False, {**IDLE, "position": 2}, "waits, 2nd for the next turn; nothing is woken."),
        ("followup", False, {}, "1st in the queue; turn 12 runs."),
        ("followup", False, {"phase": "maintenance"}, "waits, 1st for the next turn; nothing is woken."),
        ("followup", False, {**IDLE, "parked": PARKED},
         "kept, but api is parked (abort); it waits for dshctl wake."),
        ("followup", True, {**IDLE, "queue": "held"}, "held until you release it: dshctl wake s4h8w2c1.17"),
        ("followup", False, {"queue": "held"}, "held until you release it: dshctl wake s4h8w2c1.17"),
        ("followup", False, {**IDLE, "duplicate": True}, "same key as s4h8w2c1.17, which is pending."),
        ("followup", False, {**IDLE, "spooled": True}, "kept until the daemon is back."),
        ("followup", True, {"duplicate": True, "retried": True, "turn": 13}, "tried again, as turn 13."),
        ("steer", True, {}, "joins turn 12 at its next step, after bash make test."),
        ("steer", True, {**STARTING}, "starts now (turn 13)."),
        ("steer", True, {**IDLE, "position": 2}, "starts now."),  # with what waits before it
        ("steer", True, {**STARTING, **NEXT_TURN, "redirected": True, "released": 2},
         "starts now; then the 2 messages that had been parked."),
        ("steer", False, {**IDLE}, "waits, 1st for the next step; nothing is woken."),
        ("inject", False, {**IDLE}, "rides along with the next turn; nothing is woken."),
        ("inject", False, {"phase": "maintenance"}, "rides along with the next turn; nothing is woken."),
        ("inject", False, {"waits_for": None}, "joins turn 12 at its next step."),
        ("inject", False, {**IDLE, "parked": PARKED},
         "kept, but api is parked (abort); it waits for dshctl wake."),
    ],
)  # fmt: skip
def test_the_fate_of_a_send_by_how_it_was_sent_and_what_the_session_did(
    verb: str, wake: bool, state: Json, fate: str
) -> None:
    queue = "next-turn" if verb == "followup" else "next-step"
    got = {**RECEIPT, "verb": verb, "queue": queue, **state, "wake": wake}
    assert fates.receipt(got) == f"{verb:<9} -> api, {fate}"


def test_a_send_that_wakes_nobody_says_so(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = {**RECEIPT, "verb": "followup", **NEXT_TURN, **IDLE}
    assert "waits, 1st for the next turn" in dshctl("followup", "--no-wake", "x", tty=True).err
    assert "starts now" in dshctl("followup", "x", tty=True).err


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (38_000, "38 s"),
        (41 * MIN + 59_000, "41 min"),
        (348 * MIN, "5 h 48 min"),
        (120 * MIN, "2 h"),
        (76 * 60 * MIN, "3 d 4 h"),
        (24 * 60 * MIN + 30 * MIN, "1 d"),
    ],
)
def test_ages_have_at_most_two_units(ms: int, words: str) -> None:
    assert times.age(ms) == words


def test_clocks() -> None:
    assert times.clock(NOW, NOW) == "12:00"
    assert times.clock(NOW - 86_400_000, NOW) == "Nov 29"
    assert times.clock(NOW - 400 * 86_400_000, NOW) == "Oct 26 2025"
    assert times.ago(NOW - 59_000, NOW) == "now"
    assert times.ago(None, NOW) == times.ago(0, NOW) == "-"


@pytest.mark.parametrize(
    ("line", "method", "sent"),
    [
        ("close api --clear", "session.close", {"session": "api", "clear": True}),
        ("reopen api", "session.reopen", {"session": "api"}),
        ("rename old new", "session.rename", {"session": "old", "name": "new"}),
        ("rm --yes --force api", "session.delete", {"session": "api", "force": True}),
        (
            "set api net=on env.A=b patience=",
            "session.set",
            {"session": "api", "values": {"net": True, "env.A": "b", "patience": None}},
        ),
        ("wake s4h8w2c1.20", "session.wake", {"session": "s4h8w2c1", "message": "s4h8w2c1.20"}),
        ("queue first s4h8w2c1.1 s4h8w2c1.2", "queue.first", {"messages": ["s4h8w2c1.1", "s4h8w2c1.2"]}),
        (
            "queue edit s4h8w2c1.1 --version 2 new text",
            "queue.edit",
            {"message": "s4h8w2c1.1", "text": "new text", "version": 2},
        ),
        ("queue clear -s api --queue held", "queue.clear", {"session": "api", "queue": "held"}),
        ("answer s4h8w2c1.17", "answer.show", {"session": "s4h8w2c1", "message": "s4h8w2c1.17"}),
        ("answer api -n 2", "answer.show", {"session": "api", "n": 2}),
        (
            "wait s4h8w2c1.17 --stay",
            "session.wait",
            {"session": "s4h8w2c1", "messages": ["s4h8w2c1.17"], "stay": True},
        ),
        (
            "interrupt --keep --reason r stop that",
            "session.interrupt",
            {"text": "stop that", "keep": True, "reason": "r"},
        ),
        (
            "new --name n --mode full --ask deny --patience 10m",
            "session.create",
            {"name": "n", "mode": "full", "ask": "deny", "patience": 600.0},
        ),
        (
            "run --model fast --key k x",
            "session.create",
            {"run": True, "model": "fast", "key": "k", "text": "x"},
        ),
    ],
)
def test_every_command_is_one_call_with_what_was_said(
    line: str, method: str, sent: Json, dshctl: Dshctl, fake: Fake
) -> None:
    from tests.dshctl.test_schemas import ANSWERS

    fake.answers = json.loads(json.dumps(ANSWERS))
    assert dshctl(*line.split(), stdin=b"").code == 0
    asked = fake.params(method)[0]
    assert sent.items() <= asked.items(), asked


def test_answers_exit_as_their_turn_ended(dshctl: Dshctl, fake: Fake) -> None:
    failed = {
        **RESULT,
        "exit": 75,
        "outcome": "error",
        "text": None,
        "error": {"code": "RATE_LIMIT", "message": "429 from the provider."},
    }
    fake.answers["answer.show"] = failed
    ran = dshctl("answer", "-q")
    assert (ran.code, ran.out) == (75, "")
    assert ran.err == "dshctl: api: turn 12 ended in an error: 429 from the provider.\n"


@pytest.mark.parametrize(
    ("outcome", "by", "says"),
    [
        ("rejected", {"by": "filter", "reason": "it matches /x/."}, "rejected by filter: it matches /x/."),
        ("superseded", {"by": "s4h8w2c1.18"}, "superseded by s4h8w2c1.18."),
        ("removed", {"kind": "user", "tty": "pts/3"}, "removed from the queue by you (pts/3)."),
        ("cleared", {"kind": "user"}, "cleared from the queue by you."),
        ("aborted", {"kind": "system", "via": "driver"}, "aborted before it entered a turn."),
    ],
)
def test_who_ended_a_message_and_why_is_said_with_a_command(
    dshctl: Dshctl, fake: Fake, outcome: str, by: Json, says: str
) -> None:
    exit = {"rejected": 11, "aborted": 12}.get(outcome, 17)
    result = {**RESULT, "turn": None, "text": None, "outcome": outcome, "exit": exit, "by": by}
    fake.answers |= {"session.send": RECEIPT, "session.wait": {"type": "waited", "results": [result]}}
    ran = dshctl("followup", "--wait", "x")
    assert f"dshctl: api: message s4h8w2c1.17 was {says}" in " ".join(ran.err.split())
    assert ("dshctl message s4h8w2c1.17" in ran.err) is (outcome != "aborted")


@pytest.mark.parametrize(
    ("code", "exit", "env", "says"),
    [
        ("MISSING_CREDENTIAL", 9, {}, "doesn't have it. dshctl key fast"),
        ("MISSING_CREDENTIAL", 9, {"FAST_API_KEY": "k"}, "It was started without; your shell's"),
        ("AUTH", 10, {}, "dshctl key fast"),
        ("NO_ADAPTER", 9, {}, "dshctl models"),
        ("SERVER", 75, {}, "dshctl log -s api dshctl retry -s api"),
    ],
)
def test_an_error_of_the_model_has_its_way_out(
    dshctl: Dshctl, fake: Fake, code: str, exit: int, env: dict[str, Any], says: str
) -> None:
    error = {"code": code, "message": 'route "fast" needs FAST_API_KEY, and the daemon doesn\'t have it'}
    result = {**RESULT, "text": None, "outcome": "error", "exit": exit, "error": error, "model": "fast/m"}
    fake.answers |= {"session.send": RECEIPT, "session.wait": {"type": "waited", "results": [result]}}
    ran = dshctl("followup", "--wait", "x", **env)
    assert ran.code == exit
    assert says in " ".join(ran.err.split())


def test_an_interrupt_on_a_terminal_says_what_will_happen(dshctl: Dshctl, fake: Fake) -> None:
    receipt = {**RECEIPT, "verb": "followup", "queue": "next-turn", "position": 1}
    fake.answers["session.interrupt"] = receipt
    ran = dshctl("interrupt", "x", tty=True)
    assert ran.err == "interrupt -> api, stops turn 12 and runs next; then the rest of the queue.\n"
    assert dshctl("interrupt", "x", "--json").last == receipt


def test_a_key_is_read_unseen_and_kept_0600(dshctl: Dshctl) -> None:
    assert dshctl("key", "openai", stdin=b"sk-secret\n").code == 0
    stored = dshctl.home / "keys" / "openai"
    assert stored.read_text() == "sk-secret\n"
    assert stored.stat().st_mode & 0o777 == 0o600
    assert stored.parent.stat().st_mode & 0o777 == 0o700
    ran = dshctl("key")
    assert ran.out == "openai\n"
    assert "secret" not in ran.out + ran.err
    assert dshctl("key", "--rm", "openai").code == 0
    assert dshctl("key", "--rm", "openai").code == 4
    assert dshctl("key", "../fast", stdin=b"k").code == 2
    assert dshctl("key", "openai", stdin=b"").code == 2


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("nosuch", "deepseek, anthropic"),
        ("ope", "There are: deepseek, anthropic, openai, ollama, rehearsal;"),
    ],
)
def test_a_key_for_a_route_that_is_not_there_is_not_kept(dshctl: Dshctl, typed: str, near: str) -> None:
    ran = dshctl("key", typed, stdin=b"k\n")
    assert ran.code == 4
    assert f'no route "{typed}"' in ran.err
    assert near in " ".join(ran.err.split())
    assert not (dshctl.home / "keys").exists()
    (dshctl.home / "config.toml").write_text(f"[routes.{typed}]\nadapter = 'openai'\n")
    assert dshctl("key", typed, stdin=b"k\n").code == 0


def test_a_stored_key_of_a_route_that_went_can_be_forgotten(dshctl: Dshctl) -> None:
    (dshctl.home / "keys").mkdir()
    (dshctl.home / "keys" / "gone").write_text("k\n")
    assert dshctl("key", "--rm", "gone").code == 0


def test_config_check_names_the_place_of_the_mistake(dshctl: Dshctl) -> None:
    assert dshctl("config", "check").code == 0
    (dshctl.home / "config.toml").write_text("[routes.fast]\nadapter = 'openai'\nmax_token = 5\n")
    ran = dshctl("config", "check")
    assert ran.code == 9
    assert "config.toml:3" in ran.err
    assert "max_tokens" in ran.err
    told = dshctl("config", "check", "--json").last
    assert (told["code"], told["exit"]) == ("NOT_CONFIGURED", 9)


def test_config_check_says_what_to_type_when_no_model_is_set_up(dshctl: Dshctl) -> None:
    ran = dshctl("config", "check")
    assert ran.code == 0
    assert "No model is set up" in ran.out
    assert "dshctl key deepseek" in ran.out
    assert "--model rehearsal" in ran.out


VAIN = "[[hooks]]\nevent = 'turn_end'\ncommand = 'true'\non_failure = 'block'\n"
IN_VAIN = "hooks[0].on_failure is block, and turn_end has nothing to block"


@pytest.mark.parametrize(
    ("text", "env", "says"),
    [
        ('model = "rehearsal"\n', {}, "New sessions get rehearsal (config)."),
        ("", {"OPENAI_API_KEY": "k"}, "New sessions get openai (there is a key for openai)."),
        ("", {"OPENAI_BASE_URL": "http://x/v1"}, "New sessions get the first model that http://x/v1 offers."),
        ('model = "openai"\n', {}, "New sessions get openai, which needs OPENAI_API_KEY, and there is none."),
        (VAIN, {}, f"{IN_VAIN}."),
    ],
)
def test_config_check_says_what_comes_of_it(
    dshctl: Dshctl, text: str, env: dict[str, Any], says: str
) -> None:
    (dshctl.home / "config.toml").write_text(text)
    ran = dshctl("config", "check", **env)
    assert ran.code == 0
    assert says in ran.out


def test_config_show_and_json_name_what_is_set_in_vain(dshctl: Dshctl) -> None:
    (dshctl.home / "config.toml").write_text(VAIN)
    assert f"# {IN_VAIN}" in dshctl("config", "show").out.splitlines()
    for word in ("show", "check"):
        assert dshctl("config", word, "--json").last["warnings"] == [IN_VAIN]


@pytest.mark.parametrize("word", ["check", "show"])
def test_a_config_that_was_named_and_is_not_there_is_9(dshctl: Dshctl, word: str) -> None:
    ran = dshctl("config", word, DSHD_CONFIG="/nonexistent/config.toml")
    assert ran.code == 9
    assert "no config file /nonexistent/config.toml" in ran.err


@pytest.mark.parametrize(
    ("name", "text", "mode", "says"),
    [("env", "A=b\n", 0o644, "chmod 600"), ("env", "A\n", 0o600, "env:1"),
     ("config.toml", "[plugins.nothing]\n", 0o600, "nothing")],
)  # fmt: skip
def test_config_check_finds_what_would_keep_the_daemon_from_starting(
    dshctl: Dshctl, name: str, text: str, mode: int, says: str
) -> None:
    (dshctl.home / name).write_text(text)
    (dshctl.home / name).chmod(mode)
    ran = dshctl("config", "check")
    assert ran.code == 9
    assert says in ran.err


def test_a_reload_says_what_is_not_carried_out(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["daemon.reload"] = {"type": "reloaded", "exit": 0, "config": "/c", "warnings": ["x is set"]}
    assert dshctl("daemon", "reload") == (0, "config read again.\n", "dshctl: x is set.\n")


@pytest.mark.parametrize(
    ("key", "required", "word"),
    [(True, True, "yes"), (False, True, "MISSING"), (False, False, "-"), (True, False, "yes")],
)
def test_a_route_that_needs_no_key_misses_none(key: bool, required: bool, word: str) -> None:
    from dshctl.commands import models

    row = models.row({"route": "x", "key": key, "key_required": required, "window": 65536})
    assert row[-1] == word
    assert row[-3] == "64 k"


@pytest.mark.parametrize(
    ("pair", "says"),
    [("mode=", "read-only, workspace, full"), ("ask=", "wait, deny"), ("net=", "on, off"),
     ("dir=", "a directory"), ("model=", "dshctl models"), ("dir=/nonexistent", "no such directory"),
     ("modle=", "did you mean mode")],
)  # fmt: skip
def test_a_setting_that_needs_a_value_gets_a_good_one(
    dshctl: Dshctl, fake: Fake, pair: str, says: str
) -> None:
    ran = dshctl("set", pair)
    assert ran.code == (4 if "nonexistent" in pair else 2)
    assert says in ran.err
    assert not fake.params("session.set")


@pytest.mark.parametrize("option", ["--name", "--model", "--mode", "--net", "--ask", "-C"])
def test_a_session_option_is_never_empty(dshctl: Dshctl, fake: Fake, option: str) -> None:
    assert dshctl("new", option, "").code == 2
    assert not fake.params("session.create")


def test_a_directory_is_set_as_it_is_from_here(
    dshctl: Dshctl, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    fake.answers["session.set"] = SESSION
    assert dshctl("set", "dir=link").code == 0
    assert fake.params("session.set")[-1]["values"] == {"dir": str(tmp_path / "real")}


def test_paths_are_the_same_with_and_without_a_daemon(dshctl: Dshctl) -> None:
    ran = dshctl("paths", "--json").last
    assert ran["state"] == str(dshctl.state)
    assert ran["socket"] == str(dshctl.socket)
    assert not dshctl.state.exists()


def test_a_removal_asks_on_a_terminal(dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

    fake.answers["session.show"] = SESSION
    fake.answers["session.delete"] = {"type": "removed", "exit": 0, "session": "s4h8w2c1", "name": "api"}
    for typed, code in (("n\n", 1), ("\n", 1), ("y\n", 0)):
        monkeypatch.setattr(sys, "stdin", Typed(typed))
        monkeypatch.setattr("tests.dshctl.conftest._stdin", lambda _: sys.stdin)
        assert dshctl("rm", "api", tty=True).code == code
    assert sys.stdin is not None


def test_config_show_keeps_a_password_in_an_address_to_itself(dshctl: Dshctl) -> None:
    route = '[routes.a]\nadapter = "openai"\nbase_url = "https://me:secret@h/v1"\n'
    (dshctl.home / "config.toml").write_text(f'model = "a"\n{route}')
    for args in (("config", "show"), ("config", "show", "--json"), ("config", "check")):
        ran = dshctl(*args)
        assert ran.code == 0
        assert "secret" not in ran.out
        assert "https://h/v1" in ran.out or "--json" in args


def test_the_queue_of_a_session_that_waits_for_a_place_names_no_turn(dshctl: Dshctl, fake: Fake) -> None:
    waits = {"phase": "running", "turn": 3, "waits": "place", "doing": "waiting (1 session runs already)"}
    fake.answers["queue.ls"] = {"session": session("api", "waiting", **waits), "messages": []}
    assert dshctl("queue").out == "api: waiting (1 session runs already); nothing queued\n"


@pytest.mark.parametrize("word", ["damaged", "faulted"])
def test_the_queue_of_a_session_that_cannot_go_on_says_so_and_is_7(
    word: str, dshctl: Dshctl, fake: Fake
) -> None:
    needs = [{"kind": word, "id": None, "hint": "dshctl rm api"}]
    fake.answers["queue.ls"] = {"session": session("api", word, needs=needs), "messages": []}
    ran = dshctl("queue")
    assert (ran.code, ran.out) == (
        7, f"api: {word}; nothing moves here, and nothing is known to be queued.\n"
    )  # fmt: skip
    assert ran.err == f"dshctl: session api is {word}.\n      dshctl rm api\n"


def test_patience_is_said_as_a_duration(dshctl: Dshctl, fake: Fake) -> None:
    for given, value, words in (("1m", 60.0, "1 min"), ("90", 90.0, "1 min"), ("0", 0.0, "none")):
        fake.answers["session.set"] = session("api", "idle", patience=value)
        assert dshctl("set", "api", f"patience={given}").out == f"api: patience {words}.\n"


def test_a_turn_that_others_came_after_is_not_said_to_be_retried(dshctl: Dshctl, fake: Fake) -> None:
    for outcome, code in (("error", 10), ("budget", 15)):
        stop = {"what": "turn_steps", "limit": 1, "spent": 1, "add": "steps=1"} if code == 15 else None
        ended = {**RESULT, "turn": 3, "newest": False, "outcome": outcome, "exit": code, "budget": stop}
        fake.answers["session.wait"] = {"results": [ended]}
        ran = dshctl("wait", "s4h8w2c1.17")
        assert ran.code == code
        assert "dshctl log -s api --turn 3" in ran.err
        assert "retry" not in ran.err
        assert "wake" not in ran.err


def test_a_daemons_times_are_told_as_they_are_here(dshctl: Dshctl, fake: Fake) -> None:
    at = "2026-11-30T11:58:00Z"
    said = f'a1 is allowed already, by you (pts/3) at {at}; "{at}" is what you said'
    fake.answers["approval.answer"] = Refuse("CONFLICT", said)
    ran = dshctl("allow", "a1")
    assert ran.code == 5
    assert f'"{at}" is what you said' in " ".join(ran.err.split())
    assert f"at {at};" not in " ".join(ran.err.split())


def test_a_number_that_is_none_is_refused_in_words(dshctl: Dshctl, fake: Fake) -> None:
    for args, flag in (
        (("queue", "edit", "--version", "0", "s4h8w2c1.17", "x"), "--version: 0 is not a whole number from"),
        (("log", "-n", "-1"), "-n: -1 is not a whole number from 0"),
        (("answer", "-n", "x"), "-n: 'x' is not a whole number from 1"),
    ):
        ran = dshctl(*args)
        assert (ran.code, flag in ran.err) == (2, True), ran.err
        assert "9007" not in ran.err


def test_jobs_output_says_what_was_not_kept(dshctl: Dshctl, fake: Fake) -> None:
    end = {"how": "exit", "code": 0, "signal": None, "cause": None, "detail": None, "bytes": 9, "ms": 1,
           "by": None}  # fmt: skip
    fake.answers["job.output"] = {**PIECE, "state": "ended", "end": end}
    done = dshctl("jobs", "output", "j3")
    assert done.out == "cc\n"
    assert "dshctl: j3: only the first 3 of the 9 bytes that it printed were kept." in done.err
    fake.answers["job.output"] = {**PIECE, "state": "ended", "end": {**end, "bytes": 3}}
    assert "kept" not in dshctl("jobs", "output", "j3").err


def test_the_way_to_delete_where_nobody_can_be_asked_keeps_what_was_asked(dshctl: Dshctl, fake: Fake) -> None:
    assert "dshctl rm --yes api" in dshctl("rm", "api").err
    assert "dshctl rm --force --yes api" in dshctl("rm", "--force", "api").err
