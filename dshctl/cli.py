"""argv to a command.

The table below is all that `dshctl --help` needs; a command's module is imported when it is
called. Words that are no command are in `words`.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Any, Final, NamedTuple

import click

from dshctl import exits
from dshctl.base import CONTEXT, Cli, global_options
from dshctl.output import Out, error_item
from dshctl.streams import Unwritable
from dshctl.words import mistaken
from dshd import __version__, wire
from dshd.errors import DshError, Invalid


class Entry(NamedTuple):
    """A command: the module that has it, what it does in a few words, and an example."""

    module: str
    does: str
    example: str = ""


# The ten usual ones come first, in the order in which people need them.
USUAL: Final[dict[str, Entry]] = {
    "run": Entry("run", "new session: do this, answer", "dshctl run 'what is in this directory?'"),
    "followup": Entry("followup", "the next piece of work", "dshctl followup 'now add tests'"),
    "steer": Entry("steer", "correct the turn that is running", "dshctl steer 'use the new fixture'"),
    "inject": Entry("inject", "slip a fact in; wakes nobody", "dshctl inject 'main is frozen today'"),
    "status": Entry("status", "what runs, waits, and needs you", "dshctl status"),
    "log": Entry("log", "the conversation", "dshctl log -f"),
    "attach": Entry("attach", "a terminal on a session", "dshctl attach"),
    "queue": Entry("queue", "what is still to be done", "dshctl queue"),
    "abort": Entry("abort", "stop the turn that is running", "dshctl abort"),
    "ls": Entry("ls", "the sessions", "dshctl ls --all"),
}
OTHERS: Final[dict[str, Entry]] = {
    "answer": Entry("answer", "the last answer"),
    "interrupt": Entry("interrupt", "stop what runs and do this instead"),
    "wake": Entry("wake", "go on after a park; release a held message"),
    "retry": Entry("retry", "the last turn once more, if it failed"),
    "compact": Entry("compact", "make room in a conversation"),
    "prompt": Entry("prompt", "what the model is told, and how large it is"),
    "remember": Entry("remember", "what every later turn is to know"),
    "wait": Entry("wait", "wait for messages, or for idle"),
    "approvals": Entry("approvals", "what waits for your answer"),
    "allow": Entry("allow", "let it run"),
    "deny": Entry("deny", "don't let it run"),
    "message": Entry("message", "a message's way, step by step"),
    "why": Entry("why", "what a message waits for, in one sentence"),
    "agents": Entry("agents", "sessions that work for others"),
    "jobs": Entry("jobs", "what goes on in the background"),
    "schedule": Entry("schedule", "what is sent by the clock"),
    "new": Entry("new", "make a session"),
    "show": Entry("show", "all about a session"),
    "set": Entry("set", "change a session's settings: K=V"),
    "rename": Entry("rename", "give a session a name"),
    "close": Entry("close", "put a session away"),
    "reopen": Entry("reopen", "take a closed or faulted session up again"),
    "rm": Entry("rm", "delete a session"),
    "fork": Entry("fork", "a new session with this one's history"),
    "export": Entry("export", "a session as one file"),
    "import": Entry("import_", "a session out of such a file"),
    "tools": Entry("tools", "the tools, and what decides about them"),
    "usage": Entry("usage", "tokens and cost, by day, session, model"),
    "models": Entry("models", "the models that can be used"),
    "key": Entry("key", "keep a provider's key"),
    "config": Entry("config", "check or show the configuration"),
    "paths": Entry("paths", "where everything is"),
    "doctor": Entry("doctor", "is all well? what to type if not"),
    "setup": Entry("setup", "manual pages, completions, units for you"),
    "completion": Entry("completion", "completion for bash, zsh or fish"),
    "fsck": Entry("fsck", "check the logs; --repair one"),
    "daemon": Entry("daemon", "start, stop, restart, reload the daemon"),
    "ping": Entry("ping", "is a daemon there?"),
    "acp": Entry("acp", "an agent for editors (Agent Client Protocol)"),
    "rpc": Entry("rpc", "the daemon's protocol, for programs"),
}
COMMANDS: Final = {**USUAL, **OTHERS}
# {the first command of a group of the others: its heading in --help}
GROUPS: Final = {
    "answer": "A conversation:", "approvals": "What waits, and what goes on beside:", "new": "Sessions:",
    "tools": "Models and tools:", "key": "Looking after it:", "acp": "For programs:",
}  # fmt: skip


class Root(click.Group):
    """The top: knows every command's name and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        if entry is None:
            return None
        module = import_module(f"dshctl.commands.{entry.module}")
        found = module.COMMAND
        assert isinstance(found, click.Command)
        return found

    def does(self, name: str) -> str:
        """What a command does, without importing it."""
        return COMMANDS[name].does

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            raise mistaken(args[0], COMMANDS, lambda: _running_turns(ctx.obj))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("\n".join(usual_lines()) + "\n\n")
        formatter.write("\n".join(other_lines()) + "\n")
        self.format_options_alone(ctx, formatter)

    def format_options_alone(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))]
        with formatter.section("Options, before or after the command"):
            formatter.write_dl(records)


