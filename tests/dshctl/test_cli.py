from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dshctl import cli, exits, keys
from dshctl.cli import COMMANDS, GROUPS, ROOT, USUAL
from dshctl.words import LATER, NEAR, SYNONYMS
from dshd import errors
from dshd.errors import Invalid
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, SESSION, Fake, Refuse

HEAVY = ("attrs", "attr", "cattrs", "httpx", "trio", "orjson", "jsonschema", "subprocess", "tomllib")


def test_alone_it_prints_the_ten_usual_commands_with_an_example_each_and_exits_2(dshctl: Dshctl) -> None:
    ran = dshctl()
    assert ran.code == 2
    for entry in USUAL.values():
        assert entry.example in ran.out
    assert len(USUAL) == 10
    assert max(map(len, ran.out.splitlines())) < 80


def test_help_exits_0_and_names_every_command(dshctl: Dshctl) -> None:
    ran = dshctl.process("--help")
    assert ran.code == 0
    for name, entry in COMMANDS.items():
        assert name in ran.out
        assert entry.does in ran.out
    assert "dshctl run 'what is in this directory?'" in ran.out
    lines = ran.out.splitlines()
    for first, heading in GROUPS.items():
        assert lines[lines.index(heading) + 1].split()[0] == first


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_helps(name: str, dshctl: Dshctl) -> None:
    ran = dshctl.process(name, "--help")
    assert ran.code == 0, ran.err
    assert "Usage: dshctl.cli" in ran.out or f"dshctl {name}" in ran.out
    assert all(len(line) < 81 for line in ran.out.splitlines())


def test_alone_under_json_it_is_an_error_object(dshctl: Dshctl) -> None:
    ran = dshctl("--json")
    assert (ran.code, ran.last["type"], ran.last["exit"]) == (2, "error", 2)


@pytest.mark.parametrize("word", [*NEAR, *SYNONYMS, *LATER, "statu", "folowup", "xyzzy"])
def test_a_near_word_is_an_error_of_usage_that_names_a_command(word: str, dshctl: Dshctl) -> None:
    ran = dshctl(word, "something")
    assert ran.code == 2
    assert ran.out == ""
    assert "dshctl" in ran.err.partition("dshctl: ")[2]
    assert all(len(line) < 80 for line in ran.err.splitlines())


@pytest.mark.parametrize("word", [*SYNONYMS.values()])
def test_what_a_near_word_names_exists(word: str) -> None:
    assert word.split()[0] in COMMANDS or word == "--version"


def test_no_near_word_is_a_command() -> None:
    both = {"prompt"}  # `prompt show` is one; with a text it is somebody's word for a send
    assert (set(NEAR) | set(SYNONYMS) | LATER) & set(COMMANDS) == both


def test_stop_is_two_things(dshctl: Dshctl) -> None:
    assert dshctl("stop").err == (
        'dshctl: "stop" is two things. dshctl abort stops the turn that is running;\n'
        "    dshctl daemon stop ends the daemon.\n"
    )


def test_stop_says_how_many_turns_would_end_with_the_daemon(dshctl: Dshctl, fake: Fake) -> None:
    turns = [{**SESSION, "phase": phase} for phase in ("running", "running", "idle")]
    fake.answers["daemon.status"] = {"sessions": turns}
    ran = dshctl("stop")
    assert (ran.code, ran.err.splitlines()[1:]) == (
        2, ["    dshctl daemon stop ends the daemon and with it 2 running turns."],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("followup", "--frist", "x"), "dshctl followup has no option --frist; did you mean --first?"),
        (("queue", "delete", "x"), '"delete" is not a command of dshctl queue'),
        (("daemon",), "daemon needs a word more: start, stop, restart, reload, status"),
        (("daemon", "kill"), '"kill" is not a command of dshctl daemon'),
        (("log", "--turn", "x"), "--turn: 'x' is not N or N-M"),
        (("log", "--turn", "3", "-n", "2"), "-n and --turn can't both choose"),
        (("log", "--since", "lately"), "is not a time; write 2h, 18:00, yesterday 06:00, 2026-12-01 06:00"),
        (("log", "--since", "tomorrow 06:00"), '"tomorrow 06:00" is still to come'),
        (("run", "--spool", "x"), "--spool is for sends to a session, and dshctl run makes a new one"),
        (("new", "--wait"), "--wait is for sends to a session, and dshctl new makes a new one"),
        (("undo",), "dshctl queue undo"),
        (("run",), "dshctl run 'TEXT' or: ... | dshctl run"),
        (("steer",), "dshctl steer 'TEXT' or: ... | dshctl steer"),
        (("queue", "edit", "s4h8w2c1.17"), "dshctl queue edit MESSAGE 'TEXT'"),
        (("ping", "--timeout", "soon"), '"soon" is not a duration'),
        (("abort", "--keep", "--clear"), "exclude each other"),
        (("set", "net"), "nothing to set"),
        (("set", "net=maybe"), "net is on or off"),
        (("set", "colour=red"), 'no setting "colour"'),
        (("new", "--name", "no spaces"), "is no name for a session"),
        (("rename", "s4h8w2c1"), "it means something else"),
        (("message", "17"), "is not the id of a message"),
        (("rm", "api"), "nobody can be asked here"),
        (("followup", "--key", "{dat}", "x"), "{dat} is none of"),
        (("fsck", "--repair"), "--repair takes a session"),
        (("wake", "--all", "-s", "api"), "--all goes with neither"),
        (("followup",), "no text"),
    ],
)  # fmt: skip
def test_mistakes_are_said_in_our_words_and_exit_2(
    args: tuple[str, ...], sentence: str, dshctl: Dshctl
) -> None:
    ran = dshctl(*args, stdin=b"")
    assert ran.code == 2, ran
    assert sentence in " ".join(ran.err.split())
    assert ran.err.startswith("dshctl: ")
    assert "Usage:" not in ran.err
    told = dshctl(*args, "--json", stdin=b"")
    assert (told.last["code"], told.last["exit"]) == ("INVALID", 2)


