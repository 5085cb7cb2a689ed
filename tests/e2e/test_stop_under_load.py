"""The daemon is told to stop, or killed, while many clients send as fast as they can."""

from __future__ import annotations

import contextlib
import json
import selectors
import threading
from typing import Any

import pytest

from tests.bench.senders import connect, request
from tests.e2e.harness import Home

CLIENTS, EACH = 16, 3  # connections, and requests under way on each


class Sender:
    """Keeps its requests under way until the daemon hangs up. ``told``: {text: message id}."""

    def __init__(self, home: Home, session: str, name: str) -> None:
        self.socket = connect(str(home.socket))
        self.told: dict[str, str] = {}
        self.asked = 0
        self._session, self._name, self._rest = session, name, b""
        for _ in range(EACH):
            self.ask()

    def text(self, number: int) -> str:
        return f"{self._name}.{number}"

    def ask(self) -> None:
        self.asked += 1
        how = {"session": self._session, "verb": "inject", "text": self.text(self.asked)}
        self.socket.sendall(request(self.asked, "session.send", **how))

    def read(self) -> bool:
        """Whether the daemon is still there."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for answer in map(json.loads, lines):
            self._take(answer)
            with contextlib.suppress(BrokenPipeError):  # it is gone; what it has said is still to be read
                self.ask()
        return bool(data)

    def _take(self, answer: dict[str, Any]) -> None:
        if "result" in answer:
            self.told[self.text(answer["id"])] = answer["result"]["message"]
        else:
            assert answer["error"]["data"]["outcome"] == "not-written"


def until_the_end(senders: list[Sender]) -> None:
    with selectors.DefaultSelector() as selector:
        for sender in senders:
            selector.register(sender.socket, selectors.EVENT_READ, sender)
        while selector.get_map():
            ready = selector.select(30)
            assert ready, "neither answered nor hung up on"
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fileobj)


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_who_was_answered_is_in_the_log_and_a_stop_answers_whatever_is_in_it(home: Home, how: str) -> None:
    daemon = home.start()
    session = home.ok("new", "--name", "busy")
    senders = [Sender(home, session, f"c{n}") for n in range(CLIENTS)]
    timer = threading.Timer(0.5, getattr(daemon, how))
    timer.start()
    until_the_end(senders)
    daemon.wait(30)
    told = {text: id for sender in senders for text, id in sender.told.items()}
    written = {
        message["content"][0]["text"]: message["id"]
        for event in home.log(session, "inbox/spliced")
        for op in event["data"]["ops"]
        for message in op["insert"]
    }
    assert len(told) > CLIENTS
    assert told.items() <= written.items()
    if how == "terminate":
        assert told == written
    for sender in senders:
        sender.socket.close()
