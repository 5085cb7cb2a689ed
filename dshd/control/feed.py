"""Live logs for those who follow: each event once, in order, whoever is slow.

The session room says what was told (`Hub.publish`) and what was withdrawn (`Hub.reset`), synchronously.
A `Channel` exists per session while somebody follows it and keeps the newest lines, 1 MiB at most. A
`Follower` is in one of two places:

- **behind**: its own task reads the file, up to what has been told, at the pace at which its client reads;
- **live**: it has seen everything up to what the channel's pump last sent. The pump gives the same bytes
  to all live followers at once, so a hundred cost a hundred writes and nothing more.

It moves from behind to live when the next line it needs is in the channel's memory (or nothing is), and
back when more than `UNSENT` would wait for its client (of long lines see `encoding`). Both moves are single
steps without a checkpoint, so no event falls between the file and memory, and none comes twice.

What may be told of a file: of a loaded session what its owner has folded (``told``), because *now*
events stand in the file before they are durable; of another, what is there after a sync of ours.

The pump rests ten times as long as its last round took of the processor (not of the clock: on a busy machine
that would add to the delay). One follower is served at once; a hundred take a tenth of the processor at
most, and lines that come meanwhile share a round.

A position is a seq and a checksum. If that line isn't there any more, the client has seen what a crash or
a fault withdrew: it is told where the log's present begins (`reset_to`), as far as the log knows: the
line before the opening that followed. Someone who remembers that line's checksum, too, can ask again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import trio

from dshd.control import jsonrpc
from dshd.control.encoding import Data, Encoder, own, pieces
from dshd.control.logfile import Line, LogFile
from dshd.errors import Conflict, NotFound
from dshd.log.disk import Disk
from dshd.log.threads import Threads
from dshd.log.writer import hop
from dshd.order import InOrder
from dshd.wire import Position

KEPT: Final = 1024 * 1024  # bytes of lines in a channel's memory
UNSENT: Final = KEPT // 4  # of them that wait for one client, beyond one line
READ: Final = KEPT // 8  # bytes of a file that are read for it at once
REST: Final = 10.0  # the pump's rests, in lengths of its rounds
REST_MOST: Final = 0.05  # s
BETWEEN: Final = 0.01  # s to look again when neither the file nor memory has the next line
_CHUNK: Final = b'"type":"assistant/chunk"'


class Sink(Protocol):
    """A client that takes lines. ``write`` never waits; ``backlog`` is what it has not taken, in bytes.
    ``reading`` is held by who reads for it: all its followers together hold one piece of a file, not one
    each."""

    reading: InOrder

    @property
    def backlog(self) -> int: ...

    def write(self, data: Data) -> None: ...

    async def room(self) -> None:
        """Returns when the backlog is small."""


class Frame(NamedTuple):
    """A line as its followers get it. ``size`` is the line's in the file."""

    seq: int
    size: int
    chunk: bool
    data: Data


class Channel:
    """One session's newest lines, in ``frames``; those not yet given to live followers in ``fresh``."""

    def __init__(self, session: str, encoder: Encoder) -> None:
        self.session = session
        self._encoder = encoder
        self.frames: deque[Frame] = deque()
        self.fresh: list[Frame] = []
        self.live: dict[Follower, None] = {}  # in the order of coming
        self.followers = 0
        self.resets: list[int] = []
        self.woken = trio.Event()
        self.scope = trio.CancelScope()
        self._size = 0
        self._end = 0  # the seq behind the newest line that was ever here

    def add(self, first_seq: int, lines: Iterable[bytes]) -> None:
        for seq, line in enumerate(lines, first_seq):
            frame = self._frame(seq, line)
            self.frames.append(frame)
            self.fresh.append(frame)
            self._size += frame.size
            self._end = seq + 1
        while self._size > KEPT:
            if len(self.frames) == len(self.fresh):
                self.pump()  # before anything goes that nobody was given
            self._size -= self.frames.popleft().size
        self.woken.set()

    def _frame(self, seq: int, line: bytes) -> Frame:
        chunk = line.find(_CHUNK, 0, 80) >= 0
        return Frame(seq, len(line), chunk, self._encoder.line(self.session, seq, line))

    def withdraw(self, to: int) -> None:
        """Everything behind ``to`` is gone. Live followers learn it now, others when they look."""
        self.pump()
        self.resets.append(to)
        self._end = min(self._end, to + 1)
        while self.frames and self.frames[-1].seq > to:
            self._size -= self.frames.pop().size
        for follower in self.live:
            follower.catch_up_resets()

    def pump(self) -> None:
        """Give the fresh lines to all who are live, and send away those who don't keep up."""
        fresh, self.fresh = self.fresh, []
        if not fresh or not self.live:
            return
        everything = pieces(frame.data for frame in fresh)
        without = pieces(frame.data for frame in fresh if not frame.chunk)
        size = sum(frame.size for frame in fresh)
        for follower in list(self.live):
            follower.give(everything if follower.chunks else without, fresh[-1].seq, size)

    def kept(self, seq: int) -> list[Frame] | None:
        """The frames from ``seq`` on; None if memory begins later than that."""
        if (self.frames[0].seq if self.frames else self._end) > seq:
            return None
        return [frame for frame in self.frames if frame.seq >= seq]

    async def run(self) -> None:
        rested = trio.current_time()
        with self.scope:
            while True:
                await self.woken.wait()
                if trio.current_time() < rested:
                    await trio.sleep_until(rested)
                self.woken = trio.Event()
                began = time.thread_time()
                self.pump()
                rested = trio.current_time() + min(REST_MOST, REST * (time.thread_time() - began))


