"""What `followup`, `steer`, `inject`, `interrupt` and `run` have in common: from words to receipt."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click

from dshctl import exits, fates, sentences, text, times
from dshctl.base import DURATION, NUMBER, SESSION, WORDS, Cli, Mistake, Read, here
from dshctl.keys import expand
from dshd import paths, wire
from dshd.errors import DshError, Invalid, NotFound, Unavailable

Option = Callable[[Any], Any]

# Options of everything that sends.
ATTACH = (
    click.option(
        "--file",
        "files",
        multiple=True,
        metavar="F[:A-B]",
        help="Send a snapshot of a file, or of its lines A to B.",
    ),
    click.option(
        "--ref", "refs", multiple=True, metavar="F", help="Name a file; the agent reads it when it wants to."
    ),
)
KEY = click.option(
    "--key",
    metavar="K",
    help="Send once, however often this is repeated; {date} {hour} {minute} {boot} are filled in.",
)
RETRY = click.option(
    "--retry", is_flag=True, help="With --key: if what was sent before has failed, try that again."
)
TAG = click.option("--tag", metavar="T", help="A label to find it by.")
TIME = Read("TIME", lambda typed: wire.parse_time(typed, times.now_ms()))
LATER = (
    click.option("--at", type=TIME, metavar="TIME", help="Hold it until then: 18:00, tomorrow 06:00, @UNIX."),
    click.option("--in", "in_", type=DURATION, metavar="D", help="Hold it that long (90s, 10m, 2h)."),
    click.option("--hold", is_flag=True, help="Hold it until a person releases it: dshctl wake MESSAGE."),
    click.option(
        "--expires", type=DURATION, metavar="D", help="If it still waits after D, it is gone, unseen."
    ),
)
FLAGS = (
    click.option("--supersede", is_flag=True, help="Replace what waits with the same --tag."),
    click.option(
        "--on-crash",
        type=click.Choice(["hold", "requeue"]),
        metavar="hold|requeue",
        help="What becomes of it if dshd ends while its turn is about to begin (requeue).",
    ),
    click.option(
        "--when-full",
        type=click.Choice(["refuse", "wait"]),
        default="refuse",
        metavar="refuse|wait",
        help="If too much waits already: exit 6, or wait until there is room.",
    ),
    click.option("--dry-run", is_flag=True, help="Say what would become of it, and send nothing."),
)
AS = click.option(
    "--as",
    "as_",
    metavar="KIND",
    type=click.Choice(["user", "schedule", "agent", "job", "hook", "plugin", "system"]),
    help="Whose words these are, if less than yours.",
)
TIED = click.option("--tied", is_flag=True, help="Abort it if this command ends before it does.")
ENDS = (
    click.option("--wait", is_flag=True, help="Wait for the end and print the answer."),
    click.option("--follow", is_flag=True, help="The same, with progress on standard error."),
    click.option("--stay", is_flag=True, help="Wait on, also where only a person can move it."),
    TIED,
)
WHEN = (
    click.option("--if-idle", is_flag=True, help="Only if nothing runs; else exit 5."),
    click.option("--if-empty", is_flag=True, help="Only if nothing is queued; else exit 5."),
    click.option("--if-turn", type=NUMBER, metavar="N", help="Only while turn N runs; else exit 5."),
    click.option("--first", is_flag=True, help="To the head of its queue."),
    click.option("--no-wake", is_flag=True, help="Queue it and wake nobody."),
)

DIRECTORY = click.option("-C", "directory", metavar="DIR", help="As if started in DIR.")
# Options of everything that may make a session: {option: how SETTINGS reads it}.
SETTINGS = (
    click.option("--name", metavar="NAME", help="The session's name."),
    DIRECTORY,
    click.option("--model", metavar="ROUTE", help="The model; see dshctl models."),
    click.option("--mode", metavar="MODE", help="read-only, workspace or full."),
    click.option("--net", metavar="on|off", help="Whether commands may use the network."),
    click.option("--ask", metavar="wait|deny", help="What to do where a person is asked."),
    click.option(
        "--env",
        "env",
        multiple=True,
        metavar="NAME",
        help="Give the session this variable (NAME or NAME=VALUE).",
    ),
    click.option("--patience", metavar="D", help="How long to wait for a provider; 0: no retry at all."),
    click.option("--max-cost", metavar="MONEY", help="What a turn may cost (2 or 0.50); 0 is no limit."),
    click.option("--max-steps", metavar="N", help="How many steps a turn may take."),
    click.option("--max-time", metavar="D", help="How long a turn may work."),
    click.option("--max-tokens", metavar="N", help="How many tokens a turn may use (100k, 2M)."),
)
BUDGETS = ("max_cost", "max_steps", "max_time", "max_tokens")


def options(*groups: Any) -> Callable[[Any], Any]:
    """Several options as one decorator, in the order in which the help shows them."""
    flat = [option for group in groups for option in (group if isinstance(group, tuple) else (group,))]

    def wrap(function: Any) -> Any:
        for option in reversed(flat):
            function = option(function)
        return function

    return wrap


SPOOL = click.option(
    "--spool", is_flag=True, help="If no daemon can be reached: keep it on disk for the next one."
)
SEND = options(WORDS, SESSION, *ATTACH, *WHEN, *LATER, KEY, RETRY, TAG, *FLAGS, SPOOL, AS, *ENDS)


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


def setting(name: str, value: str | None) -> Any:
    """An option's value as the daemon takes it."""
    if value == "":
        wire.check_unset(name)
    return None if not value else wire.setting(name, value)


