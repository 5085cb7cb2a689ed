"""Waiting for an end, and watching it come.

Rules. What is waited for lives in the daemon, not here: a lost connection, a restart of the daemon
or the end of this process change nothing about the work. So after a lost connection we look for
the daemon again, ask the same question again, and go on reading the log behind the last line seen
(`after` with its seq and crc), without gap or repeat.

How a daemon went away says whether to start another one. One that was stopped removed its socket:
somebody wanted it gone, so we only wait for its return. One that died left a socket that refuses:
then it is started again, if that isn't turned off.

Ctrl-C on a terminal says that the work goes on and how to see it; a second one within 3 s aborts. So for
what this command sent itself: one that only watches (`dshctl wait`) ends, and touches nothing.
"""

from __future__ import annotations

import errno
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from dshctl import sentences, times
from dshctl.chat import Chat
from dshctl.client import Client, TimedOut
from dshctl.connection import Connection, LogLine, Lost, result_of
from dshctl.ends import show_result
from dshctl.excerpts import call_line
from dshctl.output import Out, cut, visible
from dshd import errors, reasons, wire

if TYPE_CHECKING:
    from dshctl.base import Cli

Json = dict[str, Any]
OnEvent = Callable[[str, LogLine], None]

RETURN_S: Final = 60.0  # how long a daemon that was stopped is waited for
DIED_S: Final = 1.0  # how long a dead one's supervisor has to start it again before we do
SECOND_S: Final = 3.0  # within this a second Ctrl-C aborts
BEHIND_S: Final = 0.1
_KEPT: Final = 4096  # places in a log that can be gone back to


class Place:
    """How far a log was read: the last line's seq and crc, and those of some before it, for a reset."""

    def __init__(self, seq: int | None = None, crc: str = "") -> None:
        self._crcs: OrderedDict[int, str] = OrderedDict()
        if seq is not None:
            self._crcs[seq] = crc

    def saw(self, event: Json) -> bool:
        """Note an event; False if it was seen before."""
        seq = int(event["seq"])
        if self.seq is not None and seq <= self.seq:
            return False
        self._crcs[seq] = str(event.get("crc") or "")
        while len(self._crcs) > _KEPT:
            self._crcs.popitem(last=False)
        return True

    def back_to(self, seq: int) -> None:
        """What came after was withdrawn."""
        while self._crcs and next(reversed(self._crcs)) > seq:
            self._crcs.popitem()

    @property
    def seq(self) -> int | None:
        return next(reversed(self._crcs), None)

    @property
    def position(self) -> wire.Position | None:
        seq = self.seq
        return None if seq is None else wire.Position(seq=seq, crc=self._crcs[seq])


def reconnect(client: Client, may_start: bool) -> Connection:
    """The daemon again, after it went away. Raises Unreachable if it stays away."""
    client.drop()
    end = time.monotonic() + RETURN_S
    died_at: float | None = None
    while time.monotonic() < end:
        found = client.adopt(client.try_connect())
        if found is not None:
            return found
        died_at = (died_at or time.monotonic()) if _left_a_socket(client) else None
        if may_start and died_at and time.monotonic() - died_at > DIED_S:
            return client.connection(start=True)
        time.sleep(client.deadline.left(0.1) or 0)
    raise errors.Unreachable(
        "the daemon went away and did not come back; the work is kept", hint="dshctl daemon start"
    )


def _left_a_socket(client: Client) -> bool:
    """Whether a socket is there and refuses: its daemon died instead of stopping."""
    return any(_refuses(path) for path in client.places.sockets)


def _refuses(path: str) -> bool:
    from dshd import paths

    try:
        paths.connect(path, 1.0).close()
    except OSError as error:
        return error.errno == errno.ECONNREFUSED
    return False


