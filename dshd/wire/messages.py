"""What became of a message, and what it was answered."""

from __future__ import annotations

from dshd.wire.params import InSession, Params


class MessageShowParams(Params, method="message.show"):
    message: str


class MessageWhyParams(InSession, method="message.why"):
    """Without ``message``: the first of the session that waits, else what its running turn is about."""

    message: str | None = None


class AnswerShowParams(InSession, method="answer.show"):
    """The answer to ``message``, else the session's newest; ``n`` counts back from the newest, from 1."""

    message: str | None = None
    n: int = 1
