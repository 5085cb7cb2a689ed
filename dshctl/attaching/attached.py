"""The loop of `dshctl attach`: keys, the daemon's lines, and what is due, one after the other.

| what happens          | then                                                                    |
|-----------------------|-------------------------------------------------------------------------|
| a line                | into the outbox (a text), or a request (a word); see `spoken`           |
| Ctrl-C                | clears the line; on an empty one, the second within 3 s aborts          |
| Ctrl-D                | leaves; with letters in the outbox only the second time, and tells them |
| the terminal is gone  | the same at once                                                        |
| input ends (no tty)   | leaves once all was acknowledged and the past has been shown            |
| nobody reads (no tty) | leaves once all was acknowledged                                        |
"""

from __future__ import annotations

import os
import select
import time
from typing import Any, Final

from dshctl import approvals, exits, sentences, text, times
from dshctl.attaching.conversation import Conversation
from dshctl.attaching.editor import Did, Editor
from dshctl.attaching.link import Link
from dshctl.attaching.questions import Questions
from dshctl.attaching.screen import Below, Screen, Woken
from dshctl.attaching.spoken import SENDS, Spoken, help_lines, meant
from dshctl.base import Cli
from dshctl.client import TimedOut
from dshctl.follow import SECOND_S
from dshctl.output import words_of
from dshd import errors, wire

Json = dict[str, Any]
PATIENT_S: Final = 0.5  # a letter may be on its way before it is called not acknowledged
_READING: Final = ("help", "queue", "why", "quit")  # that change nothing


