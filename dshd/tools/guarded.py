"""What commands may not write in ``workspace``: looked for before a command, put right after it. Blocking.

A mount can only protect what exists; so there are three ways, and the first that does decides:

- What is there when the command starts is protected by the sandbox (or copied and put back).
- What is not, but would be run by itself if it came into being: at the top of the session's directory, in a
  home inside of it, and as hooks and settings of the directory's own repository. It is taken away when the
  command ends, whatever made it, and kept aside. (Nothing was put there beforehand: a mount point would
  stay behind on the disk.)
- Deeper down, anywhere: the same, if the command's text names such a place. It costs a look through the
  tree before and after, so not every command is worth it; and what is found a minute later may be the
  person's own, so it is protected then, but not taken away.

A repository that a command makes or clones comes with hooks and settings; those are its own business, as its
makefiles are, and are protected from the next look through the tree on.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from dshd.tools.places import ANYWHERE, GIT_DATA, GIT_NAMES, RUNS, SHELL_START, inside, why_protected

K = TypeVar("K")
V = TypeVar("V")
State = tuple[tuple[Path, tuple[int, ...]], ...]  # folders, and what shows whether one has changed
Read = tuple[list[Path], list[Path]]

DEEPEST = 6  # levels below the session's directory that are looked through
MOST_FOLDERS = 4000
MOST_PROTECTED = 400
PASSED_OVER = frozenset({"node_modules", "__pycache__", ".venv", "venv", "target", ".tox", ".cache"})
FRESH = 60.0  # s a look through the whole tree is believed; the top is looked at every time
RACY_NS = 100_000_000  # a directory that changed so shortly before it was read may change in the same tick
UNSURE = (-1,)
MOST_REMEMBERED = 1000  # directories

NAMES = "|".join(sorted(re.escape(name) for name in (*ANYWHERE, *SHELL_START)))
NAMED = re.compile(rf"(?:{NAMES}|(?<![\w-])\.git)(?![\w-])|autostart|\.(?:config|local)/", re.IGNORECASE)


@attrs.frozen(slots=True, kw_only=True)
class Guarded:
    """``protected`` exists; ``absent`` does not and must not be there afterwards either; ``copies``: (a
    protected place, what it was), where nothing can be mounted. ``before`` is all that was protected in the
    whole tree, if it is to be looked through again; ``aside``: where the copies are."""

    dir: Path
    protected: tuple[Path, ...] = ()
    absent: tuple[Path, ...] = ()
    state: State = ()
    copies: tuple[tuple[Path, Path], ...] = ()
    before: frozenset[Path] | None = None
    aside: Path | None = None


def guard(dir: Path, home: Path | None, command: str, copies: Path | None) -> Guarded:
    """Look at a session's directory (resolved). ``copies``: where to copy what is protected to."""
    protected = protected_in(dir)[:MOST_PROTECTED]
    absent, state = absent_in(dir, home)
    found = Guarded(
        dir=dir,
        protected=protected,
        absent=absent,
        state=state,
        before=frozenset(search(dir, DEEPEST)) if NAMED.search(command) else None,
    )
    return found if copies is None else with_copies(found, copies)


def sweep(guarded: Guarded, into: Path) -> list[Path]:
    """Take away what came into being though it must not, and put back what was changed though it must
    not; what was there instead is kept in ``into``. A few stat calls, if neither ``before`` nor ``aside`` is
    given."""
    if guarded.aside is None:
        return _swept(guarded, into)
    with _copying:
        try:
            return _swept(guarded, into)
        finally:
            _standing[:] = [other for other in _standing if other() not in (None, guarded)]
            shutil.rmtree(guarded.aside, ignore_errors=True)


def _swept(guarded: Guarded, into: Path) -> list[Path]:
    made = [path for path in guarded.absent if os.path.lexists(path)] if has_changed(guarded.state) else []
    made += [path for path in come_into_being(guarded) if not inside(path, made)]
    changed = [(path, copy) for path, copy in guarded.copies if not same(path, copy)]
    for number, path in enumerate([*made, *(path for path, _ in changed)]):
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.path.lexists(path):
            shutil.move(path, into / f"{time.time_ns()}-{number}-{path.name}")
    for path, copy in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        copy_of(copy, path)
    return made + [path for path, _ in changed]


