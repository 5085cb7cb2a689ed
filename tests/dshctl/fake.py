"""A daemon that says what a test tells it to: the protocol's other end, in a thread.

`Fake` answers `daemon.hello` by itself and everything else from ``answers``: {method: result, or a
function of the params that returns one, or an RPC error to raise as `Refuse`}. What it was asked is
in ``asked``, in order. ``during`` may send notifications before an answer, ``behind`` after it.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class Refuse(Exception):
    """An RPC error."""

    def __init__(self, code: str, message: str, **data: Any) -> None:
        super().__init__(message)
        self.error = {"code": -32000, "message": message, "data": {"code": code, **data}}


class Hang(Exception):
    """No answer, ever."""


class Drop(Exception):
    """The connection ends without an answer."""


class Peer:
    """One connection as the server sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.file = sock.makefile("rb")

    def send(self, value: Json) -> None:
        self.sock.sendall(json.dumps({"jsonrpc": "2.0", **value}, separators=(",", ":")).encode() + b"\n")

    def notify(self, method: str, params: Json) -> None:
        self.send({"method": method, "params": params})


class Fake:
    """``with Fake(path) as fake:`` listens at path until the block ends."""

    def __init__(self, path: Path, answers: Json | None = None, *, hello: Json | None = None) -> None:
        self.path = path
        self.answers: dict[str, Any] = answers or {}
        self.hello = {"protocol": 1, "version": _version(), "pid": 4121, **(hello or {})}
        self.during: dict[str, Callable[[Peer, Json], object]] = {}
        self.behind: dict[str, Callable[[Peer, Json], object]] = {}
        self.asked: list[tuple[str, Json]] = []
        self.connections = 0
        self._threads: list[threading.Thread] = []
        self._peers: list[socket.socket] = []

    def __enter__(self) -> Fake:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(128)
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._peers:
            with _quiet():
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for sock in self._peers:
            sock.close()

    def params(self, method: str) -> list[Json]:
        return [params for name, params in self.asked if name == method]

    def _start(self, run: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(sock)
            self._start(self._serve, Peer(sock))

    def _serve(self, peer: Peer) -> None:
        with _quiet(), peer.file:
            for line in peer.file:
                request = json.loads(line)
                self._start(self._answer, peer, request) if request["method"] == "session.wait" else (
                    self._answer(peer, request)
                )

    def _answer(self, peer: Peer, request: Json) -> None:
        method, params = request["method"], request.get("params") or {}
        self.asked.append((method, params))
        try:
            with _quiet():
                result = self._result(peer, method, params)
                peer.send({"id": request["id"], "result": result})
                if method in self.behind:
                    self.behind[method](peer, params)
        except Refuse as refuse:
            peer.send({"id": request["id"], "error": refuse.error})
        except Hang:
            return
        except Drop:
            peer.sock.shutdown(socket.SHUT_RDWR)

    def _result(self, peer: Peer, method: str, params: Json) -> Any:
        if method == "daemon.hello":
            return self.hello
        if method in self.during:
            self.during[method](peer, params)
        if method not in self.answers:
            raise Refuse("INTERNAL", f"this fake has no answer to {method}")
        answer = self.answers[method]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(params) if callable(answer) else answer


class _quiet:
    """Ends of connections are no failures of a fake."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return isinstance(error, OSError | ValueError) and not isinstance(error, json.JSONDecodeError)


def _version() -> str:
    from dshd import __version__

    return __version__


RECEIPT: Json = {
    "type": "receipt", "exit": 0, "message": "s4h8w2c1.17", "session": "s4h8w2c1", "name": "api",
    "dir": "/home/you/src/api", "verb": "steer", "queue": "next-step", "position": 1, "seq": 412,
    "state": "pending", "phase": "running", "turn": 12, "waits_for": "bash: make test", "since_at": None,
    "due_at": None,
    "expires_at": None, "redirected": False, "now": False, "duplicate": False, "retried": False,
    "spooled": False, "created": False, "reopened": False, "released": 0, "superseded": [], "replaced": 0,
    "parked": None, "warning": None,
    "outcome": None, "ended_at": None,
}  # fmt: skip
RESULT: Json = {
    "type": "result", "exit": 0, "message": "s4h8w2c1.17", "session": "s4h8w2c1", "name": "api", "turn": 12,
    "newest": True, "outcome": "completed",
    "text": "All 214 tests pass.", "model": "fast", "rehearsal": False, "steps": 4,
    "tools": 3, "started_at": 0, "ended_at": 0, "waited_ms": 0,
    "usage": {"input": 0, "cached": 0, "output": 0, "reasoning": 0, "cost": None, "currency": None},
    "error": None, "retry_at": None, "approvals": [], "unknown": [], "by": None,
}  # fmt: skip
SESSION: Json = {
    "type": "session", "id": "s4h8w2c1", "name": "api", "dir": "/home/you/src/api",
    "title": "Fix the flaky login tests", "state": "running", "phase": "running", "turn": 12, "step": 4,
    "turn_started_at": 0, "doing": "bash: make test", "since_at": 0, "waits": None, "until_at": None,
    "pending": {"next-turn": 2, "next-step": 1, "held": 1},
    "parked": None, "jobs": [], "needs": [], "context": None, "model": "fast", "mode": "workspace",
    "patience": None, "net": False, "ask": "wait",
    "implicit": True, "run": False, "parent": None, "agent": None, "agents": 0, "key": None, "cost": None,
    "tokens": 118000, "bytes": 412690, "budgets": None, "schedules": None, "origins": None, "log": None,
    "created_at": 0, "active_at": 0,
}  # fmt: skip


def message(number: int = 17, **changes: Any) -> Json:
    return {
        "type": "message", "id": f"s4h8w2c1.{number}", "session": "s4h8w2c1", "name": "api", "verb": "steer",
        "queue": "next-step", "position": 1, "state": "pending", "outcome": None, "turn": None, "step": None,
        "text": "use the new fixture", "source": {"kind": "user", "tty": "pts/3"}, "key": None, "tag": None,
        "version": 1, "cut": False, "created_at": 0, "due_at": None, "expires_at": None, "attempts": [],
        "way": [{"state": "pending", "at": 0, "seq": 412, "by": "you (pts/3)",
                 "source": {"kind": "user", "tty": "pts/3"}}],
        **changes,
    }  # fmt: skip
