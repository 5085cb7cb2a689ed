from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dshctl import follow
from dshctl.follow import Place
from dshctl.sentences import which_model
from dshd import wire
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, RESULT, SESSION, Drop, Fake, Hang, Peer, Refuse

Json = dict[str, Any]
WAITED: Json = {"type": "waited", "results": [RESULT]}
FOLLOWING: Json = {"type": "following", "session": "s4h8w2c1", "head": 0}


def event(seq: int, type: str, **data: Any) -> Json:
    return {"seq": seq, "time": 0, "type": type, "data": data, "crc": f"{seq:08x}"}


def telling(*events: Json, done: Callable[[], None] = lambda: None) -> Callable[[Peer, Json], None]:
    """Tell these events when asked."""

    def tell(peer: Peer, _: Json) -> None:
        for one in events:
            peer.notify("log.event", {"session": "s4h8w2c1", "event": one})
        done()

    return tell


TURN = [
    event(413, "turn/start", turn=12),
    event(414, "user/message", id="s4h8w2c1.17", turn=12, step=1, verb="steer", content=[], source={}),
    event(415, "assistant/message", content=[{"type": "tool-call", "id": "c", "name": "bash",
                                              "arguments": '{"command":"make"}'}]),
    event(416, "tool/call", call="c", name="bash", arguments='{"command":"make"}'),
    event(417, "tool/result", call="c", content=[], is_error=False, summary="exit 0, 2 s"),
    event(418, "assistant/message", content=[{"type": "text", "text": "All 214 tests pass."}]),
    event(419, "turn/end", turn=12, reason="completed"),
]  # fmt: skip