class Hub:
    """All channels. `publish` and `reset` are called by the session room, in the order of the log.

    ``told(session)`` is the seq of the last event that a *loaded* session has told, else None;
    ``path(session)`` is its log.
    """

    def __init__(
        self,
        disk: Disk,
        path: Callable[[str], Path],
        told: Callable[[str], int | None],
        threads: Threads | None = None,
    ) -> None:
        self.disk = disk
        self.path = path
        self.told = told
        self.threads = threads
        self.encoder = Encoder()
        self._channels: dict[str, Channel] = {}
        self._watchers: dict[Watcher, None] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def publish(self, session: str, first_seq: int, lines: list[bytes]) -> None:
        """These lines, ``first_seq`` and on, may be told. Raw lines as in the file."""
        for watcher in self._watchers:
            watcher.notice(session, first_seq)
        channel = self._channels.get(session)
        if channel is not None:
            channel.add(first_seq, lines)

    def reset(self, session: str, to: int) -> None:
        """What was told behind seq ``to`` is withdrawn."""
        channel = self._channels.get(session)
        if channel is not None:
            channel.withdraw(to)

    def forget(self, session: str) -> None:
        """The session is deleted: its followers are told, and end."""
        channel = self._channels.pop(session, None)
        if channel is None:
            return
        channel.pump()
        channel.scope.cancel()
        for follower in list(channel.live):
            follower.end("deleted")

    def join(self, session: str) -> Channel:
        """The session's channel, for one more follower; to be given back with `leave`."""
        channel = self._channels.get(session)
        if channel is None:
            channel = self._channels[session] = Channel(session, self.encoder)
            if self._nursery is not None:
                self._nursery.start_soon(channel.run)
        channel.followers += 1
        return channel

    def leave(self, channel: Channel) -> None:
        channel.followers -= 1
        if channel.followers == 0 and self._channels.get(channel.session) is channel:
            del self._channels[channel.session]
            channel.scope.cancel()

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    # -- reading files, in threads

    def log(self, session: str) -> LogFile:
        return LogFile(self.disk, self.path(session))

    async def reading(self, work: Callable[[], Any]) -> Any:
        """Run a blocking reader in one of the readers' threads."""
        return await hop(self.disk, work, self.threads)

    async def bound(self, session: str, log: LogFile) -> int | None:
        """Up to which seq the file may be told now; None: all that is good in it, which is synced."""
        if self.told(session) is None:
            await self.reading(log.sync)
        return self.told(session)

    async def start(self, session: str, after: Position | None, turns: int | None) -> tuple[int, int]:
        """``(next seq, its offset)`` for one who has seen up to ``after``, or wants the last ``turns``.

        Raises `Conflict` with ``data.reset_to`` if the line at ``after`` is not there any more.
        """
        log = self.log(session)
        if not await self.reading(log.exists):
            raise NotFound(f"no session {session}.", hint="dshctl ls")
        bound = await self.bound(session, log)
        return await self.reading(partial(_start, log, after, turns, bound))  # type: ignore[no-any-return]

    async def head(self, session: str) -> int:
        """The seq of the last event that may be told."""
        log = self.log(session)
        bound = await self.bound(session, log)
        return bound if bound is not None else await self.reading(log.last_seq)


def _start(log: LogFile, after: Position | None, turns: int | None, bound: int | None) -> tuple[int, int]:
    if after is not None and after.seq >= 0:
        line = log.line_at(after.seq)
        if line is None or (bound is not None and line.seq > bound) or after.crc not in ("", line.crc):
            raise _moved_on(log, after, bound)
        return line.next_seq, line.end
    if after is not None or turns is None:
        return 0, 0
    return _at(log, log.last_turns(turns), bound)


def _at(log: LogFile, offset: int, bound: int | None) -> tuple[int, int]:
    line = next(log.lines(offset), None)
    if line is None or (bound is not None and line.seq > bound):
        last = log.last_seq() if bound is None else bound
        return last + 1, log.locate(last + 1)
    return line.seq, offset


def _moved_on(log: LogFile, after: Position, bound: int | None) -> Conflict:
    head = log.last_seq() if bound is None else bound
    opening = log.last_opening(min(after.seq, head))
    reset_to = -1 if opening is None and after.seq <= head else head if opening is None else opening - 1
    return Conflict(
        f"event {after.seq} is not there any more, or never was: the log now goes on from {reset_to}.",
        data={"reset_to": reset_to},
    )


