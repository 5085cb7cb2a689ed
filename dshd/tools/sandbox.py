"""What a command may see and write: bubblewrap as an argv prefix, Landlock where that doesn't work.

The rules, in the order in which a later one wins:

1. everything can be read, nothing written; /dev is minimal, /proc shows only the command's own tree;
2. ``/tmp`` is the session's own (one directory for all its calls), never the machine's;
3. in ``workspace``, the session's directory can be written; in ``read-only`` it can't;
4. *protected* places in it stay read-only: repositories' hooks and config, key and start-up files;
5. *hidden* places (dshd's state, socket and keys, sockets that give away the whole machine) are empty;
6. exceptions inside hidden places (spill files, attachments) can be read.

There is no network unless the session has ``net``. ``full`` mode has no sandbox at all.

A repository's ``.git`` is a mount of its own, because a directory that merely *contains* a protected
mount could be renamed away and replaced. What is protected is what exists when the command starts: a
repository that the command makes or clones itself is its own business.

`find` looks at the disk, `plan` decides (sans-IO), `detect` tries once what works here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import trio

from dshd.spawn.client import Spawner, SpawnFailed
from dshd.tools.tool import ToolContext


@attrs.frozen(slots=True)
class Found:
    """What works on this machine. ``why`` says what is wrong with bubblewrap, if it is."""

    bwrap: str | None
    why: str
    landlock: int = 0  # ABI version; 0: none


@attrs.frozen(slots=True, kw_only=True)
class Places:
    """The disk's share in a plan. ``protected`` and ``repositories`` exist and are inside ``dir``."""

    dir: Path
    tmp: Path
    hidden_dirs: tuple[Path, ...] = ()
    hidden_files: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    repositories: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()


@attrs.frozen(slots=True, kw_only=True)
class Plan:
    """How to confine: an argv prefix, or rules for `dshd.spawn.landlock`. ``kind`` is ``bubblewrap``,
    ``landlock`` or ``none``; ``net`` says whether the command has a network."""

    kind: str
    net: bool
    prefix: tuple[str, ...] = ()
    landlock: dict[str, Any] | None = None
    env: dict[str, str] = attrs.field(factory=dict)


class Refused(Exception):
    """No sandbox works here, and the mode needs one. ``str()`` is the sentence for the model."""


TRIAL = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp")  # noqa: S108
ISOLATION = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session")


async def detect(spawner: Spawner) -> Found:
    """Try it for real, once: a bwrap that is installed may still be refused (AppArmor, containers)."""
    path = shutil.which("bwrap", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin")
    if path is None:
        return Found(None, "bubblewrap is not installed")
    argv = [path, *TRIAL, *ISOLATION, "--unshare-net", *capabilities(), "--", "/bin/sh", "-c", ":"]
    try:
        done = await spawner.run(argv, cwd="/", env={"PATH": os.defpath}, timeout=10, head=500, tail=0)
    except SpawnFailed as error:
        return Found(None, str(error))
    if done.returncode == 0:
        return Found(path, "")
    return Found(None, done.head.decode(errors="replace").strip() or "bubblewrap failed")


def capabilities() -> tuple[str, ...]:
    """root keeps its capabilities in bubblewrap unless told otherwise, and could remount everything."""
    if os.geteuid() != 0:
        return ()
    kept = ("CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_FOWNER")
    return ("--cap-drop", "ALL", *(word for name in kept for word in ("--cap-add", name)))


def find(ctx: ToolContext) -> Places:
    """Look at the disk. Blocks; makes the session's private /tmp."""
    tmp = ctx.spill_dir / "tmp"
    tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
    repositories = tuple(path for path in [ctx.dir / ".git"] if path.is_dir())
    inside = [path for git in repositories for path in (git / "hooks", git / "config") if path.exists()]
    hidden = [path for path in ctx.hidden if path.exists()]
    return Places(
        dir=ctx.dir,
        tmp=tmp,
        hidden_dirs=tuple(path for path in hidden if path.is_dir()),
        hidden_files=tuple(path for path in hidden if not path.is_dir()),
        readable=tuple(path for path in (ctx.spill_dir, *ctx.readable) if path.exists()),
        repositories=repositories,
        protected=tuple(inside),
    )


def plan(mode: str, net: bool, sandbox: str, places: Places, found: Found) -> Plan:
    """Decide. Raises Refused. ``sandbox``: ``auto``, ``bubblewrap``, ``landlock`` or ``none``."""
    if mode == "full" or sandbox == "none":
        return Plan(kind="none", net=True)
    if found.bwrap is not None and sandbox in ("auto", "bubblewrap"):
        return Plan(kind="bubblewrap", net=net, prefix=tuple(bubblewrap(found.bwrap, mode, net, places)))
    raise Refused(
        f"bash is refused: mode {mode} needs a sandbox, and none works here ({found.why}). "
        'A person can allow it with sandbox = "none" under [tools], or with --mode full.'
    )


def bubblewrap(path: str, mode: str, net: bool, places: Places) -> Iterable[str]:
    """The argv prefix, in the order of the rules above."""
    yield path
    yield from (*TRIAL[:-2], *ISOLATION, *capabilities())
    if not net:
        yield "--unshare-net"
    yield from ("--bind", str(places.tmp), "/tmp")  # noqa: S108
    yield from ("--bind" if mode == "workspace" else "--ro-bind", str(places.dir), str(places.dir))
    if mode == "workspace":
        for git in places.repositories:
            yield from ("--bind", str(git), str(git))
        for protected in places.protected:
            yield from ("--ro-bind", str(protected), str(protected))
    for hidden in places.hidden_dirs:
        yield from ("--tmpfs", str(hidden))
    for hidden in places.hidden_files:
        yield from ("--ro-bind", "/dev/null", str(hidden))
    for readable in places.readable:
        yield from ("--ro-bind", str(readable), str(readable))
    yield from ("--chdir", str(places.dir), "--")


async def prepare(ctx: ToolContext, found: Found) -> Plan:
    """Look and decide."""
    if ctx.mode == "full" or ctx.sandbox == "none":
        return Plan(kind="none", net=True)
    places = await trio.to_thread.run_sync(find, ctx)
    return plan(ctx.mode, ctx.net, ctx.sandbox, places, found)