def test_wait_prints_the_answer_alone(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": WAITED}
    assert dshctl("followup", "--wait", "x") == (0, "All 214 tests pass.\n", "")
    assert fake.params("session.wait")[0]["messages"] == ["s4h8w2c1.17"]
    assert not fake.params("log.follow")


def test_follow_shows_what_happens_on_stderr(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": WAITED, "log.follow": FOLLOWING}
    told = threading.Event()
    fake.during["log.follow"] = telling(*TURN, done=told.set)
    fake.during["session.wait"] = lambda *_: told.wait(5)
    ran = dshctl("steer", "--follow", "x")
    assert ran.out == "All 214 tests pass.\n"
    assert [line.split() for line in ran.err.splitlines()] == [["$", "make", "exit", "0,", "2", "s"]]
    assert fake.params("log.follow")[0]["after"] == {"seq": 412}


def test_once_the_turns_end_was_shown_nothing_is_waited_for(
    dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "BEHIND_S", 30.0)
    fake.answers |= {"session.send": RECEIPT, "session.wait": WAITED, "log.follow": FOLLOWING}
    told = threading.Event()
    fake.during["log.follow"] = telling(*TURN, done=told.set)
    fake.during["session.wait"] = lambda *_: told.wait(5)
    began = time.monotonic()
    assert "make" in dshctl("steer", "--follow", "x").err
    assert time.monotonic() - began < 15


def test_what_comes_behind_the_answer_is_shown(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": WAITED, "log.follow": FOLLOWING}
    fake.behind["session.wait"] = telling(*TURN)
    assert "make" in dshctl("steer", "--follow", "x").err


def test_what_other_turns_do_is_not_shown(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": WAITED, "log.follow": FOLLOWING}
    others = [{**one, "data": {**one["data"], "id": "s4h8w2c1.9"}} for one in TURN]
    fake.during["log.follow"] = telling(*others)
    fake.during["session.wait"] = lambda *_: time.sleep(0.1)
    assert dshctl("steer", "--follow", "x").err == ""


def test_run_gives_the_answer_alone_on_stdout_and_says_which_model_and_how_to_go_on(
    dshctl: Dshctl, fake: Fake
) -> None:
    receipt = {**RECEIPT, "seq": 1, "created": True, "name": "s4h8w2c1"}
    fake.answers |= {
        "session.create": {"type": "created", "exit": 0, "session": SESSION, "receipt": receipt},
        "session.wait": WAITED, "log.follow": FOLLOWING,
    }  # fmt: skip
    header = event(0, "session/header", model="fast", model_why="config")
    told = threading.Event()
    fake.during["log.follow"] = telling(header, *TURN, done=told.set)
    fake.during["session.wait"] = lambda *_: told.wait(5)
    ran = dshctl("run", "x")
    assert ran.out == "All 214 tests pass.\n"
    lines = ran.err.splitlines()
    assert lines[:2] == ["dshctl: new session s4h8w2c1.", "dshctl: model fast (config)."]
    assert lines[-1] == "dshctl: session s4h8w2c1. Go on: dshctl followup -s s4h8w2c1 'TEXT'"
    assert dshctl("run", "-q", "x").err == ""
    assert [value["type"] for value in dshctl("run", "--json", "x").objects] == ["receipt", "result"]
    rehearsal = {**SESSION, "model": "rehearsal"}
    fake.answers["session.create"] = {"type": "created", "exit": 0, "session": rehearsal, "receipt": receipt}
    assert dshctl("run", "x").err.endswith("dshctl followup -s s4h8w2c1 'run: make test'\n")


def test_run_rm_deletes_after_success_only(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {
        "session.create": {"session": SESSION, "receipt": RECEIPT}, "log.follow": FOLLOWING,
        "session.delete": {"type": "removed", "session": "s4h8w2c1", "name": "api"},
        "session.wait": [WAITED, {"results": [{**RESULT, "exit": 10, "outcome": "error"}]}],
    }  # fmt: skip
    assert dshctl("run", "--rm", "x").code == 0
    assert len(fake.params("session.delete")) == 1
    assert dshctl("run", "--rm", "x").code == 10
    assert len(fake.params("session.delete")) == 1


def test_a_run_without_a_model_is_9_and_runs_nothing(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.create"] = Refuse(
        "NOT_CONFIGURED", "no model is set up, and this is not a terminal, so nothing was run.",
        hint="dshctl config check        or, to try without a model: --model rehearsal",
    )  # fmt: skip
    ran = dshctl("run", "x")
    assert (ran.code, ran.out) == (9, "")
    assert "dshctl config check" in ran.err
    assert fake.params("session.create")[0].get("terminal", False) is False


@pytest.mark.parametrize(
    ("result", "code", "words"),
    [
        ({"exit": 18, "outcome": None, "turn": None, "text": None}, 18, "parked, or kept for a person"),
        ({"exit": 16, "outcome": None, "approvals": [{"id": "a3"}]}, 16, "dshctl allow a3"),
        ({"exit": 7, "outcome": None}, 7, "damaged or faulted"),
        ({"exit": 12, "outcome": "aborted"}, 12, "turn 12 was aborted"),
        ({"exit": 17, "outcome": "cleared", "turn": None}, 17, "was cleared from the queue"),
        ({"exit": 0, "unknown": [{"tool": "bash", "what": "push"}]}, 0, "this was done: bash: push"),
    ],
)  # fmt: skip
def test_ends_that_are_not_well_are_said_even_quietly(
    dshctl: Dshctl, fake: Fake, result: Json, code: int, words: str
) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": {"results": [{**RESULT, **result}]}}
    ran = dshctl("followup", "-q", "--wait", "x")
    assert ran.code == code
    assert words in " ".join(ran.err.split())


def test_several_messages_exit_with_the_first_that_is_not_0(dshctl: Dshctl, fake: Fake) -> None:
    results = [
        RESULT,
        {**RESULT, "exit": 12, "outcome": "aborted"},
        {**RESULT, "exit": 10, "outcome": "error"},
    ]
    fake.answers["session.wait"] = {"results": results}
    ran = dshctl("wait", "s4h8w2c1.1", "s4h8w2c1.2", "s4h8w2c1.3", "--json")
    assert ran.code == 12
    assert [value["exit"] for value in ran.objects] == [0, 12, 12]


# Through a restart.


def test_a_wait_is_asked_again_after_the_connection_was_lost(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": [Drop(), WAITED]}
    assert dshctl("followup", "--wait", "x").out == "All 214 tests pass.\n"
    assert fake.connections == 2


def test_a_daemon_that_is_stopping_is_waited_for(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": [Refuse("UNAVAILABLE", "stopping"), WAITED]}
    assert dshctl("followup", "--wait", "x").code == 0


def test_a_follower_goes_on_behind_the_last_line_it_saw(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["log.follow"] = [Drop(), FOLLOWING]
    rounds = [telling(event(0, "a"), event(1, "b")), telling(event(1, "b"), event(2, "c"), done=_end(fake))]
    fake.during["log.follow"] = lambda peer, params: rounds.pop(0)(peer, params)
    ran = dshctl("log", "-f", "-o", "json", "--all", "--timeout", "2")
    assert [line.split(",")[0] for line in ran.out.splitlines()] == ['{"seq":0', '{"seq":1', '{"seq":2']
    first, second = fake.params("log.follow")
    assert "after" not in first
    assert second["after"] == {"seq": 1, "crc": "00000001"}


def test_the_session_of_the_directory_is_followed_by_its_id_from_then_on(
    dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dshctl.home)
    fake.answers["log.follow"] = [FOLLOWING, FOLLOWING]
    rounds: list[Any] = [lambda peer, _: peer.notify("log.event", {"session": "s", "event": event(0, "a")})]

    def tell(peer: Peer, params: Json) -> None:
        if rounds:
            rounds.pop()(peer, params)
            threading.Timer(0.3, peer.sock.shutdown, [socket.SHUT_RDWR]).start()

    fake.during["log.follow"] = tell
    assert dshctl("log", "-f", "--timeout", "1").code == 124
    first, second = fake.params("log.follow")
    assert (first.get("session"), first["cwd"]) == (None, str(dshctl.home))
    assert (second["session"], second.get("cwd")) == ("s4h8w2c1", None)


def _end(fake: Fake) -> Callable[[], None]:
    return lambda: None


def test_what_was_withdrawn_is_gone_back_to(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["log.follow"] = [Refuse("CONFLICT", "not there any more", reset_to=0), FOLLOWING]
    first = telling(event(0, "a"), event(1, "b"))
    again = telling(event(1, "other"), event(2, "c"))
    rounds = [first, again]
    fake.during["log.follow"] = lambda peer, params: rounds.pop(0)(peer, params)
    ran = dshctl("log", "-f", "-o", "json", "--all", "--timeout", "1")
    assert ran.code == 124
    assert [line.split('"type":')[1].split(",")[0] for line in ran.out.splitlines()] == [
        '"a"', '"b"', '"other"', '"c"',
    ]  # fmt: skip
    assert fake.params("log.follow")[1]["after"] == {"seq": 0, "crc": "00000000"}


def test_a_live_reset_lets_the_numbers_come_again(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["log.follow"] = FOLLOWING

    def tell(peer: Peer, params: Json) -> None:
        telling(event(0, "a"), event(1, "b"))(peer, params)
        peer.notify("log.reset", {"session": "s4h8w2c1", "to": 0})
        telling(event(1, "c"))(peer, params)

    fake.during["log.follow"] = tell
    ran = dshctl("log", "-f", "--json", "--all", "--timeout", "1")
    kinds = [value["event"]["type"] for value in ran.objects if value["type"] == "event"]
    assert kinds == ["a", "b", "c"]
    assert ran.last["exit"] == 124


def test_a_deleted_session_ends_its_followers(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["log.follow"] = FOLLOWING
    fake.during["log.follow"] = lambda peer, _: peer.notify(
        "log.end", {"session": "s4h8w2c1", "reason": "deleted"}
    )
    ran = dshctl("log", "-f")
    assert ran.code == 4
    assert "was deleted" in ran.err


def test_a_daemon_that_was_stopped_is_waited_for_and_not_started(
    dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dshctl import autostart

    def never(*_: Any) -> Any:
        raise AssertionError("it was stopped on purpose")

    monkeypatch.setattr(autostart, "start", never)
    monkeypatch.setattr(follow, "RETURN_S", 0.5)

    def stop(peer: Peer, _: Json) -> None:
        dshctl.socket.unlink()
        raise Drop

    fake.answers |= {"session.send": RECEIPT, "session.wait": Hang()}
    fake.during["session.wait"] = stop
    ran = dshctl("followup", "--wait", "x", DSHD_AUTOSTART="1")
    assert ran.code == 3
    assert "the work is kept" in ran.err


def test_a_daemon_that_died_is_started_again(
    dshctl: Dshctl, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dshctl import autostart

    monkeypatch.setattr(follow, "DIED_S", 0.1)
    started: list[Any] = []

    def start(client: Any) -> Any:
        started.append(client)
        os.rename(dshctl.home / "run" / "aside", dshctl.socket)
        return client.try_connect()

    monkeypatch.setattr(autostart, "start", start)

    def die(peer: Peer, _: Json) -> None:
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(str(dshctl.home / "run" / "dead"))
        dead.close()
        os.rename(dshctl.socket, dshctl.home / "run" / "aside")
        os.rename(dshctl.home / "run" / "dead", dshctl.socket)
        (dshctl.state / "lock").unlink()  # the fixture holds it, and can't die
        del fake.during["session.wait"]
        raise Drop

    fake.answers |= {"session.send": RECEIPT, "session.wait": WAITED}
    fake.during["session.wait"] = die
    assert dshctl("followup", "--wait", "x", DSHD_AUTOSTART="1").code == 0
    assert len(started) == 1


def test_a_timeout_says_that_the_work_goes_on(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": Hang()}
    ran = dshctl("followup", "--wait", "--timeout", "0.3", "x")
    assert ran.code == 124
    assert "it goes on" in ran.err
    assert "dshctl attach -s api" in ran.err
    tied = dshctl("followup", "--wait", "--tied", "--timeout", "0.3", "x")
    assert "it is aborted" in tied.err
    assert fake.params("session.send")[-1]["tied"] is True


# The place in a log.


def test_a_place_remembers_how_to_go_back() -> None:
    place = Place()
    assert place.position is None
    assert all(place.saw(event(seq, "x")) for seq in range(5))
    assert not place.saw(event(3, "x"))
    place.back_to(1)
    assert place.position == wire.Position(seq=1, crc="00000001")
    assert place.saw(event(2, "x"))
    place.back_to(-1)
    assert place.seq is None
    for seq in range(10_000):
        place.saw(event(seq, "x"))
    assert place.seq == 9_999


def test_which_model_and_why() -> None:
    assert which_model({"model": "fast", "model_why": "config"}) == "model fast (config)."
    sentence = "no model is set up: the rehearsal model answers. It is not an AI."
    assert which_model({"model": "rehearsal", "model_why": sentence}) == sentence
    asked_for = {"model": "rehearsal", "model_why": "--model", "adapter": "rehearsal"}
    assert which_model(asked_for) == "model rehearsal (--model). It is not an AI."


# At a terminal.


class Terminal:
    """dshctl on a pseudo-terminal."""

    def __init__(self, dshctl: Dshctl, *args: str, **env: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, "-m", "dshctl.cli", *args], {**dshctl.environ, **env})
        self.text = ""

    def until(self, words: str, timeout: float = 20) -> None:
        end = time.monotonic() + timeout
        while words not in self.text:
            assert time.monotonic() < end, self.text
            if select.select([self.fd], [], [], 0.1)[0]:
                self.text += self._read()

    def _read(self) -> str:
        try:
            return os.read(self.fd, 65536).decode()
        except OSError:
            return ""

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def ended(self, timeout: float = 30) -> int:
        end = time.monotonic() + timeout
        while select.select([self.fd], [], [], max(0.0, end - time.monotonic()))[0]:
            piece = self._read()
            if not piece:
                break
            self.text += piece
        else:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def _waits(fake: Fake) -> None:
    """Until the client waits."""
    end = time.monotonic() + 10
    while not fake.params("session.wait"):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_ctrl_c_says_that_it_goes_on_and_a_second_one_aborts(dshctl: Dshctl, fake: Fake) -> None:
    aborted = {"session": "s4h8w2c1", "name": "api", "turn": 12, "doing": None, "started_at": None,
               "ended_at": None, "cleared": [], "parked": None}  # fmt: skip
    fake.answers |= {
        "session.send": RECEIPT, "session.abort": aborted,
        "session.wait": [Hang(), {"results": [{**RESULT, "exit": 12, "outcome": "aborted", "text": None}]}],
    }  # fmt: skip
    terminal = Terminal(dshctl, "followup", "--wait", "x")
    _waits(fake)
    terminal.type("\x03")
    terminal.until("api goes on. Ctrl-C again within 3 s aborts it.")
    terminal.type("\x03")
    assert terminal.ended() == 12
    assert "api: stopped turn 12." in terminal.text
    assert len(fake.params("session.abort")) == 1


def test_one_ctrl_c_leaves_the_work_alone(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": Hang()}
    terminal = Terminal(dshctl, "followup", "--wait", "x")
    _waits(fake)
    terminal.type("\x03")
    assert terminal.ended() == 130
    assert "To see it: dshctl attach -s api" in terminal.text
    assert not fake.params("session.abort")


@pytest.mark.parametrize("args", [("-s", "api"), ("s4h8w2c1.17",)])
def test_who_only_watches_stops_watching_at_the_first_ctrl_c_and_aborts_nothing(
    dshctl: Dshctl, fake: Fake, args: tuple[str, ...]
) -> None:
    fake.answers["session.wait"] = Hang()
    terminal = Terminal(dshctl, "wait", *args)
    _waits(fake)
    began = time.monotonic()
    terminal.type("\x03")
    assert terminal.ended() == 130
    assert time.monotonic() - began < 10
    assert "aborts" not in terminal.text
    assert not fake.params("session.abort")


def test_ctrl_c_says_that_tied_work_is_aborted(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": Hang()}
    terminal = Terminal(dshctl, "followup", "--wait", "--tied", "x")
    _waits(fake)
    terminal.type("\x03")
    assert terminal.ended() == 130
    assert "api is aborted, for it was --tied to this command." in terminal.text


@pytest.mark.parametrize(("sig", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_away_from_a_terminal_a_signal_ends_the_client_at_once(
    dshctl: Dshctl, fake: Fake, sig: int, code: int
) -> None:
    fake.answers |= {"session.send": RECEIPT, "session.wait": Hang()}
    client = subprocess.Popen(
        [sys.executable, "-m", "dshctl.cli", "--json", "followup", "--wait", "x"], env=dshctl.environ,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    _waits(fake)
    client.send_signal(sig)
    out, _ = client.communicate(timeout=20)
    assert client.returncode == code
    assert out.splitlines()[-1] == b'{"type":"end","exit":%d}' % code


def test_a_terminal_says_where_a_message_comes_from_and_that_a_person_is_there(
    dshctl: Dshctl, fake: Fake
) -> None:
    fake.answers["session.send"] = RECEIPT
    terminal = Terminal(dshctl, "followup", "x")
    assert terminal.ended() == 0
    assert "followup  -> " not in terminal.text  # the receipt says it was a steer
    assert "steer     -> api, joins turn 12" in terminal.text
    assert fake.params("daemon.hello")[0]["tty"].startswith("pts/")
    assert fake.params("session.send")[0]["create"]["terminal"] is True


def test_a_key_is_typed_unseen(dshctl: Dshctl) -> None:
    terminal = Terminal(dshctl, "key", "deepseek")
    terminal.until("Key for deepseek (it is not shown): ")
    terminal.type("sk-secret\n")
    assert terminal.ended() == 0
    assert "sk-secret" not in terminal.text
    assert (dshctl.home / "keys" / "deepseek").read_text() == "sk-secret\n"


def test_the_lock_of_the_fixture_is_held(dshctl: Dshctl, fake: Fake) -> None:
    with Path(dshctl.state, "lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