def _running_turns(cli: Cli) -> int:
    """How many turns run; 0 where nobody answers."""
    from dshd.wire import StatusParams

    try:
        if not cli.client().is_running():
            return 0
        status = cli.ask(StatusParams(), start=False)
    except DshError:
        return 0
    return sum(session.get("phase") == "running" for session in status.get("sessions") or ())


def usual_lines() -> list[str]:
    """The ten usual commands with an example each."""
    rows = [f"  {entry.example:<42} {entry.does}" for entry in USUAL.values()]
    return ["Usage: dshctl COMMAND ...", "", *rows]


def other_lines() -> list[str]:
    lines: list[str] = []
    for name, entry in OTHERS.items():
        if name in GROUPS:
            lines += ["", GROUPS[name]]
        lines.append(f"  {name:<10} {entry.does}")
    return lines[1:]


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value:
        return
    out: Out = ctx.obj.out
    out.line(f"dshctl {__version__}")
    out.item({"type": "version", "version": __version__, "protocol": wire.PROTOCOL})
    out.finish(exits.DONE)
    ctx.exit(exits.DONE)


ROOT = Root(
    "dshctl",
    invoke_without_command=True,
    no_args_is_help=False,
    context_settings=CONTEXT,
    params=[
        *global_options(),
        click.Option(["--version"], is_flag=True, expose_value=False, callback=_version,
                     help="The version, and with --json the protocol's."),
    ],
)  # fmt: skip


class Terminated(BaseException):
    """SIGTERM came. The work goes on in the daemon."""


def _on_sigterm(_: int, __: FrameType | None) -> None:
    raise Terminated


