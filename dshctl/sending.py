"""What `followup`, `steer`, `inject`, `interrupt` and `run` have in common: from words to receipt."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from dshctl import exits, fates, sentences, text
from dshctl.base import Cli, Mistake
from dshctl.keys import expand
from dshctl.settling import settings, where
from dshd import wire
from dshd.errors import DshError, Invalid, Unavailable


class Said(NamedTuple):
    """What goes into a request: a text, or blocks when files come along."""

    text: str | None
    content: list[dict[str, Any]] | None
    replaced: int

    @property
    def fields(self) -> dict[str, Any]:
        return {"text": self.text, "content": self.content}


def said(words: tuple[str, ...], files: tuple[str, ...] = (), refs: tuple[str, ...] = ()) -> Said:
    """The text and its attachments, read now, so that the daemon needs no path of ours."""
    blocks = [*map(text.file_block, files), *map(text.ref_block, refs)]
    stdin, tty = text.standard_input()
    got = text.gather(words, stdin, tty, optional=bool(blocks), typed=typed())
    if not blocks:
        return Said(got.text, None, got.replaced)
    first = [{"type": "text", "text": got.text}] if got.text.strip() else []
    return Said(None, first + blocks, got.replaced)


def typed() -> str:
    """The command that was typed, up to its text: ``dshctl steer``, ``dshctl queue edit MESSAGE``."""
    ctx = click.get_current_context()
    arguments = [param.name for param in ctx.command.params if isinstance(param, click.Argument)]
    return f"{ctx.command_path}{' MESSAGE' if 'message' in arguments else ''}"


def send_params(cli: Cli, verb: wire.Verb, given: dict[str, Any], message: Said) -> wire.SendParams:
    """A `session.send` from a verb's options."""
    params = _send_params(cli, verb, given, message)
    try:
        params.check()
    except Invalid as error:
        raise Mistake(error.message.partition(" @ $.")[0]) from None
    return params


def _send_params(cli: Cli, verb: wire.Verb, given: dict[str, Any], message: Said) -> wire.SendParams:
    return wire.SendParams(
        **where(cli, given.get("session"), given),
        **message.fields,
        settings=settings(cli, given),
        verb=verb,
        no_wake=bool(given.get("no_wake")),
        key=key_of(given.get("key")),
        retry=bool(given.get("retry")),
        tag=given.get("tag"),
        first=bool(given.get("first")),
        if_idle=bool(given.get("if_idle")),
        if_empty=bool(given.get("if_empty")),
        if_turn=given.get("if_turn"),
        now=bool(given.get("now")),
        at=given.get("at"),
        in_=given.get("in_"),
        expires=given.get("expires"),
        hold=bool(given.get("hold")),
        supersede=bool(given.get("supersede")),
        on_crash=given.get("on_crash"),
        when_full=given.get("when_full") or "refuse",
        dry_run=bool(given.get("dry_run")),
        as_=given.get("as_"),
        tied=bool(given.get("tied")),
        create=given.get("to_create"),
    )


def key_of(key: str | None) -> str | None:
    return None if key is None else expand(key)


def complete(receipt: dict[str, Any], replaced: int) -> dict[str, Any]:
    """The receipt with what only this side knows."""
    return {"type": "receipt", **receipt, "replaced": (receipt.get("replaced") or 0) + replaced}


def announce(cli: Cli, receipt: dict[str, Any], params: wire.SendParams | wire.InterruptParams) -> None:
    """The sentence for a terminal, and what everybody must hear: a new session, replaced bytes."""
    out = cli.out
    if receipt.get("created"):
        where = f" for {text.short(receipt['dir'])}" if receipt.get("dir") else ""
        out.say(f"dshctl: new session {sentences.name_of(receipt)}{where}.")
        say_model(cli, receipt["session"])
    if receipt.get("reopened"):
        out.say(f"dshctl: {sentences.name_of(receipt)} was closed and is open again.")
    for line in sentences.replaced(receipt):
        out.say(line)
    if receipt.get("warning"):
        out.say(f"dshctl: {fates.warning(receipt['warning'])}")
    if isinstance(params, wire.InterruptParams):
        asked = {"verb": "interrupt", "keep": params.keep}
    else:
        asked = {"wake": params.intent()[1]}
    out.tell(fates.receipt({**receipt, **asked}))


def say_model(cli: Cli, session: str) -> None:
    """Which model a session that was just made got, and why: its log's first line knows."""
    if cli.out.quiet:
        return
    try:
        told = list(cli.client().stream(wire.LogReadParams(session=session)))
    except DshError:
        return  # it is made all the same
    header = told[0][1].get("event") or {}
    if header.get("type") == "session/header":
        cli.out.say(f"dshctl: {sentences.which_model(header['data'])}")


def deliver(
    cli: Cli, params: wire.SendParams | wire.InterruptParams, given: dict[str, Any], replaced: int
) -> int:
    """Send, say what became of it, and with --wait or --follow stay until it has ended."""
    waits = given.get("wait") or given.get("follow")
    if given.get("tied") and not waits:
        raise Mistake("--tied needs --wait or --follow")
    if given.get("dry_run"):
        return _dry_run(cli, params, bool(waits))
    receipt = complete(_sent_or_spooled(cli, params, given), replaced)
    announce(cli, receipt, params)
    cli.out.item(receipt, hold=not waits)
    if not waits:
        if not cli.out.quiet:
            cli.out.line(str(receipt["message"]))
        return exits.DONE
    from dshctl.follow import to_the_end

    return to_the_end(
        cli,
        receipt,
        progress=bool(given.get("follow")),
        stay=bool(given.get("stay")),
        tied=bool(given.get("tied")),
    )


def _dry_run(cli: Cli, params: wire.Params, waits: bool) -> int:
    if waits:
        raise Mistake("--dry-run sends nothing, so there is nothing to wait for")
    found = cli.ask(params, repeat=True)
    cli.out.item({"type": "would", **found})
    cli.out.line(fates.would(found))
    return int(found["exit"])


def _sent_or_spooled(cli: Cli, params: wire.Params, given: dict[str, Any]) -> dict[str, Any]:
    if not given.get("spool") or not isinstance(params, wire.SendParams):
        return _sent(cli, params)
    from dshctl import spooling

    return spooling.send(cli, params, given, lambda: _sent(cli, params))


def _sent(cli: Cli, params: wire.Params) -> dict[str, Any]:
    """The receipt. Who waits for room waits through a restart of the daemon too: nothing was written."""
    while True:
        try:
            receipt: dict[str, Any] = cli.ask(params)
            return receipt
        except Unavailable as error:
            if getattr(params, "when_full", None) != "wait" or error.outcome != "not-written":
                raise
        from dshctl.follow import reconnect

        reconnect(cli.client(), cli.autostart)
