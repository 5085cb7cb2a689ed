"""`dshctl attach` as a person uses it: a real terminal, real programs, a daemon that dies."""

from __future__ import annotations

import signal
import subprocess
import termios

import pytest

from tests.e2e.harness import TIMEOUT, Home, eventually, texts
from tests.e2e.model import Model, bash, script
from tests.e2e.terminal import Person, screen

RULE = '[[rules]]\naction = "ask"\ntool = "bash"\ncommand = "touch *"\n'


def test_a_line_is_a_followup_while_idle_and_a_steer_while_a_turn_runs(home: Home, model: Model) -> None:
    home.start()
    with Person(home, "attach") as you:
        before = termios.tcgetattr(you.fd)
        you.sees("new session work")
        you.sees("work> ")
        you.line("héllo 日本")
        you.sees("-- turn 1 --")
        you.sees("echo: héllo 日本")
        you.sees("-- completed")

        you.line(script(bash("true"), {"gate": "open", "text": "first\nsecond"}))
        you.sees("$ true")
        model.wait_requests(3)
        you.type("\x1b[200~not\nthis\x1b[201~")
        you.type("\r")
        you.sees("steer")
        you.sees("joins turn 2")
        you.line("//abort is a word")
        you.sees("joins turn 2")
        you.line("/followup then this")
        you.sees("in the queue; turn 2 runs")
        you.line("/queue")
        you.sees("/abort is a word")
        you.sees("then this")
        model.open("open")
        you.sees("  second")
        you.sees("you steered: not")
        you.sees("echo: then this")
        you.sees("-- completed")
        you.type("\x04")
        assert you.ends() == 0
        rows = screen(you.raw)
        assert rows.count("  first") == 1, "what streamed is not told again by its message"
        assert not [row for row in rows if row.endswith("...") or "work> " in row], "what changes is gone"
        after = termios.tcgetattr(you.fd)
        assert after[:4] == before[:4], "the terminal is as it was"
    said = [(e["data"]["verb"], *texts([e])) for e in home.said()]
    assert said[2:] == [("steer", "not\nthis"), ("steer", "/abort is a word"), ("followup", "then this")]


def test_what_is_typed_while_the_daemon_is_dead_is_said_once_and_nothing_is_shown_twice(
    home: Home, model: Model
) -> None:
    daemon = home.start()
    home.ok("new", "--name", "api")
    with Person(home, "attach", "-s", "api") as you:
        you.line("one")
        you.sees("echo: one")
        you.sees("-- completed")
        daemon.send_signal(signal.SIGSTOP)
        you.line("two")
        you.sees("not acknowledged yet")
        daemon.kill()
        daemon.wait(TIMEOUT)
        you.sees("it is looked for")
        you.line("three")
        you.line("/abort")
        you.sees("no daemon is there")
        you.sees("the daemon is back")
        you.sees("echo: two")
        you.sees("echo: three")
        you.sees("-- completed")
        home.ok("daemon", "stop")
        you.sees("(no daemon)> ")
        you.line("four")
        home.ok("daemon", "start")
        you.sees("echo: four")
        you.sees("-- completed")
        you.line("/quit")
        assert you.ends() == 0
        for word in ("one", "two", "three", "four"):
            assert screen(you.raw).count(f"  echo: {word}") == 1
    assert texts(home.said()) == ["one", "two", "three", "four"]


def test_leaving_with_something_unacknowledged_says_what_and_how_to_send_it(home: Home) -> None:
    daemon = home.start()
    home.ok("new", "--name", "api")
    with Person(home, "attach", "api") as you:
        you.sees("api> ")
        daemon.send_signal(signal.SIGSTOP)
        try:
            you.line("this")
            you.line("/followup it's that")
            you.type("\x04")
            you.sees("2 texts not acknowledged yet. Again within 3 s")
            you.type("\x04\x04")
            assert you.ends() == 1
        finally:
            daemon.send_signal(signal.SIGCONT)
        you.sees("dshctl rpc session.send")
        you.sees("dshctl followup -s api --key attach:")
        you.sees("""'it'"'"'s that'""")
    key = you.shown.split("--key ")[1].split()[0]
    home.ok("followup", "-s", "api", "--key", key, "--wait", "it's that")
    home.ok("followup", "-s", "api", "--key", key, "--wait", "it's that")
    _, again = you.shown.split("dshctl rpc session.send ")
    params = again.split("'")[1]
    home.ok("rpc", "session.send", params)
    home.ok("wait", "-s", "api")
    assert sorted(texts(home.said())) == ["it's that", "this"], "each once, whether it had arrived or not"


