from __future__ import annotations

from typing import Any

import pytest

from dshctl.approvals import body
from dshctl.chat import Chat
from dshctl.excerpts import call_line, tokens_text
from dshd import wire
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import Drop, Fake, Hang

Json = dict[str, Any]
NOW = 1_796_040_000_000  # Nov 30 2026 12:00 UTC
YOU = {"kind": "user", "tty": "pts/3", "client": "dshctl"}


class Log:
    """Events one after the other, a second apart."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.time = NOW - 1860_000
        self.turn = 12

    def add(self, type: str, *, after: int = 1000, **data: Any) -> Log:
        self.time += after
        seq = len(self.events)
        self.events.append({"seq": seq, "time": self.time, "type": type, "data": data, "crc": "00000000"})
        return self

    def said(self, verb: str, text: str, *, source: Json = YOU, **more: Any) -> Log:
        content = [{"type": "text", "text": text}]
        return self.add(
            "user/message", id="s4h8w2c1.17", verb=verb, content=content, source=source, turn=12, **more
        )

    def did(self, call: str, name: str, arguments: str, result: str, summary: str | None, **more: Any) -> Log:
        block = {"type": "tool-call", "id": call, "name": name, "arguments": arguments}
        self.add("assistant/message", content=[block], turn=12, step=1)
        self.add("tool/call", call=call, name=name, arguments=arguments)
        return self.add("tool/result", call=call, content=[{"type": "text", "text": result}], summary=summary,
                        is_error=False, **more)  # fmt: skip

    def answered(self, text: str) -> Log:
        return self.add(
            "assistant/message",
            content=[{"type": "text", "text": text}],
            usage={"input": 100_000, "output": 18_000},
        )

    def lines(self, **options: Any) -> list[str]:
        chat = Chat(80, now=lambda: NOW, **options)
        return [line for event in self.events for line in chat.feed(event)] + chat.end()


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def session() -> Log:
    log = Log().add("turn/start", turn=12).add("step/start", turn=12, step=1)
    log.said("followup", "make the tests in tests/api pass").answered("I'll run them first.")
    failing = "\n".join(
        [*(f"line {n}" for n in range(209)), "", "FAILED test_login - KeyError", "[exit 2, 38 s]"]
    )
    log.did("c1", "bash", '{"command":"make test"}', failing, "exit 2, 38 s")
    log.did("c2", "edit", '{"path":"src/api/token.py","old_string":"a"}', "edited", "+3 -1")
    log.add("step/end").add("step/start", step=4)
    log.said("steer", "use the new fixture")
    log.did("c3", "bash", '{"command":"make test"}', "all good\n[exit 0, 41 s]", "exit 0, 41 s")
    return log


def test_what_a_job_printed_is_cut_to_how_it_ended_and_the_last_of_it() -> None:
    said = "\n".join(["Job j3 (make) has ended: exit 2, 4 min.", *(f"line {n}" for n in range(40))])
    log = session().said("inject", said, source={"kind": "job", "via": "j3"})
    lines = log.lines()
    assert lines[lines.index("> 11:29 job: Job j3 (make) has ended: exit 2, 4 min.") + 1 :] == [
        "  ... 37 lines: dshctl log --turn 12 --full", "  line 37", "  line 38", "  line 39",
    ]  # fmt: skip
    assert "  line 2" in log.lines(full=True)
    assert "  line 2" in session().said("inject", said).lines(), "what a person says is never cut"


def test_a_turn_reads_as_a_conversation() -> None:
    log = session().answered("All 214 tests pass.")
    log.add("turn/end", after=2_560_000, turn=12, reason="completed",
            usage={"input": 100_000, "output": 18_000, "cost": 0.21})  # fmt: skip
    assert log.lines() == [
        "-- turn 12 -- Nov 30 11:29 -- you, pts/3 " + "-" * 39,
        "make the tests in tests/api pass",
        "",
        "  I'll run them first.",
        "  $ make test                                                     exit 2, 38 s",
        "    ... 211 lines: dshctl log --turn 12 --full",
        "    line 207",
        "    line 208",
        "    FAILED test_login - KeyError",
        "  edit src/api/token.py                                                  +3 -1",
        "> 11:29 you steered: use the new fixture",
        "  $ make test                                                     exit 0, 41 s",
        "  All 214 tests pass.",
        "-- completed, 4 steps, 42 min, 118 k tokens, $0.21 " + "-" * 29,
        "",
    ]


def test_full_shows_what_every_tool_said() -> None:
    lines = session().lines(full=True)
    assert "    line 0" in lines
    assert "    all good" in lines


def test_reasoning_is_shown_when_asked_for() -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x")
    log.add(
        "assistant/message",
        content=[{"type": "reasoning", "text": "I think."}, {"type": "text", "text": "So."}],
    )
    assert "  | I think." not in log.lines()
    assert log.lines(reasoning=True)[-2:] == ["  | I think.", "  So."]


def test_the_followup_opens_the_turn_and_what_came_along_stands_beside() -> None:
    log = Log().add("turn/start", turn=12).add("step/start", step=1)
    log.said("inject", "it is Monday", source={"kind": "hook", "via": "git"}).said("followup", "go").answered(
        "ok"
    )
    lines = log.lines()
    assert lines[1:3] == ["go", ""]
    assert lines[3] == "> 11:29 hook git: it is Monday"


def test_the_runtime_context_is_not_shown() -> None:
    log = Log().add("turn/start", turn=12).add("step/start", step=1)
    log.said("inject", "Runtime context", source={"kind": "system", "via": "context"}).said("followup", "go")
    assert not any("Runtime" in line for line in log.lines())


def test_an_abort_says_who_and_when() -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x")
    log.add("abort/requested", turn=12, by=YOU, disposition="keep").add("turn/end", turn=12, reason="aborted")
    assert log.lines()[-2].startswith("-- aborted by you (pts/3) at 11:29, 3 s --")


def test_why_a_turn_was_stopped_is_said_with_it() -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x")
    log.add("abort/requested", turn=12, by=YOU, disposition="keep", reason="wrong branch")
    log.add("turn/end", turn=12, reason="aborted")
    assert "aborted by you (pts/3) at 11:29: wrong branch, " in log.lines()[-2]


def test_an_interrupt_is_not_called_an_abort() -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x")
    log.add("inbox/spliced", cause="send", by=YOU, ops=[], interrupts=12, reason="look first")
    log.add("turn/end", turn=12, reason="aborted", cause="interrupt")
    assert "interrupted by you (pts/3) at 11:29: look first, " in log.lines()[-2]


def test_of_a_long_text_the_beginning_is_shown_and_where_the_whole_is() -> None:
    head = "one\ntwo\n" * 9
    block = {"type": "file", "sha256": "73b4", "bytes": 70005, "lines": 900, "head": head, "tail": "end"}
    log = Log().add("turn/start", turn=12)
    log.add("user/message", id="m", verb="followup", source=YOU, content=[block])
    log.add("turn/end", turn=12, reason="completed")
    chat = Chat(80)
    chat.place = "/s/attachments"
    lines = [line for event in log.events for line in chat.feed(event)]
    where = "[... 70005 bytes, 900 lines in all: /s/attachments/73b4.txt]"
    assert lines[1:6] == ["one", "two", "one", "two", where]


def test_a_turn_that_no_daemon_runs_reads_as_stopped() -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x").add("step/start", step=1)
    asked = {"type": "tool-call", "id": "c1", "name": "bash", "arguments": '{"command":"sleep 20"}'}
    log.add("assistant/message", content=[asked])
    lines = {}
    for stopped in (True, False):
        chat = Chat(80, now=lambda: NOW)
        lines[stopped] = [line for event in log.events for line in chat.feed(event)] + chat.end(stopped)
    assert lines[False][-1] == f"  $ sleep 20{' ' * 63}..."
    assert lines[True][-3:-1] == [f"  $ sleep 20{' ' * 59}stopped", f"-- stopped: no daemon runs {'-' * 53}"]
    assert Chat(80).end(True) == []


@pytest.mark.parametrize(
    ("options", "whole"), [({}, False), ({"full": True}, True), ({"limit": False}, True)]
)
def test_how_a_turn_ended_is_one_line_of_a_terminal(options: dict[str, bool], whole: bool) -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x")
    log.add("turn/end", turn=12, reason="error", error={"message": "the conversation is full; " * 12})
    (rule,) = (line for line in log.lines(**options) if line.startswith("-- ended"))
    assert (len(rule) > 300) == whole
    assert whole or (len(rule) == 80 and rule.endswith("... ---"))


@pytest.mark.parametrize(
    ("ms", "says"), [(500, "again in 0.5 s"), (2000, "again in 2 s"), (None, "(again: ")]
)
def test_when_it_is_tried_again_is_said(ms: int | None, says: str) -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x")
    log.add("llm/retry", delay_ms=ms, message="answered 503")
    assert says in log.lines()[-1]


def test_an_abort_because_its_client_went_is_not_called_yours() -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x")
    log.add("abort/requested", turn=12, by=YOU, cause="abort", reason=wire.GONE)
    log.add("turn/end", turn=12, reason="aborted")
    assert "-- aborted at 11:29: its client, to which it was tied, went away, " in log.lines()[-2]


def test_an_error_and_a_crash_are_said() -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x")
    log.add("turn/end", turn=12, reason="error", error={"code": "AUTH", "message": "the key is refused"})
    assert log.lines()[-2].startswith("-- ended in an error: the key is refused, 2 s --")
    log = (
        Log()
        .add("turn/start", turn=12)
        .said("followup", "x")
        .add("turn/end", turn=12, reason="interrupted", recovery=True)
    )
    assert log.lines()[-2].startswith("-- interrupted (dshd ended before it could close it), 2 s --")
    log = Log().add("turn/start", turn=12).said("followup", "x")
    started = log.events[0]["time"]
    log.add("turn/end", turn=12, reason="interrupted", recovery=True, ended_at=started + 500_000)
    assert ", 8 min --" in log.lines()[-2]


def test_a_turn_that_only_rejected_is_shown() -> None:
    log = Log().add("turn/start", turn=12)
    log.add("step/rejected", by="content_filter", reason="no secrets", messages=["s4h8w2c1.17"])
    log.add("turn/end", turn=12, reason="blocked")
    assert log.lines()[0].startswith("-- turn 12 -- Nov 30 11:29 -- rejected by content_filter --")
    assert log.lines()[1] == "> 11:29 rejected by content_filter: no secrets"
    assert log.lines()[2].startswith("-- blocked, ")


def test_a_call_that_runs_is_shown_at_the_end() -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x")
    block = {"type": "tool-call", "id": "c", "name": "bash", "arguments": '{"command":"make\\nmake install"}'}
    log.add("assistant/message", content=[block]).add("tool/call", call="c", name="bash", arguments="")
    assert log.lines()[-1].split() == ["$", "make", "...", "..."]


def test_progress_leaves_out_headings_the_question_and_the_answer() -> None:
    log = (
        session().answered("All 214 tests pass.").add("step/end").add("turn/end", turn=12, reason="completed")
    )
    lines = log.lines(progress=True)
    assert lines[0] == "  I'll run them first."
    assert "> 11:29 you steered: use the new fixture" in lines
    assert not any("214" in line or line.startswith("--") or "tests/api pass" in line for line in lines)


def test_progress_shows_an_answer_that_was_not_the_last() -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x").answered("First.").add("step/end")
    log.add("step/start", step=2).said("inject", "also").answered("Second.").add(
        "turn/end", turn=12, reason="completed"
    )
    assert log.lines(progress=True) == ["  First.", "> 11:29 you told it: also"]


def test_prose_is_wrapped_and_fences_are_not() -> None:
    long = "word " * 30
    log = Log().add("turn/start", turn=12).said("followup", "x").answered(f"- {long}\n```\n{long}\n```")
    lines = log.lines()[3:]
    assert all(len(line) < 80 for line in lines[:2])
    assert any(len(line) > 140 for line in lines)


def test_a_damaged_place_is_marked() -> None:
    log = Log().add("log/gap", first=3000, last=3010, file="log.gap-3000")
    assert log.lines()[0].startswith("-- lines 3001-3011 were damaged, kept in log.gap-3000 --")


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("bash", '{"command":"make test"}', "$ make test"),
        ("read", '{"path":"a/b.py","offset":3}', "read a/b.py"),
        ("grep", '{"pattern":"TODO","path":"src"}', "grep src"),
        ("todo", '{"items":[]}', "todo"),
        ("bash", '{"command":', "$ "),
        ("x", "[1]", "x"),
    ],
)
def test_a_call_in_a_few_words(name: str, arguments: str, line: str) -> None:
    assert call_line(name, arguments) == line


@pytest.mark.parametrize(
    ("number", "words"), [(950, "950"), (41_200, "41 k"), (999_600, "1.0 M"), (1_900_000, "1.9 M")]
)
def test_tokens(number: int, words: str) -> None:
    assert tokens_text(number) == words


def test_foreign_text_is_harmless_on_a_terminal_and_as_it_is_in_a_pipe(dshctl: Dshctl, fake: Fake) -> None:
    log = Log().add("turn/start", turn=12).said("followup", "x").answered("\x1b[2J\x9b31m\r50%\r")
    fake.answers["log.read"] = {"type": "log", "session": "s4h8w2c1", "at": None, "damage": None}

    def events(peer: Any, _: Json) -> None:
        for event in log.events:
            peer.notify("log.event", {"session": "s4h8w2c1", "event": event})

    fake.during["log.read"] = events
    assert not set(dshctl("log", tty=True, TERM="xterm").out) & set("\x1b\x9b\r")
    assert "\x1b[2J" in dshctl("log").out
    assert not set(dshctl("log", "--json").out) & set("\x1b\x9b\r")
    assert not set(dshctl("log", "-o", "json", tty=True).out) & set("\x1b\x9b\r")


def test_raw_lines_are_the_very_bytes_of_the_log(dshctl: Dshctl, fake: Fake) -> None:
    raw = '{"seq":0,"time":1,"type":"x","data":{"n":1e16,"t":"\u2028\u00fc"},"crc":"9ab3f01c"}'
    head = '{"jsonrpc":"2.0","method":"log.event","params":{"session":"s4h8w2c1","event":'
    fake.answers["log.read"] = {"type": "log", "session": "s4h8w2c1", "at": None, "damage": None}
    fake.during["log.read"] = lambda peer, _: peer.sock.sendall(f"{head}{raw}}}}}\n".encode())
    assert dshctl("log", "-o", "json").out == raw + "\n"


def test_damage_is_told_beside_what_is_good(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["log.read"] = {
        "type": "log", "session": "s4h8w2c1", "at": None, "damage": "damaged at line 3000 (bytes 4120-4126)",
    }  # fmt: skip
    ran = dshctl("log")
    assert ran.code == 0
    assert "session s4h8w2c1 is damaged at line 3000" in ran.err
    assert "dshctl fsck --repair s4h8w2c1" in ran.err


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ((), {"turns": 3}),
        (("-n", "1"), {"turns": 1}),
        (("--turn", "12"), {"turn": [12, 12]}),
        (("--turn", "3-7"), {"turn": [3, 7]}),
        (("--all", "--chunks"), {"chunks": True}),
        (("--since", "@5"), {"since": 5000}),
    ],
)
def test_what_is_shown_is_chosen_by_the_daemon(
    dshctl: Dshctl, fake: Fake, args: tuple[str, ...], asked: Json
) -> None:
    fake.answers["log.read"] = {"type": "log", "session": "s4h8w2c1", "at": None, "damage": None}
    dshctl("log", "-s", "api", *args)
    sent = fake.params("log.read")[0]
    assert {key: value for key, value in sent.items() if key not in ("session", "cwd")} == asked


@pytest.mark.parametrize(("answer", "code"), [(Drop(), 3), (Hang(), 124)])
def test_a_log_whose_reading_breaks_off_is_no_whole_log(
    dshctl: Dshctl, fake: Fake, answer: Exception, code: int
) -> None:
    fake.answers["log.read"] = answer
    ran = dshctl("log", "--json", "--timeout", "0.5")
    assert (ran.code, ran.last["exit"]) == (code, code)


def test_what_stands_for_others_was_said_by_nobody_and_a_compaction_is_one_line() -> None:
    done: Json = {"compaction": 1, "reason": "done", "before": 118_000}
    log = Log().add("turn/start", turn=12).add("compaction/end", turn=12, **done).add("step/start", step=1)
    log.said("inject", "a summary")
    log.events[-1]["surface"] = {"replace": [1, 2]}
    log.said("followup", "go").add("step/end")
    log.add("compaction/end", turn=12, **{**done, "reason": "failed", "error": {"message": "it was empty"}})
    log.add("turn/end", turn=12, reason="completed").add("compaction/end", turn=None, **done)
    for event in log.events:
        event["data"]["after"] = 9_000
    heading, *lines = log.lines()
    assert heading.startswith("-- turn 12")
    assert lines[:3] == ["go", "", "  (compacted: 118 k -> 9 k tokens)"]
    assert lines[3] == "  (not compacted: it was empty)"
    assert lines[6].startswith("-- compacted: 118 k -> 9 k tokens ---")


def test_of_hooks_it_shows_what_went_wrong_and_what_they_say_to_a_person() -> None:
    log = Log().add("turn/start", turn=12)
    log.add("hook/ran", event="pre_step", hook="check", outcome="failed", reason="exit 1", turn=12)
    log.add("hook/ran", event="pre_step", hook="quiet", outcome="passed", turn=12)
    log.add("step/start", turn=12, step=1).said("followup", "work")
    log.add("hook/ran", event="pre_tool", hook="guard", outcome="passed", says="careful", turn=12)
    log.answered("done").add("turn/end", turn=12, reason="completed")
    log.add("hook/ran", event="turn_end", hook="bell", outcome="failed", reason="exit 7", turn=12)
    lines = log.lines()
    assert lines[:2] == ["-- turn 12 -- Nov 30 11:29 -- you, pts/3 " + "-" * 39, "work"]
    shown = [line for line in lines if "hook" in line]
    assert shown == [
        "  (hook check (pre_step) failed: exit 1)",
        "  (hook guard: careful)",
        "  (hook bell (turn_end) failed: exit 7)",
    ]  # fmt: skip
    assert lines.index(shown[0]) > 1
    assert lines[-1] == shown[2]


def test_a_hook_that_failed_before_a_rejection_is_shown_with_it() -> None:
    log = Log().add("turn/start", turn=12)
    log.add("hook/ran", event="pre_step", hook="check", outcome="failed", reason="exit 1", turn=12)
    log.add("step/rejected", by="hook check", reason="it failed: exit 1", messages=["s4h8w2c1.17"])
    assert [line[:20] for line in log.lines()[:3]] == [
        "-- turn 12 -- Nov 30", "> 11:29 rejected by ", "  (hook check (pre_s",
    ]  # fmt: skip


@pytest.mark.parametrize("levels", [99, 500, 3000, 100_000])
def test_a_call_that_is_nested_as_deep_as_a_model_likes_is_shown(levels: int) -> None:
    raw = '{"path": "a", "x": ' + "[" * levels + "]" * levels + "}"
    assert call_line("todo", raw).startswith("todo")
    lines = "\n".join(body({"tool": "todo", "arguments": raw}))
    assert "[" * min(levels, 90) in lines
