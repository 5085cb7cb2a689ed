"""What may come at the end of a command line that is being typed.

The commands themselves are asked for their words and options; names and ids come from the daemon, and, where
none runs, from the files. No daemon is started. What can't be said is left out: who presses Tab wants no
error.

A candidate is ``(word, what it is)``. Words that begin with ``//`` are for the shell's script: complete
``//files`` or ``//directories`` by yourself, put ``//nospace`` behind the word.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from dshctl.output import one_line
from dshd import wire

if TYPE_CHECKING:
    from dshctl.base import Cli

Json = dict[str, Any]
Candidate = tuple[str, str]
Source = Callable[["Cli", str | None], Iterator[Candidate]]

FILES: Final = ("//files", "")
DIRECTORIES: Final = ("//directories", "")
NOSPACE: Final = ("//nospace", "")
WIDTH: Final = 60  # characters that tell what a candidate is


def candidates(cli: Cli, root: click.Group, line: str) -> Iterator[Candidate]:
    """What may come at the end of ``line``, a command line with its program."""
    words = split(line)
    if not words or len(words) == 1:
        return
    partial, typed = words[-1], words[1:-1]
    with click.Context(root, info_name="dshctl") as ctx:
        yield from (found for found in _of(cli, ctx, root, typed, partial) if _fits(found, partial))


def _fits(found: Candidate, partial: str) -> bool:
    return found[0].startswith("//") or found[0].startswith(partial)


def split(line: str) -> list[str]:
    """The words of an unfinished line; the last is what is being typed, "" behind a space."""
    for end in ("", "\\", "'", '"'):
        try:
            words = shlex.split(line + end, posix=True)
        except ValueError:
            continue
        return [*words, ""] if not end and (not line or line[-1].isspace()) else words
    return line.split()


def _of(
    cli: Cli, ctx: click.Context, command: click.Command, typed: list[str], partial: str
) -> Iterator[Candidate]:
    """Walk the words that are there already, then say what may follow them."""
    session, before, bare, plain = None, "", 0, "--" in typed
    for word in typed:
        option = None if plain else _option(command, before)
        if option is not None:
            session = word if option.name == "session" else session
            before = ""
            continue
        before = word
        if word.startswith("-"):
            continue
        if isinstance(command, click.Group):
            found = command.get_command(ctx, word)
            if found is None:
                return
            command = found
        else:
            bare += 1
    option = None if plain else _option(command, before)
    if option is not None:
        yield from _values(cli, option, session)
    elif partial.startswith("--") and "=" in partial and not plain:
        yield from _inline(cli, command, partial, session)
    elif partial.startswith("-") and not plain:
        yield from _options(command)
    else:
        yield from _bare(cli, ctx, command, bare, session, partial)


def _option(command: click.Command, word: str) -> click.Option | None:
    """The option that waits for its value behind ``word``."""
    for param in command.params:
        if isinstance(param, click.Option) and word in param.opts and not param.is_flag and not param.count:
            return param
    return None


def _options(command: click.Command) -> Iterator[Candidate]:
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            longest = max([*param.opts, *param.secondary_opts], key=len)
            yield longest, one_line(param.help or "")


def _inline(cli: Cli, command: click.Command, partial: str, session: str | None) -> Iterator[Candidate]:
    """``--mode=re``."""
    flag = partial.partition("=")[0]
    option = _option(command, flag)
    for word, what in _values(cli, option, session) if option is not None else ():
        yield (word, what) if word.startswith("//") else (f"{flag}={word}", what)


def _values(cli: Cli, option: click.Option, session: str | None) -> Iterator[Candidate]:
    if isinstance(option.type, click.Choice):
        yield from ((str(choice), "") for choice in option.type.choices)
    elif option.name in OPTIONS:
        yield from OPTIONS[option.name](cli, session)


def _bare(
    cli: Cli, ctx: click.Context, command: click.Command, number: int, session: str | None, partial: str
) -> Iterator[Candidate]:
    """Words that are no options: commands, sessions, messages, ..."""
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            yield name, _does(ctx, command, name)
        return
    for param in [p for p in command.params if isinstance(p, click.Argument)]:
        if isinstance(param.type, click.Choice):
            yield from ((str(choice), "") for choice in param.type.choices)
        elif param.name in ARGUMENTS and (number == 0 or param.nargs == -1):
            yield from ARGUMENTS[param.name](cli, session)
    if command.name in ("set", "rename") and number == 0:
        yield from _sessions(cli, session)
    if command.name == "set":
        yield from _settings(partial)


def _does(ctx: click.Context, group: click.Group, name: str) -> str:
    """Without importing each command, where the group has a table."""
    told: str | None = getattr(group, "does", lambda _: None)(name)
    if told is not None:
        return told
    found = group.get_command(ctx, name)
    return found.get_short_help_str(WIDTH) if found is not None else ""


def _settings(partial: str) -> Iterator[Candidate]:
    """``net=``, and behind it what it may be."""
    name, equals, _ = partial.partition("=")
    if not equals:
        yield from ((f"{setting}=", kind) for setting, kind in wire.SETTINGS.items())
        yield NOSPACE
        return
    for value in wire.NEEDED.get(name, "").split(", ") if name in ("mode", "net", "ask") else ():
        yield f"{name}={value}", ""


# -- names and ids


def _sessions(cli: Cli, _: str | None) -> Iterator[Candidate]:
    params = wire.ListParams(all=True)
    if cli.client().is_running():
        listing = cli.ask(params, start=False)
    else:
        from dshctl import offline

        listing = offline.listing(cli, params)
    for view in listing.get("sessions") or ():
        yield view.get("name") or view["id"], _about(f"{view.get('state')}  {view.get('title') or ''}")


def _messages(cli: Cli, session: str | None) -> Iterator[Candidate]:
    """What waits in a session's queues."""
    if not cli.client().is_running():
        return
    for message in cli.ask(wire.QueueLsParams(**cli.where(session)), start=False)["messages"]:
        yield message["id"], _about(f"{message.get('verb')}  {message.get('text') or ''}")