class Follower:
    """One client's way along one log."""

    def __init__(
        self, hub: Hub, session: str, sink: Sink, next_seq: int, offset: int | None, *, chunks: bool = True
    ) -> None:
        self.session = session
        self.chunks = chunks
        self._hub = hub
        self._sink = sink
        self._next = next_seq
        self._offset = offset  # of the line that is next, where known
        self._channel = hub.join(session)
        self._resets = len(self._channel.resets)
        self._sent_back = trio.Event()
        self._ended = False
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        """Until cancelled, or the session is deleted."""
        try:
            with self.scope:
                while not self._ended:
                    await self._catch_up()
                    await self._sent_back.wait()
                    await self._sink.room()
        finally:
            self._channel.live.pop(self, None)
            self._hub.leave(self._channel)

    async def _catch_up(self) -> None:
        """Read the file until memory goes on where it ends."""
        while not self._ended:
            async with self._sink.reading:
                await self._sink.room()
                self.catch_up_resets()
                more = await self._read_piece()
            if more:
                continue
            if self._go_live():
                return
            await trio.sleep(BETWEEN)

    async def _read_piece(self) -> bool:
        """Send the next piece of the file; says whether there was one."""
        resets = self._resets
        try:
            lines = await self._lines()
        except NotFound:
            self.end("deleted")
            return False
        if resets != len(self._channel.resets):
            return True  # read before the withdrawal: look again
        if lines:
            self._send(lines)
        return bool(lines)

    async def _lines(self) -> list[Line]:
        hub, session = self._hub, self.session
        log = hub.log(session)
        bound = await hub.bound(session, log)
        if bound is not None and self._next > bound:
            return []
        if self._offset is None:
            self._offset = await hub.reading(partial(log.locate, self._next))
        piece = await hub.reading(partial(log.piece, self._offset, bound, READ))
        now = hub.told(session)  # it may have been loaded, and written to, meanwhile
        return [line for line in piece.lines if line.seq >= self._next and (now is None or line.seq <= now)]

    def _send(self, lines: list[Line]) -> None:
        encode = self._hub.encoder.line
        data = [encode(self.session, line.seq, line.raw) for line in lines
                if self.chunks or line.type != "assistant/chunk"]  # fmt: skip
        self._next, self._offset = lines[-1].next_seq, lines[-1].end
        self._write(pieces(data))

    def _write(self, data: list[Data]) -> None:
        for piece in data:
            self._sink.write(piece)

    def _go_live(self) -> bool:
        """The file is read to its end: take the rest from memory, and be fed by the pump from now on.

        The pump's round comes first: what is fresh may stand in the file, and would come twice.
        """
        self._channel.pump()
        frames = self._channel.kept(self._next)
        if frames is None:
            return False
        self._sent_back = trio.Event()
        self._channel.live[self] = None
        if frames:
            data = pieces(frame.data for frame in frames if self.chunks or not frame.chunk)
            self.give(data, frames[-1].seq, sum(frame.size for frame in frames))
        return True

    # -- called by the channel, synchronously

    def give(self, data: list[Data], last_seq: int, size: int) -> None:
        """Lines up to ``last_seq``, ``size`` bytes in the file. What would be too much is left for the
        file, piece by piece."""
        if self._is_too_much(data):
            self._channel.live.pop(self, None)
            self._sent_back.set()
            return
        self._write(data)
        self._next = last_seq + 1
        self._offset = None if self._offset is None else self._offset + size

    def _is_too_much(self, data: list[Data]) -> bool:
        """One long line may be given to who has taken all before it; it is nobody's own."""
        backlog = self._sink.backlog
        if not backlog and len(data) == 1:
            return own(data) > UNSENT
        return backlog + sum(map(len, data)) > UNSENT

    def catch_up_resets(self) -> None:
        """Tell of what was withdrawn since we looked, if we had told it."""
        missed, self._resets = self._channel.resets[self._resets :], len(self._channel.resets)
        to = min(missed, default=self._next)
        if to < self._next - 1:
            self._sink.write(jsonrpc.notification_line("log.reset", {"session": self.session, "to": to}))
            self._next = to + 1
        if missed:
            self._offset = None

    def end(self, reason: str) -> None:
        """There is nothing more to come, ever."""
        if not self._ended:
            self._ended = True
            self._sink.write(
                jsonrpc.notification_line("log.end", {"session": self.session, "reason": reason})
            )
            self._channel.live.pop(self, None)
            self._sent_back.set()


class Watcher:
    """Follows every session: those given at once, others from the first event that comes.

    ``start(session, next_seq)`` makes a follower; it is called once per session.
    """

    def __init__(self, start: Callable[[str, int], None]) -> None:
        self._start = start
        self._seen: set[str] = set()

    def know(self, session: str) -> None:
        self._seen.add(session)

    def notice(self, session: str, first_seq: int) -> None:
        if session not in self._seen:
            self._seen.add(session)
            self._start(session, first_seq)