def test_ctrl_c_clears_the_line_and_twice_on_an_empty_one_aborts(home: Home, model: Model) -> None:
    home.start()
    with Person(home, "attach") as you:
        you.line(script(bash("sleep 60")))
        you.sees("$ sleep 60 ...")
        you.type("half a line\x03")
        you.type("\x03")
        you.sees("again within 3 s aborts turn 1")
        assert not home.log(type="abort/requested")
        you.type("\x03\x03")  # on a slow machine the 3 s are over, and it is the second of these
        you.sees("work: stopped turn 1")
        eventually(lambda: home.log(type="turn/end"))
        you.type("\x03")
        you.sees("nothing is running")
        you.process.send_signal(signal.SIGTERM)
        assert you.ends() == 143
        assert you.raw.rstrip().endswith("\x1b[?2004l")
        assert "-- aborted by you" in you.shown


def test_a_question_is_asked_in_place_and_what_was_being_typed_answers_nothing(
    home: Home, model: Model
) -> None:
    with (home.path / "config.toml").open("a") as config:
        config.write(RULE)
    home.start()
    with Person(home, "attach") as you:
        you.line(script(bash("touch one\x1b[2K"), bash("touch two"), bash("touch three")))
        you.sees("wants to run")
        you.sees("touch one^[[2K")
        you.sees("a1? ")
        you.line("yes please")
        you.sees("y  once")
        you.line("y")
        you.sees("a1: allowed; work goes on.")
        you.sees("a2? ")
        you.line("n not here")
        you.sees("a2: denied")
        you.sees("a3? ")
        you.line("")
        you.sees("/allow a3")
        you.line("/allow session")
        you.sees("a3: allowed, and the same again in work")
        you.sees("-- completed")
        you.type("\x04")
        assert you.ends() == 0
        assert "\x1b[2K" not in you.raw
    answers = [(e["data"]["answer"], e["data"]["scope"]) for e in home.log(type="approval/answered")]
    assert answers == [("allow", "once"), ("deny", "once"), ("allow", "session")]


def test_who_only_reads_changes_nothing(home: Home, model: Model) -> None:
    home.start()
    none = home.ctl("attach", "--read")
    assert (none.returncode, home.sessions()) == (4, [])
    home.ok("followup", "--wait", "hello")
    before = home.log()
    with Person(home, "attach", "--read", columns=60) as you:
        you.sees("echo: hello")
        you.line("say this")
        you.sees("nothing is sent from here")
        you.resize(40)
        you.type("\x15/queue\r")
        you.sees("idle, nothing queued")
        you.type("\x04")
        assert you.ends() == 0
    assert home.log() == before


def test_without_a_terminal_lines_go_in_and_text_comes_out(home: Home, model: Model) -> None:
    home.start()
    done = home.ctl("attach", "-s", "api", "--create", input="one\n/queue\ntwo")
    assert done.returncode == 0, done.stderr
    assert "followup  -> api, starts now (turn 1)." in done.stdout
    assert "\x1b" not in done.stdout
    eventually(lambda: texts(home.said()) == ["one", "two"])
    home.ok("wait", "-s", "api")
    lines = home.json("attach", "-s", "api", exit=2, input="/abrot\n/queue\n/why\na\x00b\n")
    assert {"event", "queue", "error", "receipt"} < {line["type"] for line in lines}
    assert [line["replaced"] for line in lines if line["type"] == "receipt"] == [1]
    eventually(lambda: texts(home.said())[-1] == "a\ufffdb")
    assert home.ctl("attach", "-s", "api", "--mode", "full", "--create").returncode == 5


def test_a_line_that_is_refused_is_out_of_the_way_and_can_be_called_back(home: Home) -> None:
    home.start()
    with Person(home, "attach", columns=20) as you:
        you.sees("work> ")
        you.line("/wke")
        you.sees("there is no command")
        you.line("/wake")
        you.sees("nothing is to be done")
        you.line("/abort it all, slowly")
        you.sees("takes nothing behind")
        you.type("\x10")
        you.sees("slowly")
        you.type("\x15\x04")
        assert you.ends() == 0
        rows = screen(you.raw)
        assert not [row for row in rows if row.startswith("work>")], (
            "it is one row, and taken away"
        )


@pytest.mark.parametrize("watch", [("log", "-f", "--all"), ("attach", "--read")])
def test_who_only_shows_ends_when_nobody_reads_any_more(home: Home, watch: tuple[str, ...]) -> None:
    home.start()
    home.ok("followup", "--wait", "one")
    shows = home.popen(*watch, "-s", "work", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert shows.stdout is not None
    assert shows.stdout.readline()
    shows.stdout.close()
    assert shows.wait(TIMEOUT) == 0, "though nothing more happens in the session"
