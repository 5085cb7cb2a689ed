"""What a command may see and write: bubblewrap as an argv prefix, Landlock where that doesn't work.

The rules; on one place the later holds, and what is said of a place inside another holds there:

1. everything can be read, nothing written; /dev is minimal, /proc shows only the command's own tree;
2. ``/tmp`` is the session's own (one directory for all its calls), never the machine's;
3. sockets that give away the whole machine (the user's bus, container daemons) are not there: ``/run`` is
   empty but for a few things (`sockets`);
4. in ``workspace``, the session's directory can be written; in ``read-only`` it can't;
5. *protected* places in it stay read-only: git's hooks and settings, keys, start-up files (`places`);
6. *hidden* places (dshd's state, socket and keys) are empty;
7. exceptions inside hidden places (spill files, attachments) can be read.

There is no network unless the session has ``net``; with it the ssh agent can be reached too. ``full``
mode has no sandbox at all.

What is protected is what exists when the command starts; what comes into being is `guarded`'s business. The
session's own ``.git`` is a mount of its own besides, because a directory that merely *contains* a protected
mount could be renamed away and replaced; of nested ones that is not done (renaming a directory above them
would undo it, and everything there is the command's anyway). Where there are no mounts (Landlock), what is
protected is copied before and put back.

`look` reads the disk, `plan` decides (sans-IO), `detect` tries once what works here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from dshd.spawn import landlock, seccomp
from dshd.spawn.client import Spawner, SpawnFailed
from dshd.tools import sockets
from dshd.tools.guarded import Guarded, entries, existing, guard, is_folder
from dshd.tools.places import inside
from dshd.tools.tool import ToolContext

# -- what works here --------------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Found:
    """What works on this machine. ``why`` says what is wrong with bubblewrap, if it is; ``seccomp``:
    whether the network can be cut without it."""

    bwrap: str | None
    why: str
    landlock: int = 0  # ABI version; 0: none
    seccomp: bool = False


TMP = Path("/tmp")  # noqa: S108
BASE = {
    Path("/"): ("--ro-bind", "/", "/"),
    Path("/dev"): ("--dev", "/dev"),
    Path("/proc"): ("--proc", "/proc"),
}
ISOLATION = ("--unshare-pid", "--die-with-parent", "--new-session")


async def detect(spawner: Spawner) -> Found:
    """Try it for real: a bwrap that is installed may still be refused (AppArmor, containers)."""
    path = _bwrap()
    if path is None:
        return without_bubblewrap(NOT_THERE)
    try:
        done = await spawner.run(_trial(path), cwd="/", env=TRIAL_ENV, timeout=10, head=500, tail=0)
    except SpawnFailed as error:
        return without_bubblewrap(str(error))
    return _judged(path, done.returncode, done.head)


def detect_here() -> Found:
    """The same from a process that has no spawner. Blocks."""
    path = _bwrap()
    if path is None:
        return without_bubblewrap(NOT_THERE)
    try:
        done = subprocess.run(
            _trial(path), cwd="/", env=TRIAL_ENV, timeout=10, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return without_bubblewrap(str(error))
    return _judged(path, done.returncode, done.stdout[:500])


NOT_THERE: Final = "bubblewrap is not installed"
TRIAL_ENV: Final = {"PATH": os.defpath}


def _bwrap() -> str | None:
    return shutil.which("bwrap", path=f"{os.environ.get('PATH', '')}:/usr/local/bin:/usr/bin")


def _trial(path: str) -> list[str]:
    base = [word for words in BASE.values() for word in words]
    return [path, *base, *ISOLATION, "--unshare-net", *capabilities(), "--", "/bin/sh", "-c", ":"]


def _judged(path: str, returncode: int | None, said: bytes) -> Found:
    if returncode == 0:
        return attrs.evolve(without_bubblewrap(""), bwrap=path)
    words = " ".join(said.decode(errors="replace").split())
    return without_bubblewrap(words or "bubblewrap failed")


def without_bubblewrap(why: str) -> Found:
    return Found(None, why, landlock.abi(), seccomp.works())


def capabilities() -> tuple[str, ...]:
    """root keeps its capabilities in bubblewrap unless told otherwise, and could remount everything."""
    if os.geteuid() != 0:
        return ()
    kept = ("CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_FOWNER")
    return ("--cap-drop", "ALL", *(word for name in kept for word in ("--cap-add", name)))


# -- what the disk says -----------------------------------------------------------------------------------


@attrs.frozen(slots=True, kw_only=True)
class Places:
    """The disk's share in a plan; all paths absolute and resolved, all exist but those in ``absent``.

    ``runtime`` is emptied but for ``shown`` (places, and where they lead to if they are links), ``cut_off``
    wholly. ``around`` is everything but the hidden places (for Landlock), ``guarded`` what is never
    writable, ``agent`` the ssh agent's socket.
    """

    dir: Path
    tmp: Path
    hidden: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    runtime: tuple[Path, ...] = ()
    shown: tuple[tuple[Path, str | None], ...] = ()
    cut_off: tuple[Path, ...] = ()
    repository: Path | None = None
    around: tuple[Path, ...] = ()
    guarded: Guarded | None = None
    agent: Path | None = None
    folders: frozenset[Path] = frozenset()  # which of hidden and cut_off are directories


def look(ctx: ToolContext, command: str, *, environ: Mapping[str, str], found: Found) -> Places:
    """Look at the disk. Blocks; makes the session's private /tmp. ``environ`` is the daemon's."""
    tmp = ctx.spill_dir / "tmp"
    if not is_folder(tmp):
        tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
    dir = (existing([ctx.dir]) or (ctx.dir,))[0]
    hidden = existing(ctx.hidden)
    cut_off = existing(sockets.cut_off(ctx.home, dir, (ctx.env, environ)))
    runtime = existing(sockets.RUNTIME)
    git = dir / ".git"
    agent = existing([Path(ctx.env["SSH_AUTH_SOCK"])]) if ctx.net and ctx.env.get("SSH_AUTH_SOCK") else ()
    weak = by_landlock(wanted(ctx) or "none", found)
    copies = ctx.spill_dir / "kept" if weak else None
    return Places(
        dir=dir,
        tmp=(existing([tmp]) or (tmp,))[0],
        hidden=hidden,
        readable=existing([ctx.spill_dir, *ctx.readable]),
        runtime=runtime,
        shown=tuple(sockets.kept(runtime, ctx.net)),
        cut_off=cut_off,
        repository=git if is_folder(git) else None,
        around=tuple(around([*hidden, *(path for path in cut_off if inside(path, runtime))])) if weak else (),
        guarded=guard(dir, ctx.home, command, copies) if ctx.mode == "workspace" else None,
        agent=agent[0] if agent else None,
        folders=frozenset(path for path in (*hidden, *cut_off) if path.is_dir()),
    )


def around(hidden: Sequence[Path]) -> Iterator[Path]:
    """All of the tree but the hidden places, in as few paths as can be."""
    queue = [Path("/")]
    while queue:
        path = queue.pop()
        if path in hidden:
            continue
        if not any(inside(place, [path]) for place in hidden):
            yield path
            continue
        queue += [child for child, _ in entries(path)]


# -- the plan -----------------------------------------------------------------------------------------------


@attrs.frozen(slots=True, kw_only=True)
class Plan:
    """How to confine: an argv prefix, or rules for `dshd.spawn.landlock`. ``kind`` is ``bubblewrap``,
    ``landlock`` or ``none``; ``net`` says whether the command has a network."""

    kind: str
    net: bool
    prefix: tuple[str, ...] = ()
    landlock: dict[str, Any] | None = None
    env: dict[str, str] = attrs.field(factory=dict)
    places: Places | None = None


class Refused(Exception):
    """No sandbox works here, and the mode needs one. ``str()`` is the sentence for the model."""


def wanted(ctx: ToolContext) -> str | None:
    """Which sandbox: ``auto``, ``bwrap``, ``landlock``; None for no sandbox. ``none`` in the config is for
    workspaces: a command that nothing confines is not read-only."""
    if ctx.mode == "full" or (ctx.mode == "workspace" and ctx.sandbox == "none"):
        return None
    return "auto" if ctx.sandbox == "none" else ctx.sandbox


def by_landlock(sandbox: str, found: Found) -> bool:
    return found.landlock > 0 and (sandbox == "landlock" or (sandbox == "auto" and found.bwrap is None))


def plan(mode: str, net: bool, sandbox: str, places: Places, found: Found) -> Plan:
    """Decide. Raises Refused. ``sandbox``: ``auto``, ``bwrap``, ``landlock``."""
    if found.bwrap is not None and sandbox in ("auto", "bwrap"):
        prefix = tuple(bubblewrap(found.bwrap, mode, net, places))
        return Plan(kind="bubblewrap", net=net, prefix=prefix, places=places)
    if by_landlock(sandbox, found):
        rules = landlock_rules(mode, net, places)
        left = net or not found.seccomp  # of the network; Landlock alone leaves UDP
        return Plan(kind="landlock", net=left, landlock=rules, env={"TMPDIR": str(places.tmp)}, places=places)
    raise Refused(why_refused(mode, sandbox, found))


NONE: Final = 'sandbox = "none" under [tools], or '


def why_refused(mode: str, sandbox: str, found: Found) -> str:
    needs = f'sandbox = "{sandbox}"' if sandbox != "auto" else f"mode {mode}"
    reasons = [found.why] if found.why else []
    reasons += ["the kernel has no Landlock"] if not found.landlock else []
    return (
        f"bash is refused: {needs} needs a sandbox, and none works here ({'; '.join(reasons)}). "
        f"A person can allow commands without one: {'' if mode == 'read-only' else NONE}mode full."
    )


def bubblewrap(program: str, mode: str, net: bool, places: Places) -> Iterator[str]:
    """The argv prefix. Mounts go from the root outwards, so that none covers one inside of it."""
    mounts = {target: words for target, words in mounted(mode, places)}
    yield program
    for target in sorted(mounts, key=lambda path: len(path.parts)):
        yield from mounts[target]
    for target in places.runtime:
        if mounts[target] == empty(target):
            yield from ("--remount-ro", str(target))
    yield from (*ISOLATION, *capabilities())
    if not net:
        yield "--unshare-net"
    yield from ("--chdir", str(places.dir), "--")


def mounted(mode: str, places: Places) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """(target, bwrap's words) for each mount, in the order of the rules: of two on one target the later
    one holds."""
    yield from BASE.items()
    yield TMP, bind(places.tmp, TMP)
    for path in places.runtime:
        yield path, empty(path)
    for path in filter(lambda path: shown_otherwise(path, places), places.cut_off):
        yield path, emptied(path, places)
    for path, link in places.shown if places.dir not in places.runtime else ():
        yield path, bind(path, path, read_only=True) if link is None else ("--symlink", link, str(path))
    if places.agent is not None:
        yield places.agent, bind(places.agent, places.agent)
    yield places.dir, bind(places.dir, places.dir, read_only=mode != "workspace")
    if mode == "workspace":
        yield from workspace(places)
    for path in places.hidden:
        if shown_otherwise(path, places):
            yield path, emptied(path, places)
    for path in places.readable:
        yield path, bind(path, path, read_only=True)


def workspace(places: Places) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """What stays read-only inside the session's directory."""
    if places.repository is not None:
        yield places.repository, bind(places.repository, places.repository)
    for path in places.guarded.protected if places.guarded is not None else ():
        yield path, bind(path, path, read_only=True)


def shown_otherwise(path: Path, places: Places) -> bool:
    """Whether a place to be emptied is there at all: what is in the machine's /tmp is not."""
    return not inside(path, [TMP]) or inside(path, [places.dir]) or places.dir == TMP


def bind(source: Path, target: Path, *, read_only: bool = False) -> tuple[str, ...]:
    return ("--ro-bind" if read_only else "--bind", str(source), str(target))


def empty(folder: Path) -> tuple[str, ...]:
    return ("--tmpfs", str(folder))


def emptied(path: Path, places: Places) -> tuple[str, ...]:
    if path in places.folders:
        return empty(path)
    return ("--ro-bind", "/dev/null", str(path))


DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/shm")  # noqa: S108


def landlock_rules(mode: str, net: bool, places: Places) -> dict[str, Any]:
    """The same, as far as Landlock can: see `dshd.spawn.landlock` for what it can't."""
    writable = [str(places.tmp), *DEVICES] + ([str(places.dir)] if mode == "workspace" else [])
    return {"read": [str(path) for path in (*places.around, *places.readable)], "write": writable, "net": net}
