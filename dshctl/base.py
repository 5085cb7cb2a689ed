"""What every command shares: the global options, how mistakes in them read, and the run's state.

A command is a function that takes `Cli` (and its own options) and returns an exit code; None is 0.
Global options may stand before or after the command, so each command has them too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from dshctl.output import Out
from dshd import wire
from dshd.errors import Invalid

if TYPE_CHECKING:
    from dshctl.client import Client
    from dshctl.connection import Connection


class Cli:
    """The state of one run of dshctl: global options, streams, and the connection when there is one."""

    def __init__(self, out: Out) -> None:
        self.out = out
        self.socket: str | None = None
        self.timeout: float | None = None  # seconds for the whole command
        self.autostart = os.environ.get("DSHD_AUTOSTART", "1") not in ("0", "no", "off", "false")
        self.announces = True  # whether starting a daemon is news
        self._client: Client | None = None

    @property
    def json(self) -> bool:
        return self.out.json

    @property
    def terminal(self) -> bool:
        """Whether a person sits here: what decides if they can be asked something in place."""
        return sys.stdin is not None and sys.stdin.isatty() and self.out.err.tty

    def client(self) -> Client:
        """The connection, made on first use; it starts the daemon if it may."""
        if self._client is None:
            from dshctl.client import Client

            self._client = Client(self, _start_daemon)
        return self._client

    def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            self._client.drop()

    def ask(self, params: wire.Params, **options: Any) -> Any:
        """One request and its result."""
        return self.client().ask(params, **options)

    def where(self, ref: str | None) -> dict[str, Any]:
        """``session`` and ``cwd`` of a request: the reference as typed, and where it was typed."""
        return {"session": ref or os.environ.get("DSHD_SESSION") or None, "cwd": here()}


def _start_daemon(client: Client) -> Connection:
    from dshctl.autostart import start

    return start(client)


def here() -> str | None:
    """The current directory, None if it was deleted or its name isn't UTF-8."""
    try:
        return os.fsencode(os.getcwd()).decode()
    except (OSError, UnicodeDecodeError):
        return None


class Mistake(click.UsageError):
    """An error of usage that knows the right command."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def duration(text: str) -> float:
    return wire.parse_duration(text)


class Read(click.ParamType[Any]):
    """An option's value read by a function that raises `Invalid`."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except Invalid as error:
            raise Mistake(f"{_flag(param)}: {error.message}", error.hint) from None


def _flag(param: click.Parameter | None) -> str:
    return max(param.opts, key=len) if param is not None else "option"


DURATION: Final = Read("D", duration)
MOST: Final = 2**53 - 1  # that JSON carries everywhere


class Number(click.IntRange):
    """A whole number from ``least`` on, refused in our words."""

    def __init__(self, least: int) -> None:
        super().__init__(least, MOST)

    def fail(
        self, message: str, param: click.Parameter | None = None, ctx: click.Context | None = None
    ) -> NoReturn:
        given = message.partition(" is not")[0]
        raise Mistake(f"{_flag(param)}: {given} is not a whole number from {self.min} on")


NUMBER: Final = Number(1)


def _set(name: str, value_of: Callable[[Any], Any] = lambda value: value) -> Callable[..., None]:
    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            target = ctx.obj if name in ("socket", "timeout", "autostart") else ctx.obj.out
            setattr(target, name, value_of(value))

    return callback


def global_options() -> list[click.Parameter]:
    """Fresh instances of the options that every command takes."""
    return [
        click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=_set("quiet"),
                     help="Say nothing but errors."),
        click.Option(["-v", "--verbose"], is_flag=True, expose_value=False, callback=_set("verbose"),
                     help="Say more on standard error."),
        click.Option(["--json"], is_flag=True, expose_value=False, callback=_set("json"),
                     help="One JSON object per line on standard output."),
        click.Option(["--socket"], metavar="P", expose_value=False, callback=_set("socket", os.path.abspath),
                     help="The daemon's socket."),
        click.Option(["--timeout"], metavar="D", type=DURATION, expose_value=False, callback=_set("timeout"),
                     help="Give up after D (90s, 10m, 2h); exit 124, the work goes on."),
        click.Option(["--no-autostart"], is_flag=True, expose_value=False,
                     callback=_set("autostart", lambda value: False), help="Never start the daemon."),
    ]  # fmt: skip


CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


class Command(click.Command):
    """A command with the global options, and examples in its help."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", CONTEXT)
        super().__init__(*args, **kwargs)
        self.params += global_options()
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)


class Group(click.Group):
    """A command with subcommands (``queue``, ``daemon``, ``config``).

    ``default`` is what runs when no subcommand is given; ``near`` maps words that people type to
    what they mean: {word: subcommand}; ``otherwise`` is named for all others ({}: the word).
    """

    def __init__(self, *args: Any, default: str | None = None, near: dict[str, str] | None = None,
                 otherwise: str = "--help", **kwargs: Any) -> None:  # fmt: skip
        kwargs.setdefault("context_settings", CONTEXT)
        kwargs["invoke_without_command"] = True
        kwargs["no_args_is_help"] = False
        super().__init__(*args, **kwargs)
        self.params += global_options()
        self.default = default
        self.near = near or {}
        self.otherwise = otherwise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self.default is not None and self._needs_default(args):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _needs_default(self, args: list[str]) -> bool:
        """Options alone are the default's; a help flag is the group's."""
        if set(args) & {"-h", "--help"}:
            return False
        return not args or (args[0].startswith("-") and not set(args) & set(self.commands))

    def invoke(self, ctx: click.Context) -> Any:
        if not ctx._protected_args and not ctx.args:
            raise Mistake(
                f"{self.name} needs a word more: {', '.join(self.commands)}", f"dshctl {self.name} --help"
            )
        return super().invoke(ctx)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        word = args[0]
        if word not in self.commands:
            meant = self.near.get(word) or next(iter(wire.near(word, self.commands, most=1)), None)
            hint = f"dshctl {self.name} {meant or self.otherwise.format(word)}"
            raise Mistake(f'"{word}" is not a command of dshctl {self.name}', hint)
        return super().resolve_command(ctx, args)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"  {example}\n")


# Options that several commands take.

SESSION: Final = click.option(
    "-s",
    "--session",
    metavar="S",
    help="Which session: a name, an id, or the beginning of one; . is this directory's.",
)
WORDS: Final = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TEXT...")


def session_argument(required: bool = False) -> Callable[..., Any]:
    return click.argument("which", required=required, metavar="SESSION" if required else "[SESSION]")


def one_session(session: str | None, which: str | None) -> str | None:
    """A session given as an option or as an argument; both only if they are the same."""
    if session and which and session != which:
        raise Mistake(f'two sessions: "{session}" and "{which}"')
    return which or session


def command(
    name: str, *, examples: Sequence[str] = (), **kwargs: Any
) -> Callable[[Callable[..., Any]], Command]:
    """A dshctl command: the function's first argument is the `Cli`."""

    def wrap(function: Callable[..., Any]) -> Command:
        made = click.command(name, cls=Command, examples=examples, **kwargs)(click.pass_obj(function))
        assert isinstance(made, Command)
        return made

    return wrap