def come_into_being(guarded: Guarded) -> list[Path]:
    """Protected places of the whole tree that were not there before, but for those of new repositories."""
    if guarded.before is None:
        return []
    repositories = {git for path in guarded.before if (git := git_of(path))}
    new = [path for path in search(guarded.dir, DEEPEST) if path not in guarded.before]
    return [path for path in new if (git := git_of(path)) is None or is_of(path, git, repositories)]


def git_of(path: Path) -> Path | None:
    """The ``.git`` that a place is in, or is."""
    return next((place for place in (path, *path.parents) if place.name == ".git"), None)


def is_of(path: Path, git: Path, repositories: set[Path]) -> bool:
    """Whether a place is a repository's that was there before, not a new submodule's or worktree's of it."""
    return git in repositories and path.relative_to(git).parts[:1] not in (("modules",), ("worktrees",))


# -- what isn't there ---------------------------------------------------------------------------------------


def absent_in(dir: Path, home: Path | None) -> tuple[tuple[Path, ...], State]:
    """What isn't there and must not be made: a shell reads any start-up file that it finds at home, and git
    takes hooks and settings from where ``commondir`` says. And the state of the folders it would be in."""
    top = home if home is not None and inside(home, [dir]) else None
    candidates, folders = _candidates(dir, top, is_folder(dir / ".git"))
    known = _absent.get((dir, top))
    if known is None or has_changed(known[1]) or len(known[1]) != len(folders):
        state = state_of(folders)
        absent = tuple(path for path in candidates if not os.path.lexists(path))
        known = _remember(_absent, (dir, top), (absent, state))
    return known


@functools.lru_cache(MOST_REMEMBERED)
def _candidates(dir: Path, home: Path | None, git: bool) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """(places, the folders they would be in)"""
    found = [dir / ".git" / name for name in ("commondir", "hooks", "config")] if git else []
    for top in [dir] if home in (None, dir) else [dir, home]:
        found += [top / name for name in (*SHELL_START, *ANYWHERE)] + [top.joinpath(*run) for run in RUNS]
    return tuple(found), tuple(dict.fromkeys(path.parent for path in found))


_absent: dict[tuple[Path, Path | None], tuple[tuple[Path, ...], State]] = {}


def state_of(folders: Iterable[Path]) -> State:
    """By which `has_changed` tells whether anything was made in them."""
    now = time.time_ns()
    return tuple((folder, _version(folder, now)) for folder in folders)


def has_changed(state: State) -> bool:
    now = time.time_ns()
    return any(version == UNSURE or _version(folder, now) != version for folder, version in state)


def _version(folder: Path, now: int) -> tuple[int, ...]:
    """Changes with what is in a folder. Nothing if it isn't there, UNSURE if it has changed so lately that it
    could do so again without a trace: clocks have ticks."""
    try:
        found = os.stat(folder)
    except OSError:
        return ()
    if now - max(found.st_mtime_ns, found.st_ctime_ns) < RACY_NS:
        return UNSURE
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


# -- what is there ------------------------------------------------------------------------------------------

_looked: dict[Path, tuple[float, tuple[Path, ...]]] = {}  # {dir: (when, what)}
_read_once: dict[Path, tuple[State, Read]] = {}


def protected_in(dir: Path) -> tuple[Path, ...]:
    """What is never writable in ``dir``, as far as it exists now. 0.1 s at most as a rule."""
    now = time.monotonic()
    when, deep = _looked.get(dir, (-FRESH, ()))
    if now - when >= FRESH:
        deep = tuple(search(dir, DEEPEST))
        _remember(_looked, dir, (now, deep))
        return deep
    return tuple(dict.fromkeys([*search(dir, 1), *(path for path in deep if os.path.lexists(path))]))


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
            found, deeper = _kept(folder, read) if folder == dir else read(folder)
            below += deeper
            for path in found:
                yield from search_git(path) if path.name == ".git" and is_folder(path) else (path,)
        level = below


