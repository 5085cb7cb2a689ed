"""The bash tool: what it runs with, and how it tells what happened."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from dshd.spawn.client import Completed, Spawner, launch
from dshd.tools import bash
from dshd.tools import text as as_text
from dshd.tools.bash import Bash
from dshd.tools.sandbox import Places, Plan
from dshd.tools.tool import ToolContext, ToolOutput

FREE = Plan(kind="none", net=True)
CUT = Plan(kind="bubblewrap", net=False, places=Places(dir=Path("/src"), tmp=Path("/t")))


def done(output: bytes = b"", **changes: Any) -> Completed:
    base = Completed(
        returncode=0,
        signal=None,
        timed_out=False,
        head=output,
        tail=b"",
        total=len(output),
        spill=None,
        spill_error=None,
        spilled=0,
        stderr=b"",
        duration_s=0.21,
        left=0,
        survivors=[],
    )
    return attrs.evolve(base, **changes)


# -- telling it


def test_a_result_is_the_output_and_how_it_ended() -> None:
    output = bash.result(done(b"hello\n"), 120, FREE)
    assert output.text == "hello\n[exit 0, 0.2 s]"
    assert (output.is_error, output.summary) == (False, "exit 0, 0 s")
    assert bash.result(done(b""), 120, FREE).text == "[exit 0, 0.2 s]"
    assert bash.result(done(b"no newline"), 120, FREE).text == "no newline\n[exit 0, 0.2 s]"


def test_an_exit_code_is_told_but_is_the_command_s_own_business() -> None:
    output = bash.result(done(b"", returncode=2, duration_s=38.4), 120, FREE)
    assert (output.text, output.is_error, output.summary) == ("[exit 2, 38 s]", False, "exit 2, 38 s")


def test_a_time_limit_and_a_signal_are_errors() -> None:
    late = bash.result(done(b"x\n", returncode=None, signal=15, timed_out=True, duration_s=120.0), 120, FREE)
    assert (late.error, late.text) == ("TIMEOUT", "x\n[time limit: stopped after 2 min]")
    killed = bash.result(done(b"", returncode=None, signal=11), 120, FREE)
    assert (killed.error, killed.text) == ("SIGNAL", "[killed by SIGSEGV after 0.2 s]")


def test_of_a_long_output_head_and_tail_are_shown_and_the_file_is_named() -> None:
    output = bash.result(done(b"aaa", tail=b"zzz", total=1_000_006, spill=Path("/spill/bash-1.out")), 9, FREE)
    assert output.text == (
        "aaa\n[... 1000000 bytes left out; all of it: /spill/bash-1.out ...]\nzzz\n[exit 0, 0.2 s]"
    )


def test_an_incomplete_file_says_so() -> None:
    given = done(b"a", tail=b"z", total=99, spill=Path("/s"), spilled=50, spill_error="the disk is full")
    assert bash.result(given, 9, FREE).text == (
        "a\n[... 97 bytes left out; its beginning: /s ...]\nz\n[exit 0, 0.2 s]\n"
        "[/s holds the first 50 bytes; the rest was not kept: the disk is full]"
    )


def test_a_file_that_could_not_be_made_is_not_named() -> None:
    given = done(b"a", tail=b"z", total=99, spill_error="the disk is full")
    assert bash.result(given, 9, FREE).text == (
        "a\n[... 97 bytes left out ...]\nz\n[exit 0, 0.2 s]\n"
        "[what is left out was not kept: the disk is full]"
    )


def test_bytes_that_are_no_text_are_shown_and_marked() -> None:
    output = bash.result(done(b"before\xe4\xe5after\n\xf0\n\0"), 9, FREE)
    assert output.text.startswith("before\ufffd\ufffdafter\n\ufffd\n\ufffd\n")
    assert "[bytes that are not UTF-8 text are shown as \ufffd]" in output.text
    assert "\ufffd" not in bash.result(done("äöü€😀".encode()), 9, FREE).text


@given(st.text(st.characters(exclude_characters="\0\ufffd", codec="utf-8")), st.integers(0, 100))
def test_text_is_never_cut_inside_a_character(text: str, at: int) -> None:
    data = text.encode()
    head, tail = data[:at], data[at:]
    assert "\ufffd" not in as_text.decoded(as_text.whole_end(head))
    assert "\ufffd" not in as_text.decoded(as_text.whole_start(tail))
    assert len(head) - len(as_text.whole_end(head)) <= 3


@given(st.binary())
def test_no_more_than_a_character_is_cut_off_whatever_the_bytes_are(data: bytes) -> None:
    assert data.startswith(as_text.whole_end(data))
    assert data.endswith(as_text.whole_start(data))
    assert len(as_text.whole_end(data)) >= len(data) - 3
    assert len(as_text.whole_start(data)) >= len(data) - 3


def test_what_could_not_be_ended_is_told() -> None:
    text = bash.result(done(b"", survivors=[12, 13]), 9, FREE).text
    assert "[These processes could not be ended: 12, 13.]" in text


def test_background_processes_that_were_ended_are_told() -> None:
    assert "[2 background processes were ended with the command]" in bash.result(done(left=2), 9, FREE).text
    assert "[1 background process was ended with the command]" in bash.result(done(left=1), 9, FREE).text


@pytest.mark.parametrize(
    "said",
    [
        "curl: (6) Could not resolve host: example.org",
        "ping: connect: Network is unreachable",
        "npm ERR! code EAI_AGAIN",
        "Temporary failure in name resolution",
        "dial tcp: lookup proxy.golang.org on [::1]:53",
    ],
)
def test_a_network_failure_says_that_the_network_is_off_only_if_it_is(said: str) -> None:
    failed = done(said.encode(), returncode=1)
    assert "[network is off here: dshctl set net=on]" in bash.result(failed, 9, CUT).text
    assert "network is off" not in bash.result(failed, 9, attrs.evolve(CUT, net=True)).text
    assert "network is off" not in bash.result(done(said.encode()), 9, CUT).text


@pytest.mark.parametrize(
    "said",
    [
        "    s.connect('/run/x.sock')\nFileNotFoundError: [Errno 2] No such file or directory",
        "ModuleNotFoundError: No module named 'yaml'",
        "AttributeError: mygetaddrinfos",
    ],
)
def test_what_only_contains_such_a_word_has_another_reason(said: str) -> None:
    assert "network is off" not in bash.result(done(said.encode(), returncode=1), 9, CUT).text


UNREACHABLE = {
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.": "mode=full",
    "dial unix /run/user/1000/podman/podman.sock: connect: no such file or directory": "mode=full",
    "Failed to connect to bus: No such file or directory": "mode=full",
    "Failed to connect to user bus: No medium found": "mode=full",
    'psql: error: connection to server on socket "/var/run/postgresql/.s.PGSQL.5432" failed': "net=on",
    "ERROR 2002: Can't connect to local server through socket '/run/mysqld/mysqld.sock' (2)": "net=on",
    "Error connecting to agent: No such file or directory": "net=on",
}


@pytest.mark.parametrize(("said", "pair"), UNREACHABLE.items())
def test_a_service_that_can_not_be_reached_says_how_it_could_be(said: str, pair: str) -> None:
    plan = Plan(kind="bubblewrap", net=False)
    (note,) = bash.forbidden(said, plan, "")
    assert note.endswith(f": dshctl set {pair}")
    assert bash.forbidden(said, FREE, "") == []
    assert [note] == bash.forbidden(said, attrs.evolve(plan, net=True), "") or pair == "net=on"


@pytest.mark.parametrize("said", [
    "ls: cannot access '/run/x': No such file or directory", "npm run connect failed", "src/run/a.py: error",
])  # fmt: skip
def test_other_failures_are_not_taken_for_that(said: str) -> None:
    assert bash.forbidden(said, Plan(kind="bubblewrap", net=False), "") == []


def test_what_a_person_can_change_is_said_of_the_session_it_is() -> None:
    for said, pair in (("getaddrinfo ENOTFOUND", "net=on"), ("x: Read-only file system", "mode=MODE")):
        failed = done(said.encode(), returncode=1)
        assert f"dshctl set {pair} -s api" in bash.result(failed, 9, CUT, whose=" -s api").text


def test_a_sandbox_that_fails_is_not_taken_for_the_command() -> None:
    output = bash.result(done(b"bwrap: Can't mkdir /x: Permission denied\n", returncode=1), 9, CUT)
    assert (output.error, output.text) == (
        "SANDBOX",
        "the sandbox could not be set up: bwrap: Can't mkdir /x: Permission denied",
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.7, "1 min"), (120, "2 min"), (250, "4 min 10 s")],
)
def test_durations_are_short_words(seconds: float, words: str) -> None:
    assert bash.duration(seconds) == words


def test_status_shows_one_line_of_the_command() -> None:
    assert Bash().describe({"command": "make test"}) == "bash: make test"
    assert Bash().describe({"command": "\ncd x\nmake"}) == "bash: cd x ..."


# -- what it runs with


def test_the_environment_has_the_session_s_values_and_no_provider_s_key() -> None:
    daemon = {"HOME": "/h", "LANG": "C", "PATH": "/d", "OPENAI_API_KEY": "k", "GIT_DIR": "x", "FOO": "x"}
    session = {"PATH": "/s", "VIRTUAL_ENV": "/v", "MY_TOKEN": "named", "FAST_API_KEY": "k", "GIT_DIR": "x"}
    env = bash.environment(session, bash.who_and_where(daemon), frozenset({"OPENAI_API_KEY", "FAST_API_KEY"}))
    assert env == {
        "HOME": "/h", "LANG": "C", "PATH": "/s", "VIRTUAL_ENV": "/v", "MY_TOKEN": "named",
        "TERM": "dumb", "DSHD_AUTOSTART": "0",
    }  # fmt: skip


class Spy:
    """Notes what a spawner is asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    async def run(self, argv: list[str], **options: Any) -> Completed:
        self.asked = {"argv": argv, **options}
        return done()


