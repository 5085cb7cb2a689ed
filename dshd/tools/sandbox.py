"""What a command may see and write: bubblewrap as an argv prefix, Landlock where that doesn't work.

The rules; on one place the later holds, and what is said of a place inside another holds there:

1. everything can be read, nothing written; /dev is minimal, /proc shows only the command's own tree;
2. ``/tmp`` is the session's own (one directory for all its calls), never the machine's;
3. sockets that give away the whole machine (the user's bus, container daemons) are not there;
4. in ``workspace``, the session's directory can be written; in ``read-only`` it can't;
5. *protected* places in it stay read-only: git's hooks and settings, keys, start-up files (`places`);
6. *hidden* places (dshd's state, socket and keys) are empty;
7. exceptions inside hidden places (spill files, attachments) can be read.

There is no network unless the session has ``net``; with it the ssh agent can be reached too. ``full``
mode has no sandbox at all.

What is protected is what exists when the command starts: a repository that the command makes or clones
is its own business. The session's own ``.git`` is a mount of its own besides, because a directory that
merely *contains* a protected mount could be renamed away and replaced; of nested ones that is not done
(renaming a directory above them would undo it, and everything there is the command's anyway). What must
not come into being and can't be kept from it by a mount is taken away again afterwards (`sweep`); and where
there are no mounts (Landlock), what is protected is copied before and put back.

`look` reads the disk, `plan` decides (sans-IO), `detect` tries once what works here.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from dshd.spawn import landlock
from dshd.spawn.client import Spawner, SpawnFailed
from dshd.tools.places import GIT_DATA, RUNS, SHELL_START, inside, why_protected
from dshd.tools.tool import ToolContext

# -- what works here --------------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Found:
    """What works on this machine. ``why`` says what is wrong with bubblewrap, if it is."""

    bwrap: str | None
    why: str
    landlock: int = 0  # ABI version; 0: none


TMP = Path("/tmp")  # noqa: S108
BASE = {
    Path("/"): ("--ro-bind", "/", "/"),
    Path("/dev"): ("--dev", "/dev"),
    Path("/proc"): ("--proc", "/proc"),
}
ISOLATION = ("--unshare-pid", "--die-with-parent", "--new-session")


async def detect(spawner: Spawner) -> Found:
    """Try it for real: a bwrap that is installed may still be refused (AppArmor, containers)."""
    path = shutil.which("bwrap", path=f"{os.environ.get('PATH', '')}:/usr/local/bin:/usr/bin")
    if path is None:
        return Found(None, "bubblewrap is not installed", landlock.abi())
    base = [word for words in BASE.values() for word in words]
    trial = [path, *base, *ISOLATION, "--unshare-net", *capabilities(), "--", "/bin/sh", "-c", ":"]
    try:
        done = await spawner.run(trial, cwd="/", env={"PATH": os.defpath}, timeout=10, head=500, tail=0)
    except SpawnFailed as error:
        return Found(None, str(error), landlock.abi())
    if done.returncode == 0:
        return Found(path, "", landlock.abi())
    said = " ".join(done.head.decode(errors="replace").split())
    return Found(None, said or "bubblewrap failed", landlock.abi())


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

    ``around`` is everything but the hidden places (for Landlock), ``absent`` what must not be there
    afterwards either, ``agent`` the ssh agent's socket.
    """

    dir: Path
    tmp: Path
    hidden: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    cut_off: tuple[Path, ...] = ()
    repository: Path | None = None
    protected: tuple[Path, ...] = ()
    around: tuple[Path, ...] = ()
    absent: tuple[Path, ...] = ()
    copies: tuple[tuple[Path, Path], ...] = ()  # (a protected place, what it was)
    agent: Path | None = None
    folders: frozenset[Path] = frozenset()  # which of hidden and cut_off are directories


MACHINE_SOCKETS = (
    "/run/docker.sock", "/run/containerd", "/run/podman", "/run/crio", "/run/libvirt", "/run/lxd.socket",
    "/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket", "/run/systemd/private",
)  # fmt: skip


