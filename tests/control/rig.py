"""The control room on a real registry and a memory disk, and a client of it on a real socket pair."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from dshd.control.calls import Room
from dshd.control.connection import Connection
from dshd.control.feed import Hub
from dshd.control.stream import Socket
from dshd.log.threads import Threads
from dshd.session.fold.who import Peer
from dshd.session.owner.session import Session
from dshd.session.registry.host import Host
from dshd.session.registry.registry import Registry
from tests.session.rig import World

Json = dict[str, Any]
PATIENCE = 10.0  # s, for what takes milliseconds


class Refused(Exception):
    """The answer was an error; ``code`` is its word, ``error`` all of it."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.error = error
        self.code: str = error["data"]["code"]


class Process:
    """The daemon's process, as far as requests see it."""

    def __init__(self) -> None:
        self.stopped = trio.Event()
        self.reloads = 0

    def hello(self) -> Json:
        return {"type": "hello", "protocol": 1, "version": "test", "pid": os.getpid()}

    def status(self) -> Json:
        return self.hello()

    async def reload(self) -> Json:
        self.reloads += 1
        return {"type": "reloaded", "exit": 0}

    def examined(self, *facts: object) -> list[Json]:
        return [{"type": "check", "check": "state", "level": "ok", "what": str(len(facts)), "fix": None}]

    def stop(self) -> None:
        self.stopped.set()


class Client:
    """A client; notifications that come before an answer are kept in ``events``."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = trio.socket.from_stdlib_socket(sock)
        self.events: list[Json] = []
        self._rest = b""
        self._number = 0

    async def send(self, data: bytes) -> None:
        with trio.fail_after(PATIENCE):
            while data:
                data = data[await self.sock.send(data) :]

    async def line(self) -> Json:
        """The next line. Raises EOFError at the end."""
        with trio.fail_after(PATIENCE):
            while b"\n" not in self._rest:
                piece = await self.sock.recv(1 << 16)
                if not piece:
                    raise EOFError
                self._rest += piece
        line, self._rest = self._rest.split(b"\n", 1)
        parsed: Json = json.loads(line)
        return parsed

    async def post(self, method: str, **params: Any) -> int:
        """Ask without waiting; the id of the answer."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        await self.send(json.dumps(request).encode() + b"\n")
        return self._number

    async def take(self, number: int) -> Any:
        while True:
            got = await self.line()
            if "method" in got:
                self.events.append(got)
            elif got["id"] == number:
                if "error" in got:
                    raise Refused(got["error"])
                return got["result"]

    async def call(self, method: str, **params: Any) -> Any:
        return await self.take(await self.post(method, **params))

    async def event(self) -> Json:
        """The next notification."""
        while not self.events:
            self.events.append(await self.line())
        return self.events.pop(0)

    async def seqs(self, count: int) -> list[int]:
        """The seqs of the next ``count`` events of logs."""
        return [(await self.event())["params"]["event"]["seq"] for _ in range(count)]

    def close(self) -> None:
        self.sock.close()


class Server(World):
    """``writes`` is where requests are carried through."""

    hub: Hub
    room: Room
    process: Process
    writes: trio.Nursery
    _tasks: trio.Nursery
    _clients: list[Client]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Server]:
        """The daemon's life, left by a hard stop."""
        self._clients = []
        try:
            async with self._living():
                yield self
        finally:
            for client in self._clients:
                client.close()

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[None]:
        self.store.prepare()
        self.process = Process()
        self.hub = Hub(self.disk, self.store.log_path, self._told)
        async with trio.open_nursery() as self._tasks, trio.open_nursery() as self.writes:
            await self._tasks.start(self.hub.run)
            self.registry = Registry(
                self.store,
                self.services(),
                Host(
                    start=self._tasks.start_soon, threads=Threads(4), on_lines=self.on_lines,
                    on_reset=self.on_reset, on_gone=self.hub.forget, boot="boot", version="test",
                ),
            )  # fmt: skip
            self.room = Room(self.registry, self.hub, self.process)
            await self.registry.start()
            yield
            self.writes.cancel_scope.cancel()
            self._tasks.cancel_scope.cancel()

    def _told(self, session: str) -> int | None:
        loaded = self.registry.loaded.get(session)
        return None if loaded is None or loaded.ledger is None else loaded.state.seq

    def on_lines(self, id: str, first: int, lines: list[bytes]) -> None:
        super().on_lines(id, first, lines)
        self.hub.publish(id, first, lines)

    def on_reset(self, id: str, to: int) -> None:
        self.resets.append((id, to))
        self.hub.reset(id, to)

    def connect(self, *, kind: str = "user", session: str | None = None, brief: bool = False) -> Client:
        """A client that has said nothing yet."""
        ours, theirs = socket.socketpair()
        peer = Peer(os.getuid(), os.getgid(), os.getpid(), kind=kind, session=session)
        connection = Connection(Socket(theirs), self.room, peer, self.writes, brief=brief)
        self._tasks.start_soon(connection.serve)
        ours.setblocking(False)
        self._clients.append(Client(ours))
        return self._clients[-1]

    async def client(self, *, mode: str = "write", **options: Any) -> Client:
        """A client that has said hello."""
        client = self.connect(**options)
        await client.call("daemon.hello", protocol=1, client="test", mode=mode)
        return client

    async def named(self, name: str, **params: Any) -> Session:
        return await self.session(name=name, **params)