class Watch:
    """One connection on which a log is followed and an answer awaited at the same time.

    ``ends`` is the request whose answer ends the watch (None: it never ends by itself). ``on_event``
    gets each event once, in order; ``on_reset`` the seq up to which they still hold. ``is_whole``: whether
    all that this answer speaks of has been shown; if not, what comes right behind it is waited for.
    """

    def __init__(
        self, cli: Cli, *, session: str | None, cwd: str | None = None,
        ends: wire.Params | None, follow: bool, place: Place | None = None, turns: int | None = None,
        chunks: bool = False,
        on_event: OnEvent = lambda session, event: None,
        on_reset: Callable[[int], None] = lambda seq: None,
        is_whole: Callable[[Json], bool] = lambda answer: False,
    ) -> None:  # fmt: skip
        self._cli = cli
        self._client = cli.client()
        self._where = (session, cwd)
        self._ends = ends
        self._follow = follow
        self._place = place or Place()
        self._turns = turns
        self._chunks = chunks
        self._on_event = on_event
        self._on_reset = on_reset
        self._is_whole = is_whole

    @property
    def asked(self) -> tuple[str, ...]:
        """Approvals that who waits knows of."""
        return self._ends.asked or () if isinstance(self._ends, wire.WaitParams) else ()

    def known(self, approvals: tuple[str, ...]) -> None:
        """Don't end for these any more."""
        assert isinstance(self._ends, wire.WaitParams)
        self._ends = self._ends.replace(asked=approvals)
        self._client.drop()

    def run(self) -> Any:
        """The answer to ``ends``. Raises its error; reconnects as long as that makes sense."""
        while True:
            try:
                return self._watch(self._client.connection())
            except Lost:
                reconnect(self._client, self._cli.autostart)
            except errors.Unavailable:  # it is stopping; the question is asked again of the next one
                time.sleep(self._client.deadline.left(0.2) or 0)
                reconnect(self._client, self._cli.autostart)

    def _watch(self, connection: Connection) -> Any:
        follow = self._ask_follow(connection) if self._follow else None
        end = connection.send(self._ends.method, self._ends.to_json()) if self._ends else None
        while True:
            got = self._receive(connection)
            if "method" in got:
                self._notified(got["method"], got.get("params") or {})
            elif got.get("id") == end and end is not None:
                answer = result_of(got)
                self._drain(connection, answer)
                return answer
            elif got.get("id") == follow:
                self._followed(got)

    def _ask_follow(self, connection: Connection) -> int:
        place = self._place.position
        params = wire.LogFollowParams(
            session=self._where[0],
            cwd=self._where[1],
            after=place,
            turns=None if place else self._turns,
            chunks=self._chunks,
        )
        return connection.send(params.method, params.to_json())

    def _receive(self, connection: Connection) -> Json:
        try:
            return connection.receive(self._client.deadline.left())
        except TimeoutError:
            self._client.drop()
            raise TimedOut("") from None

    def _notified(self, method: str, params: Json) -> None:
        if method == "log.event" and self._place.saw(params["event"]):
            self._on_event(params["session"], params["event"])
        elif method == "log.reset":
            self._reset(int(params["to"]))
        elif method == "log.end":
            raise errors.NotFound(f"session {params.get('session')} was {params.get('reason')}")

    def _reset(self, seq: int) -> None:
        self._place.back_to(seq)
        self._on_reset(seq)

    def _followed(self, answer: Json) -> None:
        """The log is found; or the place in it is gone, and the daemon says how far back to go."""
        try:
            # From now on by its id: a name may change hands while we are away.
            self._where = (result_of(answer)["session"], None)
        except errors.Conflict as conflict:
            if "reset_to" not in conflict.data:
                raise
            self._reset(int(conflict.data["reset_to"]))
            raise Lost("the place in the log is gone") from None

    def _drain(self, connection: Connection, answer: Json) -> None:
        """Events that come right behind the answer, until nothing has come for `BEHIND_S`."""
        try:
            while self._follow and not self._is_whole(answer):
                got = connection.receive(BEHIND_S)
                if "method" in got:
                    self._notified(got["method"], got.get("params") or {})
        except (TimeoutError, Lost):
            return


class Progress:
    """What a message's turn does, on standard error; on a terminal also what it does just now.

    Before the message has entered, and after its turn has ended, events are somebody else's and not
    shown; on a terminal the line that is replaced says what it waits for.
    """

    def __init__(self, cli: Cli, session: str, message: str, turn: int | None = None) -> None:
        self._out = cli.out
        self._message = message
        self._chat = Chat(
            cli.out.columns,
            progress=True,
            ellipsis=cli.out.ellipsis,
            limit=cli.out.err.tty,
            session=f" -s {session}",
        )
        self._ours = turn  # the turn that the message is in
        self._ended = 0  # the last turn whose end was seen
        self._now = Now(cli.out)

    def event(self, _: str, event: Json) -> None:
        data = event.get("data") or {}
        if event.get("type") == "session/header":
            self._out.say(f"dshctl: {sentences.which_model(data)}")
        elif self._is_ours(str(event.get("type")), data):
            self._ours = data.get("turn")
        if event.get("type") == "turn/end":
            self._ended = int(data.get("turn") or 0)
        # Every event is fed, for a result needs its call; what came before is not shown.
        lines = self._chat.feed(event)
        theirs = self._ours is None or self._ours != self._chat.turn or data.get("id") == self._message
        self._show([] if theirs else lines)
        self._now.say(doing(event) if self._ours is not None else "  queued ...")

    def is_whole(self, answer: Json) -> bool:
        """Whether the end of the turn that answered the message was seen."""
        turn = answer["results"][0].get("turn")
        return turn is not None and turn <= self._ended

    def _is_ours(self, kind: str, data: Json) -> bool:
        """Whether the message enters a turn here, or its turn is gone on with."""
        if kind == "user/message":
            return data.get("id") == self._message
        return kind == "turn/start" and self._ours is not None and data.get("retry_of") == self._ours

    def _show(self, lines: list[str]) -> None:
        if lines:
            self._now.say("")
            self._out.say("\n".join(lines))

    def done(self) -> None:
        self._now.say("")


