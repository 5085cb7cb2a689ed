"""A server that is a command: started through the spawner, spoken to over two named pipes.

The spawner gives a command no input that comes later, so the command opens the pipes itself, before a sandbox
closes around it. Each message is a line, and a line has a limit. stderr is kept at both ends, for who asks
why it ended.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from dshd.spawn.client import Completed, Spawner, SpawnFailed

LONGEST = 16 * 1024 * 1024  # bytes of a message
SAID = 2_000  # bytes of stderr, at each end
OPENING = 'exec "$@" <"$0.in" >"$0.out"'


@attrs.frozen(slots=True, kw_only=True)
class Command:
    """``argv`` with the sandbox around it; ``pipes``: a path that is free, as it is outside."""

    argv: Sequence[str]
    cwd: str
    env: dict[str, str]
    pipes: Path
    label: str
    wrapper: bool = False
    landlock: dict[str, Any] | None = None


@attrs.define(slots=True, eq=False)
class End:
    """How a connection ended, in words, once it has. Who uses it is told by that, never by being cancelled:
    the package's client would let such a cancellation out."""

    words: str | None = None
    came: trio.Event = attrs.field(factory=trio.Event)

    def comes(self, words: str) -> None:
        self.words = self.words or words
        self.came.set()


@asynccontextmanager
async def transport(spawner: Spawner, command: Command, end: End) -> AsyncIterator[tuple[Any, Any]]:
    """The streams that a client of the package wants.

    Cancellation: the server is ended, with all that it started.
    """
    import anyio

    ends = _made(command.pipes)
    try:
        to_client, incoming = anyio.create_memory_object_stream[Any](0)
        outgoing, from_client = anyio.create_memory_object_stream[Any](0)
        writing, reading = (trio.lowlevel.FdStream(fd) for fd in ends)
        async with (
            to_client, incoming, outgoing, from_client, writing, reading, trio.open_nursery() as nursery
        ):  # fmt: skip

            async def run() -> None:
                end.comes(await _run(spawner, command))
                to_client.close()  # who waits for an answer is told that there is none

            async def read() -> None:
                if not await _read(reading, to_client):
                    end.comes(f"it sent a message of more than {LONGEST >> 20} MiB")
                    to_client.close()

            nursery.start_soon(run)
            nursery.start_soon(read)
            nursery.start_soon(_write, writing, from_client)
            try:
                yield incoming, outgoing
            finally:
                nursery.cancel_scope.cancel()
    finally:
        for suffix in (".in", ".out"):
            with suppress(OSError):
                os.unlink(f"{command.pipes}{suffix}")


def _made(path: Path) -> tuple[int, int]:
    """Both pipes, open; each for both directions, so that nothing waits for who isn't there yet."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for suffix in (".in", ".out"):
        os.mkfifo(f"{path}{suffix}", 0o600)
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(f"{path}.in", flags), os.open(f"{path}.out", flags)


async def _run(spawner: Spawner, command: Command) -> str:
    try:
        done = await spawner.run(
            ["/bin/sh", "-c", OPENING, str(command.pipes), *command.argv],
            cwd=command.cwd,
            env=command.env,
            timeout=None,
            head=SAID,
            tail=SAID,
            label=command.label,
            wrapper=command.wrapper,
            landlock=command.landlock,
        )
    except SpawnFailed as error:
        return str(error)
    return ending(done)


def ending(done: Completed) -> str:
    """How it ended, and its last line."""
    how = f"it ended with exit {done.returncode}" if done.signal is None else f"signal {done.signal} ended it"
    lines = [line.strip() for line in done.output.decode("utf-8", "replace").split("\n") if line.strip()]
    return f"{how}: {lines[-1][:300]}" if lines else how


async def _read(stream: trio.lowlevel.FdStream, to_client: Any) -> bool:
    """Until nobody listens any more; False: it can't be listened to."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    rest = bytearray()
    while data := await stream.receive_some(65536):
        rest += data
        if len(rest) > LONGEST:
            return False
        *lines, last = rest.split(b"\n") if b"\n" in data else [rest]
        rest = bytearray(last)
        for line in lines:
            try:
                message = jsonrpc_message_adapter.validate_json(bytes(line), by_name=False)
            except ValueError:
                continue  # something that it printed
            try:
                await to_client.send(SessionMessage(message))
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return True
    return True


async def _write(stream: trio.lowlevel.FdStream, from_client: Any) -> None:
    async for item in from_client:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await stream.send_all(text.encode() + b"\n")