def _schedules(cli: Cli, _: str | None) -> Iterator[Candidate]:
    if cli.client().is_running():
        for row in cli.ask(wire.ScheduleListParams(), start=False)["schedules"]:
            yield row["id"], _about(f"{row['when']}  {row['text']}")


def _jobs(cli: Cli, _: str | None) -> Iterator[Candidate]:
    if cli.client().is_running():
        for row in cli.ask(wire.JobListParams(), start=False)["jobs"]:
            yield row["id"], _about(f"{row['name']}  {row['command']}")


def _approvals(cli: Cli, _: str | None) -> Iterator[Candidate]:
    """What waits for an answer; only a daemon can take one."""
    if cli.client().is_running():
        for approval in cli.ask(wire.ApprovalListParams(), start=False)["approvals"]:
            yield approval["id"], _about(f"{approval.get('name')}  {approval.get('what')}")


def _models(cli: Cli, _: str | None) -> Iterator[Candidate]:
    if cli.client().is_running():
        rows = cli.ask(wire.ModelListParams(), start=False)["models"]
    else:
        from dshd import paths
        from dshd.vet import vet

        rows = vet(paths.find_places(os.environ, socket=cli.socket), os.environ)[1].rows()
    for row in rows:
        yield row["route"], _about(str(row.get("model") or ""))


def _keys(_: Cli, __: str | None) -> Iterator[Candidate]:
    for place in ("date", "hour", "minute", "boot"):
        yield f"{{{place}}}", ""


def _words(*words: str) -> Source:
    return lambda *_: iter([(word, "") for word in words])


def _files(_: Cli, __: str | None) -> Iterator[Candidate]:
    yield FILES


def _directories(_: Cli, __: str | None) -> Iterator[Candidate]:
    yield DIRECTORIES


def _about(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."


OPTIONS: Final[dict[str | None, Source]] = {
    "session": _sessions,
    "model": _models,
    "key": _keys,
    "mode": _words(*wire.MODES),
    "net": _words("on", "off"),
    "ask": _words("wait", "deny"),
    "dir": _directories,
    "directory": _directories,
    "file": _files,
    "files": _files,
    "ref": _files,
    "refs": _files,
    "output": _files,
    "schema": _files,
    "socket": _files,
}
ARGUMENTS: Final[dict[str | None, Source]] = {
    "which": _sessions,
    "session": _sessions,
    "message": _messages,
    "messages": _messages,
    "names": _sessions,
    "id": _approvals,
    "job": _jobs,
    "route": _models,
    "schedule": _schedules,
    "file": _files,
}
