"""The connection to the daemon: a blocking socket, one JSON object per line.

Rules. The first request is `daemon.hello`; a daemon that takes the connection and doesn't answer
it in 5 s counts as unreachable. A connection lost before an answer is repeated by itself only if
the request changes nothing or carries a key: whether any other was written can't be known, so that
is exit 1 with outcome unknown. `--timeout` is one deadline for the whole command, whatever it waits
for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from dshctl import exits, unreached
from dshctl.connection import Connection, Garbage, Lost, result_of
from dshd import __version__, errors, paths, wire
from dshd.log.lock import holder

if TYPE_CHECKING:
    import socket
    from typing import Protocol

    from dshctl.output import Out

    class Options(Protocol):
        """What the user said that decides how a daemon is reached. ``announces``: starting one is news."""

        out: Out
        socket: str | None
        timeout: float | None
        autostart: bool
        announces: bool


HELLO_S: Final = 5.0  # a daemon that doesn't greet in this time hangs
ATTEMPTS: Final = 3  # of a request that may be repeated
HIDDEN_S: Final = 5.0  # for a daemon that lives to be reachable (again); it looks every 3 s
_POLL_S: Final = 0.05


class OutcomeUnknown(errors.DshError):
    """The connection was lost between the request and its receipt."""

    code = "UNKNOWN"


class NotStarted(errors.NotConfigured):
    """A daemon was to be started, and would not have its config. None runs."""


class TimedOut(errors.DshError):
    """`--timeout` passed."""

    code, exit_status, retryable = "TIMED_OUT", exits.TIMED_OUT, True


class Deadline:
    """`--timeout` as a moment. ``left()`` is seconds for the next wait, None without a limit."""

    sentence: ClassVar[str] = "no answer in {}"

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, most: float | None = None) -> float | None:
        """At most ``most``; raises TimedOut when nothing is left."""
        if self._end is None:
            return most
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimedOut(self.sentence.format(_short(self.seconds or 0)))
        return left if most is None else min(left, most)


def _short(seconds: float) -> str:
    from dshctl.times import age

    return age(seconds * 1000) if seconds >= 1 else f"{seconds:g} s"


class Client:
    """What commands talk to. Connects on first use, greets, and has the daemon started (``start``) if it
    may be."""

    def __init__(self, options: Options, start: Callable[[Client], Connection]) -> None:
        self.options = options
        self._start = start
        self.places = paths.find_places(os.environ, socket=options.socket)
        self.explicit = bool(options.socket or os.environ.get("DSHD_SOCKET"))
        self.deadline = Deadline(options.timeout)
        self.hello: dict[str, Any] = {}
        self.mode: Literal["read", "write"] = "write"  # ``read``: the daemon lets us change nothing
        self._connection: Connection | None = None

    # Connecting.

    def connection(self, *, start: bool | None = None) -> Connection:
        """The greeted connection. ``start``: whether a daemon may be started (None: as the user said)."""
        if self._connection is None:
            may = self.options.autostart if start is None else start and self.options.autostart
            self._connection = self._connect(may)
        return self._connection

    def _connect(self, start: bool) -> Connection:
        found = self._found()
        if found is not None:
            return found
        if not start:
            raise unreached.nobody(self.places, off=not self.options.autostart)
        return self._start(self)

    def _found(self) -> Connection | None:
        """The daemon that lives; None if none does. One that nobody can reach yet, or any more, has
        `HIDDEN_S` to mend that: it starts, ends, or makes its socket again. Raises Hidden."""
        end = time.monotonic() + HIDDEN_S
        while (connection := self.try_connect()) is None and (by := holder(self.places.state)) is not None:
            found = unreached.elsewhere(self.places)
            if found is not None:
                raise found
            if time.monotonic() > end:
                raise unreached.hidden(self.places, by)
            time.sleep(self.deadline.left(_POLL_S) or 0)
        return connection

    def try_connect(self) -> Connection | None:
        """A greeted connection, or None where nobody listens. Raises Unreachable for one that hangs, and
        TimedOut."""
        for path in self.places.sockets:
            try:
                sock = self._connected(path)
            except TimeoutError:
                raise self._hangs(path) from None
            except PermissionError as error:
                raise errors.Denied(f"permission denied on {path}") from error
            except OSError:
                continue
            return self._greet(Connection(sock), path)
        return None

    def _connected(self, path: str) -> socket.socket:
        """Where so many wait to be accepted that the kernel takes no more, we wait to be let wait."""
        end = time.monotonic() + HELLO_S
        while True:
            try:
                return paths.connect(path, self.deadline.left(HELLO_S))
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError from None
            time.sleep(self.deadline.left(_POLL_S) or 0)

    def _hangs(self, path: str) -> errors.Unreachable:
        """What to say of a daemon that takes connections and greets nobody; raises TimedOut if we had less
        patience than that."""
        self.deadline.left()
        return unreached.hangs(path, holder(self.places.state), HELLO_S)

    def _greet(self, connection: Connection, path: str) -> Connection | None:
        try:
            self.hello = self._hello(connection, path)
        except Lost:  # it was just leaving
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        self.options.out.detail(f"connected to {path}")
        self._compare_versions()
        return connection

    def _hello(self, connection: Connection, path: str) -> dict[str, Any]:
        params = wire.HelloParams(
            protocol=wire.PROTOCOL, client="dshctl", version=__version__, mode=self.mode, tty=_tty()
        )
        try:
            connection.send(params.method, params.to_json(), self.deadline.left(HELLO_S))
            answer = connection.receive(self.deadline.left(HELLO_S))
        except TimeoutError:
            raise self._hangs(path) from None
        except Garbage:
            raise errors.Unreachable(f"what listens at {path} is not dshd") from None
        return result_of(answer) or {}

    def _compare_versions(self) -> None:
        theirs = self.hello.get("version")
        if theirs and theirs != __version__:
            hint = "dshctl daemon restart"
            self.options.out.say(f"dshctl: the daemon is {theirs}, dshctl {__version__}: {hint}")

    def adopt(self, connection: Connection | None) -> Connection | None:
        """Make a greeted connection the one that is used."""
        if connection is not None:
            self._connection = connection
        return connection

    def drop(self) -> None:
        """Forget a lost connection; the next request connects anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def is_running(self) -> bool:
        """Whether a daemon holds the state lock. Asked before connecting by what never starts one:
        to connect to a socket that systemd listens at would start it."""
        if self.explicit and any(map(os.path.exists, self.places.sockets)):
            return True
        return holder(self.places.state) is not None

    # Requests.

    def ask(self, params: wire.Params, *, start: bool | None = None, repeat: bool | None = None) -> Any:
        """One request, one result. ``repeat``: may be sent again after a lost connection (None: if it
        changes nothing or has a key). Raises the daemon's error, Unreachable, OutcomeUnknown, TimedOut.
        """
        again = _repeatable(params) if repeat is None else repeat
        for attempt in range(1, ATTEMPTS + 1):
            try:
                result = self._ask_once(params, start)
                self._note(params, result)
                return result
            except Lost as lost:
                self.drop()
                if not again:
                    raise outcome_unknown(params) from None
                if attempt == ATTEMPTS:
                    raise errors.Unreachable(f"the connection to the daemon was lost: {lost}") from None
                time.sleep(min(0.2 * attempt, self.deadline.left(0.4) or 0))
        raise AssertionError("unreachable")

    def _note(self, params: wire.Params, result: Any) -> None:
        if params.method not in _READS:
            self.options.out.achieved = _achieved(result if isinstance(result, dict) else {})

    def _ask_once(self, params: wire.Params, start: bool | None) -> Any:
        connection = self.connection(start=start)
        try:
            return self._exchange(connection, self._with_uploads(connection, params))
        except TimeoutError:
            self.drop()
            self.deadline.left()
            raise TimedOut("no answer") from None

    def _exchange(self, connection: Connection, params: wire.Params) -> Any:
        number = connection.send(params.method, params.to_json(), self.deadline.left())
        return self._answer(connection, number)

    def _with_uploads(self, connection: Connection, params: wire.Params) -> wire.Params:
        """The same with texts that are too long for one line put before it, in pieces. They are the
        connection's, so this is done anew on each."""
        blocks = _blocks(params)
        left = wire.MAX_INLINE
        for at, block in enumerate(blocks):
            size = len(block["text"].encode("utf-8", "replace"))
            if size > left:
                blocks[at] = {"type": "text", "upload": self._put(connection, block["text"])}
            else:
                left -= size
        if all("upload" not in block for block in blocks):
            return params
        return params.replace(text=None, content=blocks)

    def _put(self, connection: Connection, text: str) -> str:
        name: str | None = None
        for start in range(0, len(text), wire.MAX_PIECE):
            piece = wire.AttachmentPutParams(text=text[start : start + wire.MAX_PIECE], upload=name)
            name = self._exchange(connection, piece)["upload"]
        return name or ""

    def _answer(self, connection: Connection, number: int) -> Any:
        while True:
            answer = connection.receive(self.deadline.left())
            if answer.get("id") == number and "method" not in answer:
                return result_of(answer)

    def stream(self, params: wire.Params, *, start: bool | None = None) -> Iterator[tuple[str, Any]]:
        """A request whose notifications come before its answer: pairs of method and params, then
        ``("", result)``. Raises what `ask` raises."""
        connection = self.connection(start=start)
        try:
            yield from self._told(connection, params.method, params.to_json())
        except (Lost, TimeoutError) as lost:
            self.drop()
            self.deadline.left()
            raise errors.Unreachable(f"the connection to the daemon was lost: {lost}") from None

    def call(self, method: str, params: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """The same for a request that somebody else has made up: it is asked once, whatever becomes of it."""
        connection = self.connection()
        try:
            yield from self._told(connection, method, params)
        except TimeoutError:
            self.drop()
            self.deadline.left()
            raise TimedOut("no answer") from None
        except Lost:
            self.drop()
            raise OutcomeUnknown(
                "the connection was lost before the daemon answered: it is not known whether this was done",
                hint="dshctl status",
                outcome="unknown",
            ) from None

    def _told(
        self, connection: Connection, method: str, params: dict[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        number = connection.send(method, params, self.deadline.left())
        while True:
            got = connection.receive(self.deadline.left())
            if "method" in got:
                yield got["method"], got.get("params") or {}
            elif got.get("id") == number:
                yield "", result_of(got)
                return


def _achieved(result: dict[str, Any]) -> str:
    receipt = result.get("receipt") or result
    if receipt.get("type") == "receipt":
        return f"it was sent as {receipt.get('message')}"
    if result.get("type") == "created":
        return f"session {result['session']['id']} was made"
    return "it was done all the same"


def _blocks(params: wire.Params) -> list[dict[str, Any]]:
    """What is said in a request that says something, as blocks."""
    content, text = getattr(params, "content", None), getattr(params, "text", None)
    if content is not None:
        return list(content)
    speaks = "content" in params.fields and isinstance(text, str)
    return [{"type": "text", "text": text}] if speaks else []


# What changes nothing, so that asking twice is asking once.
_READS: Final = frozenset(
    {
        "daemon.status", "session.list", "session.follow_list", "session.show", "session.wait", "queue.ls",
        "queue.show", "message.show", "message.why", "answer.show", "model.list", "log.read", "log.follow",
        "daemon.stop", "daemon.reload", "daemon.doctor", "tool.list", "usage.show", "prompt.show",
        "agent.list", "job.list", "job.output", "approval.list", "approval.follow", "schedule.list",
        "schedule.log",
    }
)  # fmt: skip


def _repeatable(params: wire.Params) -> bool:
    return params.method in _READS or bool(getattr(params, "key", None))


def outcome_unknown(params: wire.Params) -> OutcomeUnknown:
    """What to say when the receipt never came."""
    said = params.method in ("session.send", "session.interrupt", "session.create")
    hint = "dshctl queue               or: dshctl log" if said else "dshctl status"
    return OutcomeUnknown(
        "the connection was lost before the daemon answered, so it is not known whether this was done"
        + ("; with --key it can be repeated safely" if said else ""),
        hint=hint,
        outcome="unknown",
    )


def _tty() -> str | None:
    """The terminal's name as people know it (``pts/3``), for those who ask who said something."""
    for fd in (0, 2, 1):
        try:
            return os.ttyname(fd).removeprefix("/dev/")
        except OSError:
            continue
    return None
