"""``dshd``: from the command line to the daemon, and from its errors to an exit status.

Before the event loop, in this order: what systemd passed is taken; everything else that was inherited goes
(descriptors, directory, umask, terminal); the config is read; the environment is cleaned; the spawner is
forked, while the process is small. Heavy modules are imported after the fork.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dshd import __version__, logs, systemd
from dshd.errors import DshError, one_line
from dshd.paths import Places, find_places, looks_secret

if TYPE_CHECKING:
    from dshd.settings import Setup


def main(argv: Sequence[str] | None = None) -> int:
    """The ``dshd`` command; returns the exit status."""
    options = _parser().parse_args(argv)
    try:
        places = find_places(os.environ, config=options.config, socket=options.socket)
        if options.check:
            return _check(places)
        return _run(options, places)
    except DshError as error:
        _tell(error)
        return error.exit_status
    except OSError as error:
        print(f"dshd: {one_line(error)}.", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dshd",
        description="Run agent sessions, in the foreground.",
        epilog="See dshd(8).",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="use this config file")
    parser.add_argument("--socket", metavar="PATH", help="listen there")
    parser.add_argument("--check", action="store_true", help="check the config and exit")
    parser.add_argument("--log", choices=("text", "json"), default="text", help="how lines on stderr look")
    parser.add_argument("--version", action="version", version=f"dshd {__version__}")
    return parser


def _tell(error: DshError) -> None:
    print(f"dshd: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"      {error.hint}", file=sys.stderr)


def _check(places: Places) -> int:
    from dshd.vet import vet, warnings

    found, _models = vet(places, os.environ)
    for warning in warnings(found, places, os.environ):
        print(f"dshd: {warning}", file=sys.stderr)
    print(f"{places.config}: good")
    return 0


def _run(options: argparse.Namespace, places: Places) -> int:
    gc.disable()  # while modules are imported there is nothing to collect; a tenth of the start
    manager = systemd.take(os.environ, os.getpid())
    logs.start("journal" if options.log == "text" and systemd.is_journal(os.environ) else options.log)
    started_by = os.environ.pop("DSHD_STARTED_BY", None)
    _leave_behind(manager.descriptors)
    from dshd import config

    environ = dict(os.environ)
    found = config.load(places)
    _clean(config.environment(found, places, environ))
    from dshd.spawn import kernel, start

    handle = start()
    kernel.rename("dshd")
    from dshd.settings import Setup

    setup = Setup(
        config=found, places=places, environ=environ, manager=manager, handle=handle,
        started_by=started_by,
    )  # fmt: skip
    return _serve(setup)


def _clean(environ: Mapping[str, str]) -> None:
    """Have this environment and no other, as ``/proc`` shows it, too: what the kernel shows is the block
    that the process was started with, so that is written over. Keys are left out there."""
    os.environ.clear()
    os.environ.update(environ)
    shown = [f"{name}={value}" for name, value in environ.items() if not looks_secret(name)]
    with contextlib.suppress(OSError, ValueError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[47]), int(fields[48])  # env_start, env_end
        block = os.fsencode("\0".join(shown) + "\0")
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write((block if len(block) <= end - start else b"").ljust(end - start, b"\0"))


def _serve(setup: Setup) -> int:
    import trio

    from dshd.daemon import serve

    gc.freeze()
    gc.enable()
    try:
        return trio.run(serve, setup)
    except BaseExceptionGroup as group:
        ours = _first_of_ours(group)
        if ours is None:
            raise
        raise ours from group


def _first_of_ours(error: BaseException) -> DshError | None:
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := _first_of_ours(inner))), None)
    return error if isinstance(error, DshError) else None


def _leave_behind(keep: Sequence[int]) -> None:
    """Have a session of our own, no terminal, nothing inherited, and stand nowhere in particular."""
    os.umask(0o077)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
    try:
        os.setsid()
    except PermissionError:
        if os.getsid(0) != os.getpid():
            _go_on_in_a_child()


def _go_on_in_a_child() -> None:
    """A shell with job control makes us the leader of a process group, and a leader can't have a new
    session. So a child goes on as the daemon, and what the shell knows stays in front of it: it passes
    signals on and ends as the child ends."""
    front = os.getpid()
    child = os.fork()
    if child:
        _stand_in_front(child)
    from dshd.spawn import kernel

    os.setsid()
    kernel.die_with(front, signal.SIGTERM)


def _stand_in_front(child: int) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: os.kill(child, number))
    _pid, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    sys.exit(main())