def search_git(git: Path) -> Iterator[Path]:
    """Hooks and settings of a repository, of its submodules and worktrees."""
    queue = [git]
    while queue:
        found, deeper = _kept(queue.pop(), read_git)
        yield from found
        queue += deeper


def read(folder: Path) -> Read:
    """(what is protected, and repositories; folders to look into)"""
    found: list[Path] = []
    below: list[Path] = []
    for path, is_dir in entries(folder):
        if path.name == ".git" or why_protected(path):
            found.append(path)
        elif is_dir and path.name not in PASSED_OVER:
            below.append(path)
    return found, below


def read_git(folder: Path) -> Read:
    """The same inside of a repository."""
    inside_it = entries(folder)
    found = [path for path, _ in inside_it if path.name.casefold() in GIT_NAMES]
    return found, [p for p, is_dir in inside_it if is_dir and p not in found and p.name not in GIT_DATA]


def _kept(folder: Path, reader: Callable[[Path], Read]) -> Read:
    """What a folder that is asked for again and again holds; read when it has changed."""
    known = _read_once.get(folder)
    if known is None or has_changed(known[0]):
        known = _remember(_read_once, folder, (state_of([folder]), reader(folder)))
    return known[1]


def entries(folder: Path) -> list[tuple[Path, bool]]:
    """(path, is it a directory) of what is in a folder and no link; nothing if it can't be read."""
    try:
        with os.scandir(folder) as found:
            return [(Path(entry.path), entry.is_dir()) for entry in found if not entry.is_symlink()]
    except OSError:
        return []


def is_folder(path: Path) -> bool:
    """A directory, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _remember(memory: dict[K, V], key: K, value: V) -> V:
    if len(memory) >= MOST_REMEMBERED:
        memory.clear()
    memory[key] = value
    return value


# -- copies -------------------------------------------------------------------------------------------------


# Commands run side by side, also of several sessions in one directory. What one has changed must not be what
# another takes for what was there: who begins while others stand takes it from those that began first.
_copying = threading.Lock()
_standing: list[weakref.ref[Guarded]] = []  # in the order in which they began; gone with who forgets them


def with_copies(found: Guarded, copies: Path) -> Guarded:
    """The same with copies to compare with and to put back, in a directory of its own below ``copies``."""
    with _copying:
        others = [other for one in _standing if (other := one()) is not None and other.dir == found.dir]
        made = {path for other in others for path in other.absent} & set(found.protected)
        was = {path: copy for other in reversed(others) for path, copy in other.copies}
        copies.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=copies))
        kept = attrs.evolve(
            found,
            absent=(*found.absent, *sorted(made)),
            state=((found.dir, UNSURE), *found.state) if made else found.state,
            copies=tuple(copied([path for path in found.protected if path not in made], aside, was)),
            aside=aside,
        )
        _standing.append(weakref.ref(kept))
        return kept


def copied(paths: Sequence[Path], into: Path, was: Mapping[Path, Path]) -> Iterator[tuple[Path, Path]]:
    """Of each path, or what it ``was``; what can't be read can't be kept."""
    for number, path in enumerate(paths):
        copy = into / str(number)
        try:
            copy_of(was.get(path, path), copy)
        except (OSError, shutil.Error):
            continue
        yield path, copy


def copy_of(path: Path, copy: Path) -> None:
    if is_folder(path):
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


# -- resolving ----------------------------------------------------------------------------------------------

_resolved: dict[tuple[Path, ...], tuple[list[tuple[int, int] | None], tuple[Path, ...]]] = {}


def existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Resolved, each once; who can't be looked at is left out (nor can a command reach it, then).

    A walk through every link of a path is done again only if another file is found at its end.
    """
    asked = tuple(paths)
    ends = [_identity(path) for path in asked]
    known = _resolved.get(asked)
    if known is None or known[0] != ends:
        known = _remember(_resolved, asked, (ends, tuple(dict.fromkeys(_resolve(asked)))))
    return known[1]


def _resolve(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        try:
            yield path.resolve(strict=True)
        except OSError:
            continue


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