@pytest.mark.parametrize(("wanted", "given"), [({}, 120), ({"timeout": 5}, 5), ({"timeout": 9999}, 600)])
async def test_there_is_always_a_time_limit(ctx: ToolContext, wanted: dict[str, Any], given: float) -> None:
    spy = Spy()
    await Bash().run({"command": "true", **wanted}, attrs.evolve(ctx, spawner=spy, mode="full"))
    assert spy.asked["timeout"] == given


@pytest.fixture
async def full(ctx: ToolContext) -> AsyncIterator[ToolContext]:
    """A context without a sandbox, with a real spawner."""
    spawner = Spawner(launch())
    yield attrs.evolve(ctx, spawner=spawner, mode="full", env={"PATH": os.environ["PATH"]})
    await spawner.aclose()


async def sh(ctx: ToolContext, command: str, **more: Any) -> ToolOutput:
    with trio.fail_after(30):
        return await Bash().run({"command": command, **more}, ctx)


async def test_it_runs_in_the_session_s_directory_without_terminal_or_stdin(full: ToolContext) -> None:
    output = await sh(full, "pwd; echo $PWD; tty; cat; [[ $- == *i* ]] || echo not interactive")
    assert output.text.startswith(f"{full.dir}\n{full.dir}\nnot a tty\nnot interactive\n")