def create_params(
    cli: Cli, given: dict[str, Any], *, implicit: bool = False, run: bool = False
) -> wire.CreateParams:
    """A session to be made, from the session options (``given``, by option name)."""
    name = given.get("name")
    return wire.CreateParams(
        dir=directory(given.get("directory")),
        name=None if name is None else wire.check_name(name),
        implicit=implicit,
        run=run,
        model=setting("model", given.get("model")),
        mode=setting("mode", given.get("mode")),
        net=setting("net", given.get("net")),
        ask=setting("ask", given.get("ask")),
        patience=setting("patience", given.get("patience")),
        **{name: setting(name, given.get(name)) for name in BUDGETS},
        env=environment(cli.out.environ, given.get("env") or ()),
        terminal=cli.terminal,
    )


def environment(environ: Mapping[str, str], named: tuple[str, ...]) -> dict[str, str]:
    """What the session's tools get of ours; values that are not UTF-8 are made so."""
    taken = paths.session_environment(environ, named)
    return {name: text.clean(os.fsencode(value)).text for name, value in taken.items()}


def directory(option: str | None) -> str:
    """The session's directory: ``-C``, else this one. Raises NotFound, Invalid."""
    if option is not None:
        return existing_directory("-C", option)
    found = here()
    if found is None:
        gone = "the current directory is gone or its name is no UTF-8"
        raise Invalid(f"{gone}; name one with -C DIR, or a session with -s")
    return found


def existing_directory(what: str, typed: str) -> str:
    """A directory as typed here: absolute, without links. Raises NotFound, Invalid."""
    if not typed:
        raise Invalid(f"{what} can't be empty: a directory")
    absolute = os.path.realpath(text.absolute(typed))
    if not os.path.isdir(absolute):
        raise NotFound(f"{what} {text.clean_word(absolute).text}: no such directory")
    return text.clean_word(absolute).text


def worktree(start: str) -> str:
    """The top of the git work tree that holds this directory, else the directory itself."""
    place = start
    while True:
        if os.path.exists(os.path.join(place, ".git")):
            return place
        above = os.path.dirname(place)
        if above == place:
            return start
        place = above


def to_create(cli: Cli, ref: str | None, create: bool, given: dict[str, Any]) -> wire.CreateParams | None:
    """What to make if there is no such session: for this directory always, for a name with --create."""
    place = where(cli, ref, given)
    if place["session"] in (None, "."):
        if place["cwd"] is None:
            return None
        return create_params(cli, {**given, "directory": worktree(place["cwd"])}, implicit=True)
    if not create:
        return None
    if given.get("name") not in (None, place["session"]):
        raise Mistake(f'two names: "{place["session"]}" and "{given["name"]}"')
    return create_params(cli, {**given, "name": place["session"]})


def where(cli: Cli, ref: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """`Cli.where`, with ``-C``: as if typed there, whatever the environment says."""
    if given.get("directory") is None:
        return cli.where(ref)
    return {"session": ref or ".", "cwd": existing_directory("-C", given["directory"])}


def settings(cli: Cli, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a session that is there already must have, of the session options given."""
    names = ("model", "mode", "net", "ask", "patience", *BUDGETS)
    wanted = {name: setting(name, given.get(name)) for name in names}
    wanted["name"] = given.get("name")
    if given.get("directory") is not None and given.get("session") not in (None, "."):
        wanted["dir"] = existing_directory("-C", given["directory"])
    named = [item.partition("=")[0] for item in given.get("env") or ()]
    taken = environment(cli.out.environ, tuple(given.get("env") or ()))
    wanted |= {f"env.{name}": taken[name] for name in named}
    return {name: value for name, value in wanted.items() if value is not None}


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
        where = f" for {short(receipt['dir'])}" if receipt.get("dir") else ""
        out.say(f"dshctl: new session {sentences.name_of(receipt)}{where}.")
        say_model(cli, receipt["session"])
    if receipt.get("reopened"):
        out.say(f"dshctl: {sentences.name_of(receipt)} was closed and is open again.")
    if receipt.get("replaced"):
        out.say(f"dshctl: {sentences.count(receipt['replaced'], 'character')} replaced: not UTF-8, or NUL.")
    if receipt.get("warning"):
        out.say(f"dshctl: {warning(receipt['warning'])}")
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


WARNINGS = {
    "stopping": "the daemon is stopping; this runs when it is back.",
    "no-unit": "no service keeps dshd running until then. If it has ended, this waits for its next start.",
    "other-unit": "dshd.service is enabled, but did not start this dshd. If it has ended, this waits.",
    "no-linger": "dshd ends when you log out. To keep it running until then: loginctl enable-linger",
}


def warning(word: str) -> str:
    """A receipt's warning in words."""
    return WARNINGS.get(word, word)


def short(path: str) -> str:
    """A path as a person writes it."""
    return wire.tilde(path, os.environ.get("HOME", ""))


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