def look(ctx: ToolContext, *, environ: Mapping[str, str], uid: int, found: Found) -> Places:
    """Look at the disk. Blocks; makes the session's private /tmp."""
    tmp = ctx.spill_dir / "tmp"
    tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
    dir = ctx.dir.resolve()
    hidden = existing(ctx.hidden)
    cut_off = existing([Path(f"/run/user/{uid}"), *map(Path, MACHINE_SOCKETS)])
    git = dir / ".git"
    repository = git if git.is_dir() and not git.is_symlink() else None
    agent = existing([Path(environ["SSH_AUTH_SOCK"])]) if ctx.net and environ.get("SSH_AUTH_SOCK") else ()
    protected = protected_in(dir) if ctx.mode == "workspace" else ()
    weak = by_landlock(ctx.sandbox, found)
    return Places(
        dir=dir,
        tmp=tmp.resolve(),
        hidden=hidden,
        readable=existing([ctx.spill_dir, *ctx.readable]),
        cut_off=cut_off,
        repository=repository,
        protected=protected,
        around=tuple(around([*hidden, *cut_off])) if weak else (),
        copies=tuple(copied(protected, ctx.spill_dir / "kept")) if weak else (),
        absent=tuple(absent_in(dir, repository, ctx.home)) if ctx.mode == "workspace" else (),
        agent=agent[0] if agent else None,
        folders=frozenset(path for path in (*hidden, *cut_off) if path.is_dir()),
    )


def existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Resolved, each once; who can't be looked at is left out (nor can a command reach it, then)."""
    found: dict[Path, None] = {}
    for path in paths:
        try:
            found[path.resolve(strict=True)] = None
        except OSError:
            continue
    return tuple(found)


def absent_in(dir: Path, repository: Path | None, home: Path | None) -> Iterator[Path]:
    """What isn't there and must not be made: git would take hooks and settings from where ``commondir``
    says, and a shell reads any start-up file it finds in a home that is being worked in."""
    candidates = [repository / name for name in ("commondir", "hooks", "config")] if repository else []
    if home is not None and inside(home, [dir]):
        candidates += [home / name for name in (*SHELL_START, ".ssh", ".gnupg")]
        candidates += [home.joinpath(*run) for run in RUNS]
    return (path for path in candidates if not os.path.lexists(path))


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
        queue += children(path)


def children(path: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(path) if not entry.is_symlink()]
    except OSError:
        return []


# -- protected places ---------------------------------------------------------------------------------------

DEEPEST = 6  # levels below the session's directory that are looked through
MOST_FOLDERS = 4000
MOST_PROTECTED = 400
PASSED_OVER = frozenset({"node_modules", "__pycache__", ".venv", "venv", "target", ".tox", ".cache"})
FRESH = 60.0  # s a look through the whole tree is believed; the top is looked at every time

_looked: dict[Path, tuple[float, tuple[Path, ...]]] = {}


def protected_in(dir: Path) -> tuple[Path, ...]:
    """What is never writable in ``dir``, as far as it exists now. Blocks, 0.1 s at most as a rule."""
    now = time.monotonic()
    when, deep = _looked.get(dir, (-FRESH, ()))
    if now - when >= FRESH:
        deep = tuple(search(dir, DEEPEST))
        _looked[dir] = (now, deep)
    paths = dict.fromkeys([*search(dir, 1), *(path for path in deep if os.path.lexists(path))])
    return tuple(paths)[:MOST_PROTECTED]


def search(dir: Path, depth: int) -> Iterator[Path]:
    """Protected places, outermost ones only, level by level."""
    level = [dir]
    seen = 0
    for _ in range(depth):
        below: list[Path] = []
        for folder in level:
            seen += 1
            if seen > MOST_FOLDERS:
                return
            yield from _search_folder(folder, below)
        level = below


def _search_folder(folder: Path, below: list[Path]) -> Iterator[Path]:
    for path in children(folder):
        is_dir = path.is_dir()
        if path.name == ".git" and is_dir:
            yield from _search_git(path)
        elif why_protected(path):
            yield path
        elif is_dir and path.name not in PASSED_OVER:
            below.append(path)


def _search_git(git: Path) -> Iterator[Path]:
    """Hooks and settings of a repository, of its submodules and worktrees."""
    queue = [git]
    while queue:
        for path in children(queue.pop()):
            if why_protected(path):
                yield path
            elif path.is_dir() and path.name not in GIT_DATA:
                queue.append(path)


def copied(paths: Sequence[Path], into: Path) -> Iterator[tuple[Path, Path]]:
    """Copies to compare with and to put back. Blocks; what can't be read can't be kept."""
    shutil.rmtree(into, ignore_errors=True)
    for number, path in enumerate(paths):
        copy = into / str(number)
        try:
            into.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy_of(path, copy)
        except (OSError, shutil.Error):
            continue
        yield path, copy