async def test_no_start_up_file_is_read(full: ToolContext) -> None:
    evil = full.dir / "evil.sh"
    evil.write_text("echo evil\n")
    env = {**full.env, "BASH_ENV": str(evil), "ENV": str(evil), "HOME": str(full.dir)}
    env["BASH_FUNC_ls%%"] = "() { echo evil; }"
    (full.dir / ".bashrc").write_text("echo evil\n")
    output = await sh(attrs.evolve(full, env=env), "ls")
    assert "evil\n" not in output.text.replace("evil.sh\n", "")


async def test_provider_keys_of_the_daemon_are_not_in_the_environment(
    full: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY", "SOME_SECRET"):
        monkeypatch.setenv(name, "sk-hidden")
    assert "sk-hidden" not in (await sh(full, "env")).text


async def test_each_call_is_a_fresh_shell(full: ToolContext) -> None:
    await sh(full, "cd /; X=1")
    assert (await sh(full, 'pwd; echo "[$X]"')).text.startswith(f"{full.dir}\n[]\n")


async def test_a_long_output_is_in_a_file_of_its_own_each_time(full: ToolContext) -> None:
    first = await sh(full, "seq 1 20000")
    second = await sh(full, "seq 1 20000")
    names = [re.findall(r"all of it: (\S+) \.\.\.", output.text) for output in (first, second)]
    assert names[0] != names[1]
    for (name,) in names:
        assert lines_of(name)[19999] == "20000"
    assert first.text.startswith("1\n2\n")
    assert "\n20000\n[exit 0" in first.text
    assert len(first.text) < 31_000


def lines_of(name: str) -> list[str]:
    return Path(name).read_text().split("\n")


async def test_both_parts_around_bad_bytes_and_much_output_are_there(full: ToolContext) -> None:
    output = await sh(full, "printf 'before\\xe4\\xe5after\\n'; head -c 200000 /dev/zero; echo; echo end")
    assert output.text.startswith("before\ufffd\ufffdafter\n")
    assert "\nend\n" in output.text
    assert not output.is_error


async def test_background_where_there_are_no_jobs_says_what_to_do_instead(full: ToolContext) -> None:
    output = await sh(full, "true", background=True)
    assert output.is_error
    assert output.text == "nothing can run in the background here; run it in the foreground."


async def test_a_command_with_a_nul_or_far_too_long_is_an_answer_not_a_crash(full: ToolContext) -> None:
    assert (await sh(full, "echo a\0b")).is_error
    long = await sh(full, "true " + "x" * 3_000_000)
    assert (long.error, long.text[-22:]) == ("SPAWN_FAILED", "Argument list too long")


async def test_a_directory_that_is_gone_is_an_answer(full: ToolContext) -> None:
    shutil.rmtree(full.dir)
    output = await sh(full, "true")
    assert output.text == f"the directory {full.dir} can't be entered: No such file or directory"


async def test_a_time_limit_given_by_the_model_holds(full: ToolContext) -> None:
    output = await sh(full, "echo begun; sleep 1000", timeout=0.2)
    assert (output.error, output.text) == ("TIMEOUT", "begun\n[time limit: stopped after 0.2 s]")


async def test_the_spawner_s_death_is_an_answer_too(full: ToolContext) -> None:
    output = await sh(full, "kill -KILL $PPID; sleep 1000")
    assert (output.error, output.text) == (
        "SPAWN_FAILED",
        "the call's supervisor was killed; what it ran was ended",
    )
    assert (await sh(full, "echo fine")).text.startswith("fine\n")


class Unkillable:
    """A spawner whose command has a process that can't be ended."""

    async def run(self, *_: object, **__: object) -> Completed:
        await trio.sleep_forever()
        raise AssertionError

    def survivors(self, label: str) -> list[int]:
        return [4711] if label == "s0000001" else []


async def test_a_cancelled_command_does_not_pass_for_ended_if_it_is_not(full: ToolContext) -> None:
    kept: list[ToolOutput] = []
    ctx = attrs.evolve(full, spawner=Unkillable(), keep=kept.append)
    with trio.move_on_after(0.05) as scope:
        await sh(ctx, "x")
    assert scope.cancelled_caught
    (output,) = kept
    assert output.is_error
    assert output.text == (
        "Told to stop, but not all of it has ended. These processes could not be ended: 4711."
    )