def test_version_says_the_protocol_in_json(dshctl: Dshctl) -> None:
    ran = dshctl("--version", "--json")
    assert ran.last["protocol"] == 1
    assert ran.last["exit"] == 0
    assert dshctl("--version").out.startswith("dshctl ")


def test_options_after_two_dashes_are_text(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    ran = dshctl("followup", "--", "--json")
    assert ran.out == "s4h8w2c1.17\n"
    assert fake.params("session.send")[0]["text"] == "--json"


@pytest.mark.parametrize("args", [["--help"], ["ping"], ["--json", "ping"], []])
def test_what_must_be_fast_imports_nothing_heavy(args: list[str], dshctl: Dshctl, fake: Fake) -> None:
    script = (
        "import sys, os; from dshctl import cli; code = cli.run(sys.argv[1:]);"
        "print(*[m for m in sys.modules], sep='\\n', file=sys.stderr); os._exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", _with_path(script), *args], env=dshctl.environ,
        capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=30, check=False,
    )  # fmt: skip
    loaded = set(done.stderr.split())
    assert "dshctl.cli" in loaded
    assert not loaded & set(HEAVY)
    commands = {name for name in loaded if name.startswith("dshctl.commands.")}
    assert commands == ({"dshctl.commands.ping"} if "ping" in args else set())


def _with_path(script: str) -> str:
    """Without `site` (an editable install's hooks import much); where packages are is passed by hand."""
    return f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}; {script}"


def test_every_send_imports_nothing_heavy(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dshctl.cli", "followup", "x"], env=dshctl.environ,
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30, check=False,
    )  # fmt: skip
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert not loaded & set(HEAVY)


# Exit codes.


def test_every_error_has_the_code_of_its_class() -> None:
    kinds: list[type[errors.DshError]] = [errors.DshError, *_subclasses(errors.DshError)]
    for kind in kinds:
        if kind.__module__ == "dshd.errors":
            assert exits.of_code(kind.code) == kind.exit_status, kind


def _subclasses(kind: type[errors.DshError]) -> list[type[errors.DshError]]:
    below: list[type[errors.DshError]] = type.__subclasses__(kind)
    return [found for one in below for found in (one, *_subclasses(one))]


@pytest.mark.parametrize(
    ("outcome", "error", "code"),
    [
        ("completed", None, 0), ("error", None, 10), ("error", "AUTH", 10), ("error", "RATE_LIMIT", 75),
        ("error", "QUOTA", 75), ("error", "STORAGE", 75), ("blocked", None, 11), ("rejected", None, 11),
        ("aborted", None, 12), ("max-tokens", None, 13), ("interrupted", None, 14), ("budget", None, 15),
        ("removed", None, 17), ("cleared", None, 17), ("expired", None, 17), ("superseded", None, 17),
        ("something-new", None, 1), (None, None, 1),
    ],
)  # fmt: skip
def test_outcomes_have_their_codes(outcome: str | None, error: str | None, code: int) -> None:
    result = {"outcome": outcome, "error": {"code": error} if error else None}
    assert exits.of_result(result) == code
    assert code in exits.MEANING


def test_the_daemon_and_dshctl_agree_on_codes_of_outcomes() -> None:
    from dshd.session.shown import ends

    assert {word: exits.OF_OUTCOME[word] for word in ends.OUTCOME_EXITS} == ends.OUTCOME_EXITS
    assert exits.TRY_LATER == ends.TRY_LATER


def test_of_several_the_first_that_is_not_0() -> None:
    assert exits.worst([0, 12, 10]) == 12
    assert exits.worst([]) == 0


# Keys.


def test_keys_are_filled_in_by_local_time_and_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_796_040_000.0
    filled = keys.expand("a:{date}:{hour}:{minute}:{boot}", now, boot=lambda: "B")
    import time

    local = time.localtime(now)
    assert filled == ":".join(
        ["a", time.strftime("%Y-%m-%d", local), time.strftime("%Y-%m-%dT%H", local),
         time.strftime("%Y-%m-%dT%H:%M", local), "B"]
    )  # fmt: skip
    assert keys.expand("{boot}") == keys.boot_id()
    assert keys.expand("plain") == "plain"