def _open_descriptors() -> None:
    """0, 1 and 2 exist, or a socket would get such a number and answers would be written into it."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def utf8_argv(args: list[str]) -> list[str]:
    """argv as UTF-8 with surrogate escapes, whatever the locale made of it."""
    return [os.fsencode(arg).decode("utf-8", "surrogateescape") for arg in args]


def wants_json(args: list[str]) -> bool:
    """Known before parsing, for mistakes in parsing are told in JSON, too."""
    return "--json" in (args[: args.index("--")] if "--" in args else args)


def main() -> None:
    """The entry point of `dshctl`."""
    closed = sys.stdin is None or sys.stdout is None or sys.stderr is None
    if closed:
        _open_descriptors()
    signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        code = run(utf8_argv(sys.argv[1:]))
    except KeyboardInterrupt:
        code = exits.SIGINT
    except Terminated:
        code = exits.SIGTERM
    except Exception as bug:  # a mistake of ours; no reason to show its insides unasked
        code = _bug(bug)
    # Nothing is left to flush, and tearing down the interpreter costs a tenth of a ping.
    sys.stdout = sys.stderr = None
    os._exit(code)


def _bug(bug: Exception) -> int:
    if "-v" in sys.argv or "--verbose" in sys.argv:
        import traceback

        traceback.print_exception(bug)
    Out().error_sentence(
        DshError(f"a mistake in dshctl: {type(bug).__name__}: {bug}", hint="again with -v: where")
    )
    return exits.FAILURE


def run(args: list[str], out: Out | None = None) -> int:
    """Run a command line; the exit code."""
    out = out or Out()
    out.json = wants_json(args)
    try:
        code = _invoke(args, out)
        out.finish(code)
    except click.exceptions.Exit as ended:  # --help, --version: they have said it all
        return ended.exit_code
    except Unwritable as why:
        return _unwritable(str(why), out)
    return code


def _unwritable(why: str, out: Out) -> int:
    out.out.silence()
    done = f"; {out.achieved}" if out.achieved else ""
    out.error_sentence(DshError(f"cannot write to standard output: {why}{done}"))
    return exits.FAILURE


def _invoke(args: list[str], out: Out) -> int:
    cli = Cli(out)
    try:
        return _call(args, cli)
    except click.UsageError as mistake:
        out.error(usage_error(mistake))
        return exits.USAGE
    except DshError as error:
        out.error(in_our_words(error))
        return error.exit_status
    except BrokenPipeError:  # click's own help text, to a pager that was left
        out.out.silence()
        return exits.DONE
    except OSError as error:
        out.error(system_error(error))
        return exits.FAILURE
    except KeyboardInterrupt:
        return exits.SIGINT
    except Terminated:
        return exits.SIGTERM
    finally:
        cli.close()


def _call(args: list[str], cli: Cli) -> int:
    with ROOT.make_context("dshctl", args, obj=cli) as ctx:
        if not ctx._protected_args and not ctx.args:
            return _bare(cli.out)
        code = ROOT.invoke(ctx)
        return code if isinstance(code, int) else exits.DONE


def _bare(out: Out) -> int:
    out.lines([*usual_lines(), "", "More: dshctl --help"])
    out.item(error_item(Invalid("no command", hint="dshctl --help")))
    return exits.USAGE


# Of a request's fields those that no option has.
_NO_OPTION = frozenset({"text", "content", "session", "message", "messages", "verb", "values"})


def in_our_words(error: DshError) -> DshError:
    """``expected an integer @ $.if_turn`` as ``--if-turn: expected an integer``: who types options knows
    nothing of a request's fields."""
    what, at, path = error.message.rstrip(".").partition(" @ $.")
    if at:
        names = [name for name in path.split(".") if name != "values"]
        field = ".".join(names)
        option = path == field and field.isidentifier() and field not in _NO_OPTION
        error.message = f"{'--' + field.replace('_', '-') if option else field}: {what}" if field else what
    return error


def system_error(error: OSError) -> DshError:
    """What the system refused, and where."""
    reason = (error.strerror or str(error)).lower()
    return DshError(f"{error.filename}: {reason}" if error.filename else reason)


def usage_error(mistake: click.UsageError) -> Invalid:
    """click's error in our words."""
    hint = getattr(mistake, "hint", None)
    if hint is None:
        path = mistake.ctx.command_path if mistake.ctx else "dshctl"
        hint = f"{path} --help"
    if isinstance(mistake, click.NoSuchOption):
        return _no_such_option(mistake, hint)
    message = mistake.format_message().rstrip(".")
    return Invalid(message[:1].lower() + message[1:], hint=hint)


NEW_SESSIONS: Final = ("run", "new")


def _send_options() -> set[str]:
    from dshctl.commands import followup

    return {flag for param in followup.COMMAND.params for flag in param.opts}


def _no_such_option(mistake: click.NoSuchOption, hint: str) -> Invalid:
    option = mistake.option_name
    name = mistake.ctx.command_path if mistake.ctx else "dshctl"
    if " " in option or option.startswith("---"):  # a text that begins with a dash
        return Invalid("a text that begins with - goes behind --", hint=f"{name} -- '- TEXT'")
    if name.removeprefix("dshctl ") in NEW_SESSIONS and option in _send_options():
        return Invalid(f"{option} is for sends to a session, and {name} makes a new one",
                       hint="dshctl followup --help")  # fmt: skip
    close = f"; did you mean {mistake.possibilities[0]}?" if mistake.possibilities else ""
    return Invalid(f"{name} has no option {option}{close}", hint=hint)


if __name__ == "__main__":
    main()
