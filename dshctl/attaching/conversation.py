"""A session as the daemon tells of it, over one connection after the other, and what is asked of it.

| what happens           | then                                                                          |
|------------------------|-------------------------------------------------------------------------------|
| the connection is lost | what was asked is told as not known, the outbox is kept, the daemon looked for|
| it is there again      | the log from the last line seen on, the outbox from its first letter on       |
| a line is withdrawn    | said so; the log from there on                                                |
| a letter is refused    | said so with its text, which `given_back` has, too                            |
| it can't be taken now  | it is sent again in a second, and those behind it wait                        |
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

from dshctl import exits, fates, sentences
from dshctl.attaching.link import Link
from dshctl.attaching.live import LiveChat
from dshctl.attaching.outbox import Letter, Outbox, spoken_receipt
from dshctl.attaching.questions import Questions
from dshctl.base import Cli
from dshctl.connection import LogLine, Lost, result_of
from dshctl.follow import Place, doing
from dshctl.sending import complete
from dshd import errors, wire

Json = dict[str, Any]
Then = Callable[[Json], list[str]]
TURNS: Final = 3  # of the past that are shown
AGAIN_S: Final = 1.0  # until a letter that could not be taken just now is sent again
# What a letter is sent again for: it was not written, or is the same by its key.
_LATER: Final = (errors.Unavailable, errors.Stalled)
# {method: what is not known of it where its answer never came}
_CHANGES: Final = {
    "session.abort": "the turn was aborted",
    "session.wake": "it was woken",
    "approval.answer": "your answer was taken",
}


class Conversation:
    """``session`` is a view of it, as `session.show` gives. ``tell`` gets lines, ``fail`` errors."""

    def __init__(self, cli: Cli, session: Json, questions: Questions, link: Link,
                 tell: Callable[[list[str]], None], fail: Callable[[errors.DshError], None],
                 given_back: Callable[[str], None], limit: bool) -> None:  # fmt: skip
        self._out = cli.out
        self.id, self.name = str(session["id"]), sentences.name_of(session)
        self.turn: int | None = session.get("turn") if session.get("phase") == "running" else None
        self.doing = ""  # just now
        self.questions, self.link, self.outbox = questions, link, Outbox()
        self.worst = exits.DONE
        self._tell, self._show_error, self._given_back = tell, fail, given_back
        self._place, self._head = Place(), -1
        self._chat = LiveChat(cli.out.columns, asks=questions.in_place, ellipsis=cli.out.ellipsis,
                              limit=limit, session=f" -s {self.name}")  # fmt: skip
        self._chat.place = os.path.join(cli.client().places.sessions, self.id, "attachments")
        self._requests: dict[int, tuple[wire.Params, Then]] = {}  # {id: what was asked, what is told of it}
        self._sent: int | None = None  # the request that carries the outbox's first letter
        self._next_try = 0.0

    @property
    def tail(self) -> str:
        """The row of an answer that grows."""
        return self._chat.tail

    @property
    def settled(self) -> bool:
        """Whether all that was said is acknowledged, all that was asked answered, and the past shown."""
        seen = self._place.seq
        shown = self._head == 0 or (seen is not None and 0 <= self._head <= seen)
        return shown and not self.outbox and not self._requests

    def soon(self) -> float | None:
        """In how many seconds there is something to do by itself."""
        if not self.outbox or self._sent is not None or self.link.connection is None:
            return None
        return max(0.0, self._next_try - time.monotonic()) + 0.01

    def resize(self, columns: int) -> None:
        self._chat.columns = columns

    # The daemon.

    def connected(self) -> None:
        """A connection that is new: go on where the last one ended."""
        place = self._place.position
        follow = wire.LogFollowParams(session=self.id, after=place, turns=None if place else TURNS)
        try:
            self._ask(follow, self._followed)
            self._ask(wire.ApprovalFollowParams(), lambda got: self.questions.know(got["approvals"]))
        except Lost:
            self._lost()

    def _followed(self, got: Json) -> list[str]:
        self._head = int(got.get("head") or 0)
        return []

    def _ask(self, params: wire.Params, then: Then) -> None:
        self._requests[self.link.send(params)] = (params, then)

    def request(self, params: wire.Params, then: Then) -> bool:
        """Ask, and tell what ``then`` makes of the answer. False if that can't be done just now."""
        if self.link.connection is None:
            self._tell(["dshctl: no daemon is there just now; this was not done."])
            return False
        try:
            self._ask(params, then)
        except Lost:
            self._lost()
        return True

    def hear(self) -> None:
        """What has come."""
        if self.link.connection is None:
            return
        try:
            for got in self.link.come():
                if "method" in got:
                    self._notified(str(got["method"]), got.get("params") or {})
                else:
                    self._answered(got)
        except Lost:
            self._lost()

    def _lost(self) -> None:
        self.link.lost()
        self._sent, self.doing = None, ""
        asked, self._requests = list(self._requests.values()), {}
        self._tell(["dshctl: the connection to the daemon is lost; it is looked for."])
        for params, _ in asked:
            if params.method in _CHANGES:
                self._tell([f"dshctl: whether {_CHANGES[params.method]} is not known."])

    def _answered(self, got: Json) -> None:
        id = got.get("id")
        if self._sent is not None and id == self._sent:
            self._acknowledged(got)
        elif id in self._requests:
            self._take(*self._requests.pop(id), got)

    def _take(self, params: wire.Params, then: Then, got: Json) -> None:
        follows = isinstance(params, wire.LogFollowParams)
        try:
            result = result_of(got)
            if not (follows or isinstance(params, wire.ApprovalFollowParams)):
                self._out.item(result, hold=False)
            self._tell(then(result))
        except errors.DshError as error:
            if follows and "reset_to" in error.data:
                self._reset(int(error.data["reset_to"]))
                self.request(params.replace(after=self._place.position), then)
            elif follows and not isinstance(error, _LATER):
                raise
            else:
                self._fail(error)

    def _notified(self, method: str, params: Json) -> None:
        if method == "log.event":
            if self._place.saw(params["event"]):
                self._event(params["event"])
        elif method == "log.reset":
            self._reset(int(params["to"]))
        elif method == "log.end":
            raise errors.NotFound(f"session {self.name} was {params.get('reason')}")
        elif method == "approval.asked":
            self._tell(self.questions.add(params))
        elif method == "approval.answered":
            self.questions.gone(str(params["id"]))

    def _event(self, event: LogLine) -> None:
        kind, data = event.get("type"), event.get("data") or {}
        if kind in ("turn/start", "turn/end"):
            self.turn = int(data["turn"]) if kind == "turn/start" else None
        if self._out.json and kind != "assistant/chunk":
            self._out.item({"type": "event", "session": self.id, "event": event}, hold=False)
        self._tell(self._chat.feed(event))
        self.doing = "" if self._chat.tail else doing(event)

    def _reset(self, seq: int) -> None:
        self._place.back_to(seq)
        withdrawn = f"-- what followed event {seq} was withdrawn: the disk had not taken it --"
        self._tell([*self._chat.reset(), withdrawn])

    def _fail(self, error: errors.DshError) -> None:
        self.worst = self.worst or error.exit_status
        self._show_error(error)

    # The outbox.

    def send_next(self) -> None:
        """Send the outbox's first letter, if none is on its way."""
        letter = self.outbox.first
        waits = self._sent is not None or time.monotonic() < self._next_try
        if letter is None or waits or self.link.connection is None:
            return
        letter.tries += 1
        try:
            self._sent = self.link.send(letter.params(self.id))
        except Lost:
            self._lost()

    def _acknowledged(self, got: Json) -> None:
        letter, self._sent = self.outbox.first, None
        assert letter is not None
        try:
            receipt = complete(result_of(got), letter.replaced)
        except _LATER:
            self._next_try = time.monotonic() + AGAIN_S
        except errors.DshError as error:
            self.outbox.settle(letter)
            self._refused(letter, error)
        else:
            self.outbox.settle(letter)
            self._out.item(receipt, hold=False)
            self._tell([fates.receipt(spoken_receipt(letter, receipt)), *sentences.replaced(receipt)])

    def _refused(self, letter: Letter, error: errors.DshError) -> None:
        self._fail(error)
        self._tell([f"dshctl: not sent: {letter.text}"])
        self._given_back(letter.text)