@pytest.mark.parametrize("key", ["", "  ", "{day}", "{}", "{date }"])
def test_a_key_that_is_a_mistake_is_refused(key: str) -> None:
    with pytest.raises(Invalid):
        keys.expand(key)


def test_global_options_are_everywhere() -> None:
    wanted = {"--json", "--socket", "--timeout", "--no-autostart", "--quiet", "--verbose"}
    with click.Context(ROOT) as ctx:
        for name in COMMANDS:
            command = ROOT.get_command(ctx, name)
            assert command is not None
            every = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
            for one in every:
                assert wanted <= {opt for param in one.params for opt in param.opts}, one.name


def test_a_program_reads_json_with_debugging_on(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.send"] = RECEIPT
    ran = dshctl.process("-v", "--json", "followup", "x", env={**dshctl.environ, "PYTHONVERBOSE": ""})
    assert [json.loads(line)["type"] for line in ran.out.splitlines()] == ["receipt"]


def test_what_the_system_refuses_is_said_with_its_place(dshctl: Dshctl, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file where a directory should be")
    ran = dshctl("key", "deepseek", stdin=b"k\n")
    assert ran.code == 1
    assert " ".join(ran.err.split()) == f"dshctl: {tmp_path}/keys: file exists."


def test_a_mistake_of_ours_is_one_sentence_and_with_v_a_traceback(
    dshctl: Dshctl, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError("oops")

    codes: list[int] = []
    monkeypatch.setattr(cli, "run", broken)
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for args in (["ping"], ["ping", "-v"]):
        monkeypatch.setattr(sys, "argv", ["dshctl", *args])
        with monkeypatch.context() as streams:
            streams.setattr(sys, "stdout", sys.stdout)
            streams.setattr(sys, "stderr", sys.stderr)
            cli.main()
    said = capfd.readouterr().err
    assert codes == [1, 1]
    assert said.count("dshctl: a mistake in dshctl: ZeroDivisionError: oops.") == 2
    assert said.count("Traceback") == 1


CTRL_C = """
import runpy, sys
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Slow())
sys.argv = ["dshctl", "ping"]
runpy.run_module("dshctl", run_name="__main__")
"""


@pytest.mark.parametrize(
    "module", ["dshctl.cli", "click", "dshctl.output", "dshctl.commands.ping", "dshctl.client"]
)
def test_ctrl_c_while_it_imports_is_130_and_silent(dshctl: Dshctl, module: str) -> None:
    done = subprocess.run([sys.executable, "-c", CTRL_C.format(module=module)], env=dshctl.environ,
                          capture_output=True, timeout=30, check=False)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("expected an integer @ $.if_turn", "--if-turn: expected an integer"),
        ("expected an integer @ $.as", "--as: expected an integer"),
        ("expected mode, got 5 @ $.values.mode", "mode: expected mode, got 5"),
        ("expected a text block @ $.content[0]", "content[0]: expected a text block"),
        ("nothing to set", "nothing to set"),
    ],
)
def test_where_a_request_is_wrong_is_said_as_it_was_typed(
    dshctl: Dshctl, fake: Fake, told: str, said: str
) -> None:
    fake.answers["session.send"] = Refuse("INVALID", told)
    ran = dshctl("followup", "x")
    assert (ran.code, ran.err) == (2, f"dshctl: {said}.\n")


HUGE = "9" * 5000


@pytest.mark.parametrize(
    "args",
    [
        ("followup", "--at", "@99999999999999", "x"), ("followup", "--at", f"@{HUGE}", "x"),
        ("followup", "--at", f"{HUGE}-01-01", "x"), ("followup", "--in", HUGE, "x"),
        ("followup", "--expires", f"{HUGE}d", "x"), ("followup", "--if-turn", HUGE, "x"),
        ("followup", "--if-turn", "99999999999999999999", "x"), ("ping", "--timeout", f"1h{HUGE}m"),
        ("log", "--turn", HUGE), ("log", "--turn", f"1-{HUGE}"), ("log", "-n", HUGE), ("answer", "-n", HUGE),
        ("log", "--since", HUGE), ("abort", "--turn", HUGE), ("queue", "edit", "s.1", "--version", HUGE, "x"),
        ("set", f"patience={HUGE}"), ("new", "--patience", f"{HUGE}s"), ("fork", "--at", HUGE),
    ],
    ids=lambda args: " ".join(args)[:40],
)  # fmt: skip
def test_a_number_of_any_length_is_read_or_refused(dshctl: Dshctl, fake: Fake, args: tuple[str, ...]) -> None:
    ran = dshctl(*args)
    assert ran.code == 2, ran
    assert "mistake in dshctl" not in ran.err
    assert [method for method, _ in fake.asked if method != "daemon.hello"] == []


def test_the_entry_point_is_there() -> None:
    from dshctl.__main__ import main

    assert callable(main)
    assert callable(cli.main)