class Now:
    """A line on a terminal that the next one replaces: what happens just now."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._shows = out.err.tty and not out.quiet and out.environ.get("TERM", "dumb") != "dumb"
        self._text = ""

    def say(self, text: str) -> None:
        """Replace the line; an empty text takes it away."""
        if self._shows and text != self._text:
            self._text = text
            self._out.err.write("\r\x1b[K" + cut(visible(text), self._out.columns - 1, self._out.ellipsis))


def doing(event: Json) -> str:
    """What happens just now, after this event."""
    data = event.get("data") or {}
    if event.get("type") == "tool/call":
        return f"  {call_line(str(data.get('name')), str(data.get('arguments') or ''))} ..."
    if event.get("type") == "llm/retry" and data.get("waits"):
        why = reasons.provider(data.get("code"))
        return f"  waiting until {sentences.when(int(data['until']), times.now_ms())} ({why}) ..."
    return "  ..." if event.get("type") in _BUSY else ""


_BUSY: Final = ("request/sent", "assistant/chunk", "tool/result", "step/end", "step/start")


def to_the_end(cli: Cli, receipt: Json, *, progress: bool, stay: bool, place: Place | None = None,
               tied: bool = False) -> int:  # fmt: skip
    """Wait for a message's end; its answer on standard output. The exit code."""
    asked = () if cli.terminal else None
    params = wire.WaitParams(
        session=receipt["session"], messages=(receipt["message"],), stay=stay, asked=asked
    )
    name, id, retried = sentences.name_of(receipt), receipt["message"], receipt.get("retry_of")
    shown = Progress(cli, name, id, retried) if progress else None
    start = place or Place(int(receipt["seq"])) if receipt.get("seq") is not None else Place()
    watch = Watch(
        cli, session=receipt["session"], ends=params, follow=progress, place=start,
        on_event=shown.event if shown else lambda session, event: None,
        is_whole=shown.is_whole if shown else lambda answer: True,
    )  # fmt: skip
    while True:
        try:
            (result,) = patient(cli, watch.run, receipt, tied=tied, sent=True)["results"]
        finally:
            if shown:
                shown.done()
        if not asks_in_place(cli, watch, [result]):
            return show_result(cli, result)


def asks_in_place(cli: Cli, watch: Watch, results: list[Json]) -> bool:
    """Whether it ended with questions for whoever sits here, who has been asked now: wait on."""
    waiting = {one["id"]: one for result in results for one in result.get("approvals") or ()}
    if not cli.terminal or not waiting:
        return False
    from dshctl.approvals import ask_in_place

    cli.client().drop()  # the answers go by a connection on which nothing is followed
    watch.known(ask_in_place(cli, list(waiting.values()), watch.asked))
    return True


def patient(
    cli: Cli, wait: Callable[[], Json], receipt: Json, *, tied: bool = False, sent: bool = False
) -> Json:
    """Wait; Ctrl-C and `--timeout` end the waiting, not the work. ``sent``: by this command."""
    try:
        return wait()
    except TimedOut:
        see = _see(receipt)
        raise TimedOut(_goes_on(cli, receipt, tied), hint=see, data={"told": f"To see it: {see}"}) from None
    except KeyboardInterrupt:
        if not sent:
            raise
        return _interrupted(cli, wait, receipt, tied)


def _goes_on(cli: Cli, receipt: Json, tied: bool) -> str:
    after = times.age((cli.timeout or 0) * 1000) if cli.timeout else "a while"
    return f"still running after {after}; it {'is aborted' if tied else 'goes on'}"


def _see(receipt: Json) -> str:
    return f"dshctl attach -s {sentences.name_of(receipt)}"


def _interrupted(cli: Cli, wait: Callable[[], Json], receipt: Json, tied: bool) -> Json:
    """The first Ctrl-C: say that it goes on. The second: abort, and wait for that end."""
    name = sentences.name_of(receipt)
    if tied:
        cli.out.say(f"\ndshctl: {name} is aborted, for it was --tied to this command.")
    if tied or not cli.terminal:
        raise KeyboardInterrupt
    try:
        cli.out.say(
            f"\ndshctl: {name} goes on. Ctrl-C again within 3 s aborts it. To see it: {_see(receipt)}"
        )
        time.sleep(SECOND_S)
    except KeyboardInterrupt:
        cli.client().drop()
        aborted = cli.ask(wire.AbortParams(session=receipt["session"]))
        for line in sentences.abort(aborted):
            cli.out.say(line)
        return wait()
    raise KeyboardInterrupt