def copy_of(path: Path, copy: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.copytree(path, copy, symlinks=True)
    else:
        shutil.copy2(path, copy, follow_symlinks=False)


def same(one: Path, other: Path) -> bool:
    """Kind, mode and content, all the way down."""
    try:
        a, b = one.lstat(), other.lstat()
        if a.st_mode != b.st_mode:
            return False
        if stat.S_ISLNK(a.st_mode):
            return one.readlink() == other.readlink()
        if stat.S_ISDIR(a.st_mode):
            names = sorted(os.listdir(one))
            return names == sorted(os.listdir(other)) and all(same(one / n, other / n) for n in names)
        return a.st_size == b.st_size and one.read_bytes() == other.read_bytes()
    except OSError:
        return False


def sweep(places: Places, into: Path) -> list[Path]:
    """Take away what came into being though it must not, and put back what was changed though it must
    not; what was there instead is kept in ``into``. Blocks."""
    changed = [(path, copy) for path, copy in places.copies if not same(path, copy)]
    made = [path for path in places.absent if os.path.lexists(path)]
    for number, path in enumerate([*made, *(path for path, _ in changed)]):
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.path.lexists(path):
            shutil.move(path, into / f"{time.time_ns()}-{number}-{path.name}")
    for path, copy in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        copy_of(copy, path)
    return made + [path for path, _ in changed]


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


def needed(ctx: ToolContext) -> bool:
    return ctx.mode != "full" and ctx.sandbox != "none"


def by_landlock(sandbox: str, found: Found) -> bool:
    return found.landlock > 0 and (sandbox == "landlock" or (sandbox == "auto" and found.bwrap is None))


def plan(mode: str, net: bool, sandbox: str, places: Places, found: Found) -> Plan:
    """Decide. Raises Refused. ``sandbox``: ``auto``, ``bwrap``, ``landlock``."""
    if found.bwrap is not None and sandbox in ("auto", "bwrap"):
        prefix = tuple(bubblewrap(found.bwrap, mode, net, places))
        return Plan(kind="bubblewrap", net=net, prefix=prefix, places=places)
    if by_landlock(sandbox, found):
        rules = landlock_rules(mode, net, places)
        cut = net or found.landlock < landlock.NET_ABI
        return Plan(kind="landlock", net=cut, landlock=rules, env={"TMPDIR": str(places.tmp)}, places=places)
    raise Refused(why_refused(mode, sandbox, found))


def why_refused(mode: str, sandbox: str, found: Found) -> str:
    wanted = f'sandbox = "{sandbox}"' if sandbox != "auto" else f"mode {mode}"
    reasons = [found.why] if found.why else []
    reasons += ["the kernel has no Landlock"] if not found.landlock else []
    return (
        f"bash is refused: {wanted} needs a sandbox, and none works here ({'; '.join(reasons)}). "
        'A person can allow commands without one: sandbox = "none" under [tools], or mode full.'
    )


def bubblewrap(program: str, mode: str, net: bool, places: Places) -> Iterator[str]:
    """The argv prefix. Mounts go from the root outwards, so that none covers one inside of it."""
    mounts = {target: words for target, words in mounted(mode, places)}
    yield program
    for target in sorted(mounts, key=lambda path: len(path.parts)):
        yield from mounts[target]
    yield from (*ISOLATION, *capabilities())
    if not net:
        yield "--unshare-net"
    yield from ("--chdir", str(places.dir), "--")


def mounted(mode: str, places: Places) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """(target, bwrap's words) for each mount, in the order of the rules: of two on one target the later
    one holds."""
    yield from BASE.items()
    yield TMP, bind(places.tmp, TMP)
    for path in places.cut_off:
        yield path, emptied(path, places)
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
    for path in places.protected:
        yield path, bind(path, path, read_only=True)


def shown_otherwise(path: Path, places: Places) -> bool:
    """Whether a hidden place is there at all: what is in the machine's /tmp is not."""
    return not inside(path, [TMP]) or inside(path, [places.dir]) or places.dir == TMP


def bind(source: Path, target: Path, *, read_only: bool = False) -> tuple[str, ...]:
    return ("--ro-bind" if read_only else "--bind", str(source), str(target))


def emptied(path: Path, places: Places) -> tuple[str, ...]:
    if path in places.folders:
        return ("--tmpfs", str(path))
    return ("--ro-bind", "/dev/null", str(path))


DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/shm")  # noqa: S108


def landlock_rules(mode: str, net: bool, places: Places) -> dict[str, Any]:
    """The same, as far as Landlock can: see `dshd.spawn.landlock` for what it can't."""
    writable = [str(places.tmp), *DEVICES] + ([str(places.dir)] if mode == "workspace" else [])
    return {"read": [str(path) for path in (*places.around, *places.readable)], "write": writable, "net": net}