class Attached:
    """``session`` is a view of it; ``read``: nothing is changed from here."""

    def __init__(self, cli: Cli, session: Json, screen: Screen, woken: Woken, *, read: bool) -> None:
        self._cli, self._out = cli, cli.out
        self._read = read
        self._screen, self._woken = screen, woken
        self._client = cli.client()
        self._link = Link(cli, woken.ring)
        self._editor = Editor()
        self._questions = Questions(str(session["id"]), screen.reads_keys and not read)
        self._talk = Conversation(
            cli, session, self._questions, self._link, tell=self._tell, fail=self._fail,
            given_back=self._editor.keep, limit=screen.reads_keys,
        )  # fmt: skip
        self._interrupted = self._left = float("-inf")
        self._input = 0 if screen.reads_keys or not read else None
        self._typed = b""
        self._code: int | None = None

    # The loop.

    def run(self) -> int:
        """The exit code. Raises `TimedOut`, `DshError` for a session that is no more."""
        try:
            self._link.begin(self._client)
            self._talk.connected()
            while self._code is None:
                self._once()
            return self._code
        except TimedOut:
            after = times.age((self._cli.timeout or 0) * 1000)
            raise TimedOut(f"left {self._talk.name} after {after}; nothing was stopped") from None
        finally:
            self._link.end()
            self._tell(self._unsent())

    def _once(self) -> None:
        soon = self._due()
        self._draw()
        for ready in self._wait(soon):
            if ready == self._woken.fd:
                self._woken.heard()
                self._talk.resize(self._out.columns)
            elif ready == self._input:
                self._keys()
            else:
                self._talk.hear()
        self._tell(self._link.notes())
        if self._link.found() is not None:
            self._tell(["dshctl: the daemon is back."])
            self._talk.connected()
        self._talk.send_next()
        if self._out.out.gone and not self._talk.outbox:
            self._code = self._talk.worst
        if self._input is None and not self._read and self._talk.settled:
            self._code = self._talk.worst

    def _wait(self, soon: float | None) -> list[int]:
        reads = [fd for fd in (self._woken.fd, self._input, self._link.fileno()) if fd is not None]
        others = PATIENT_S if self._talk.outbox else None
        due = [when for when in (soon, others, self._talk.soon()) if when is not None]
        left = self._client.deadline.left(min(due, default=None))
        ready: list[int] = select.select(reads, [], [], left)[0]
        return ready

    def _due(self) -> float | None:
        """Questions whose time has come; in how many seconds the next may be."""
        lines, soon = self._questions.due(not self._editor.text)
        self._tell(lines)
        return soon

    def _draw(self) -> None:
        asked = self._questions.asked
        editor, prompt = (self._questions.editor, f"{asked}? ") if asked else (self._editor, self._prompt())
        newline = "\u23ce" if self._out.unicode else "^J"
        rows = tuple(row for row in (self._talk.tail, self._talk.doing, self._waiting()) if row)
        self._screen.draw(Below(rows, editor.row(self._screen.columns, prompt, newline)))

    def _waiting(self) -> str:
        outbox = self._talk.outbox
        if outbox.first is None or time.monotonic() - outbox.first.at < PATIENT_S:
            return ""
        return f"  {sentences.count(len(outbox), 'text')} not acknowledged yet ..."

    def _prompt(self) -> str:
        away = "" if self._link.connection is not None else " (no daemon)"
        return f"{self._talk.name}{away}{' (read)' if self._read else ''}> "

    def _tell(self, lines: list[str]) -> None:
        if lines and not self._out.json:
            self._screen.tell([part for line in lines for part in line.split("\n")])

    def _fail(self, error: errors.DshError) -> None:
        if self._screen.reads_keys:
            self._tell([words_of(error)])
        else:
            self._out.error(error)

    def _unsent(self) -> list[str]:
        """On leaving: what is not known to be kept, with the command that makes it so."""
        lines = [f"dshctl: not sent: {self._editor.text}"] if self._editor.text else []
        if self._talk.outbox:
            lines.append("dshctl: it is not known whether what follows was sent:")
        return [*lines, *(f"      {letter.again(self._talk.name)}" for letter in self._talk.outbox.all)]

    # Keys.

    def _keys(self) -> None:
        assert self._input is not None
        try:
            data = os.read(self._input, 65536)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            self._input_ended()
        elif self._screen.reads_keys:
            self._pressed(data)
        else:
            *lines, self._typed = (self._typed + data).split(b"\n")
            for line in lines:
                self._line(line)

    def _input_ended(self) -> None:
        self._input = None
        if self._screen.reads_keys:
            self._leave()
        elif self._typed:
            self._line(self._typed)

    def _pressed(self, data: bytes) -> None:
        """Each key to the editor that is in place at that moment."""
        self._questions.pressed()
        for at in range(len(data)):
            editor = self._questions.editor if self._questions.asked else self._editor
            for did in editor.feed(data[at : at + 1]):
                self._do(did)

    def _do(self, did: Did) -> None:
        if did.what == "line":
            line = did.text
            self._answer(line) if self._questions.asked else self._line(line.encode("utf-8", "replace"))
        elif did.what == "interrupt":
            self._ctrl_c()
        elif did.what == "leave":
            self._quit("")
        elif did.what == "suspend":
            self._screen.suspend()
        else:
            self._screen.clear()

    def _ctrl_c(self) -> None:
        if self._questions.asked:
            self._tell(self._questions.put_aside())
        elif self._read:
            self._code = exits.SIGINT
        elif self._talk.turn is None:
            self._tell(["dshctl: nothing is running. Ctrl-D leaves."])
        elif time.monotonic() - self._interrupted < SECOND_S:
            self._interrupted = float("-inf")
            self._abort("")
        else:
            self._interrupted = time.monotonic()
            turn = f"turn {self._talk.turn}"
            self._tell([f"dshctl: Ctrl-C again within 3 s aborts {turn}. Ctrl-D leaves, and stops nothing."])

    def _leave(self) -> None:
        self._code = exits.FAILURE if self._talk.outbox else exits.DONE

    # What a typed line means.

    def _line(self, raw: bytes) -> None:
        """One that is refused is in the history, as each that was typed."""
        line, replaced = text.clean(raw)
        try:
            spoken = meant(line)
            if spoken is not None:
                self._spoken(spoken, replaced)
        except errors.DshError as error:
            self._talk.worst = self._talk.worst or error.exit_status
            self._fail(error)

    def _spoken(self, spoken: Spoken, replaced: int) -> None:
        word = spoken.word
        if self._read and word not in _READING:
            hint = f"dshctl attach -s {self._talk.name}"
            raise errors.Denied("attached with --read: nothing is sent from here", hint=hint)
        if word == "say" or word in SENDS:
            self._talk.outbox.add(spoken, replaced)
            if self._screen.reads_keys:
                self._tell([f"> {spoken.text}"])
        elif word in ("allow", "deny"):
            self._answer_with(self._questions.named(word, spoken.text))
        else:
            getattr(self, f"_{word}")(spoken.text)

    def _help(self, _: str) -> None:
        self._tell(help_lines())

    def _quit(self, _: str) -> None:
        """At once, or the second time within 3 s if something is not acknowledged."""
        if not self._talk.outbox or time.monotonic() - self._left < SECOND_S:
            self._leave()
            return
        self._left = time.monotonic()
        many = sentences.count(len(self._talk.outbox), "text")
        self._tell([f"dshctl: {many} not acknowledged yet. Again within 3 s leaves all the same."])

    def _queue(self, _: str) -> None:
        from dshctl import queues

        def told(got: Json) -> list[str]:
            return list(queues.lines(self._cli.out, got, queues.queued(got), times.now_ms()))

        self._talk.request(wire.QueueLsParams(session=self._talk.id), told)

    def _why(self, _: str) -> None:
        def told(got: Json) -> list[str]:
            label = f"{got['label']}: " if got.get("label") else ""
            hint = [f"  {label}{got['hint']}"] if got.get("hint") else []
            return [sentences.why(got, times.now_ms()), *hint]

        self._talk.request(wire.MessageWhyParams(session=self._talk.id), told)

    def _abort(self, _: str) -> None:
        """Of the turn that was seen here, so that none is met that begins meanwhile."""
        self._talk.request(wire.AbortParams(session=self._talk.id, turn=self._talk.turn), sentences.abort)

    def _wake(self, _: str) -> None:
        self._talk.request(wire.WakeParams(session=self._talk.id), lambda got: [sentences.woken(got)])

    def _answer(self, typed: str) -> None:
        if not typed.strip():
            self._tell(self._questions.put_aside())
            return
        params = self._questions.answer(typed)
        if params is None:
            self._tell([approvals.CHOICES])
        else:
            self._answer_with(params)

    def _answer_with(self, params: wire.ApprovalAnswerParams) -> None:
        if self._talk.request(params, lambda got: [f"dshctl: {approvals.answered(got)}"]):
            self._questions.gone(params.id)
