"""From a directory on disk to a `Session`: reading, folding, and what is owed afterwards.

`load` and `glance` begin at the checkpoint beside the log, if there is one that may be believed
(`checkpoint`); `look` and `state_until` read the whole log, and so can tell whether a checkpoint, or
what is held in memory, is right. Blocking parts run in a thread of the room's own limiter (not the log
writers').
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from dshd.errors import Damaged, DshError, Unsupported
from dshd.log import recovery, there
from dshd.log.codec import BadLine, Event, decode
from dshd.log.disk import Disk, LogFile, explained
from dshd.model.blocks import Assembler
from dshd.model.chunks import chunk_from_json
from dshd.model.errors import ModelError
from dshd.session.disk import checkpoint
from dshd.session.disk.broken import Broken
from dshd.session.disk.checkpoint import Kept, Unfit
from dshd.session.fold import folding
from dshd.session.fold.events import KNOWN_TYPES
from dshd.session.fold.folding import Nonsense
from dshd.session.fold.state import State

log = logging.getLogger(__name__)


@attrs.frozen
class Loaded:
    """A log as found. ``file`` is None if it can't be driven; then ``broken`` says why.

    ``found``: clean, open-turn or torn, for `session/opened`. ``partial``: blocks that the open
    step had streamed. ``kept``: what is on disk besides the log.
    """

    state: State
    opened: recovery.Opened
    file: LogFile | None
    broken: Broken | None
    partial: Sequence[Mapping[str, Any]]
    found: str
    kept: Kept | None = None


class NoCycles:
    """``with`` it, Python looks for no garbage in cycles: folding a long log makes a million objects and
    not one cycle, and the search through them again and again takes a fifth of the time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            gc.disable()

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                gc.enable()


no_cycles = NoCycles()


class Folder:
    """Folds events as they are read; notes the first nonsense and the chunks of the open step.

    ``kept``: where the checkpoint is, for `begin`."""

    def __init__(self, kept: Kept | None = None, *, unread: bool = False) -> None:
        self._unread = unread
        self.state = State()
        self.kept = kept
        self.nonsense: str | None = None
        self._chunks: list[Event] = []

    def begin(self) -> recovery.Start | None:
        """Take the checkpoint's state, if there is one that fits."""
        assert self.kept is not None
        try:
            self.state, self.kept = checkpoint.restore(
                self.kept.disk, self.kept.log, unread=self._unread
            )
        except Unfit as unfit:
            log.debug("%s: no checkpoint: %s", self.kept.log.parent.name, unfit)
        return self.kept.start

    def take(self, event: Event) -> None:
        if self.nonsense is not None:
            return
        try:
            folding.apply(self.state, event)
        except Nonsense as error:
            self.nonsense = str(error)
            return
        if event.type == "assistant/chunk":
            self._chunks.append(event)
        elif event.type in ("assistant/message", "request/sent", "llm/retry", "turn/end"):
            self._chunks.clear()

    def partial(self) -> list[dict[str, Any]]:
        """What the open step had streamed, as blocks."""
        assembler = Assembler()
        try:
            for event in self._chunks if self.state.turn is not None else ():
                for chunk in event.data["chunks"]:
                    assembler.feed(chunk_from_json(chunk))
        except (ModelError, KeyError, TypeError, ValueError):
            pass  # a chunk that makes no sense ends what is worth keeping
        return assembler.interrupted()


def load(disk: Disk, path: Path, *, id: str | None = None) -> Loaded:
    """Open a session's log to drive it. Blocks. ``id`` is its directory's name, if it has none yet.

    Raises a `DshError` when the file can't be read at all; a log that can be read but not driven
    comes back with ``broken``. Durability: what is returned is on disk (see `log.recovery`).
    """
    folder = Folder(Kept.nothing(disk, path))
    with no_cycles:
        file, opened = recovery.open_log(disk, path, KNOWN_TYPES, each=folder.take, begin=folder.begin)
    broken = why_broken(id or path.parent.name, folder, opened)
    if broken is not None and file is not None:
        file.close()
        file = None
    found = "torn" if opened.torn else ("open-turn" if folder.state.turn is not None else "clean")
    return Loaded(folder.state, opened, file, broken, folder.partial(), found, folder.kept)


def load_or_tell(disk: Disk, path: Path) -> Loaded:
    """The same; also of a directory whose log is missing, which is a damaged session."""
    try:
        return load(disk, path)
    except Damaged as damaged:
        nothing = recovery.Opened([], 0, 0, -1)
        return Loaded(_readable(disk, path), nothing, None, Broken("damaged", damaged), (), "clean")


def _readable(disk: Disk, path: Path) -> State:
    """What can be shown of a log that can't even be opened to be continued."""
    try:
        return look(disk, path).state
    except DshError:
        return State()


def look(disk: Disk, path: Path) -> Loaded:
    """The whole log without changing anything, for those who check."""
    folder = Folder()
    return _looked(disk, folder, path, recovery.read_log(disk, path, KNOWN_TYPES, each=folder.take))


def glance(disk: Disk, path: Path, *, unread: bool = False) -> Loaded:
    """The same, from the checkpoint on, for those who only want to know; ``unread``: what comes before it is
    not even looked at, for there may be very many logs."""
    folder = Folder(Kept.nothing(disk, path), unread=unread)
    opened = recovery.read_log(disk, path, KNOWN_TYPES, each=folder.take, begin=folder.begin)
    return _looked(disk, folder, path, opened)


def _looked(disk: Disk, folder: Folder, path: Path, opened: recovery.Opened) -> Loaded:
    broken = why_broken(path.parent.name, folder, opened)
    if broken is None and (wrong := there.problem(disk, path)) is not None:  # it could be read all the same
        broken = Broken("damaged", wrong)
    return Loaded(folder.state, opened, None, broken, folder.partial(), "clean", folder.kept)


def state_synced(file: LogFile, size: int) -> State:
    """The fold of a log's first ``size`` bytes, read through its descriptor, for its name may be
    another file's by now. Raises a `DshError` if they can't be read."""
    folder, rest = Folder(), b""
    with explained("read", file.path):
        for piece in file.pieces(0, size):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                folder.take(_decoded(line + b"\n", file.path))
    return folder.state


def _decoded(line: bytes, path: Path) -> Event:
    try:
        return decode(line)
    except BadLine as bad:
        raise Damaged(f"{path} can't be read back: {bad.reason}.") from None


def state_until(disk: Disk, path: Path, seq: int) -> State:
    """The fold of the events up to ``seq``."""
    folder = Folder()
    recovery.read_log(disk, path, KNOWN_TYPES, each=lambda e: folder.take(e) if e.seq <= seq else None)
    return folder.state


def why_broken(id: str, folder: Folder, opened: recovery.Opened) -> Broken | None:
    name = folder.state.name if folder.state.header else id
    error = _copied(id, folder.state) or _error(name, folder, opened)
    if error is None:
        return None
    return Broken("damaged" if isinstance(error, Damaged) else "unsupported", error)


def _error(name: str, folder: Folder, opened: recovery.Opened) -> DshError | None:
    if opened.unsupported:
        return Unsupported(f"session {name} can be read but not driven: {opened.unsupported}.",
                           hint=f"dshctl log -s {name}")  # fmt: skip
    if opened.damage:
        told = f"The rest can be read: dshctl log -s {name}. To make it work again:"
        return Damaged(f"session {name} is {opened.damage.sentence()}.", hint=f"dshctl fsck --repair {name}",
                       data={"told": told})  # fmt: skip
    if folder.nonsense:
        return Damaged(f"session {name} makes no sense at {folder.nonsense}.",
                       hint=f"dshctl log -o json -s {name}")  # fmt: skip
    return None


def _copied(id: str, state: State) -> DshError | None:
    """A copy under another directory's name. Its messages' ids name the other log, and two sessions would
    give the same ids to different messages; so it is never driven."""
    if not state.header or state.id == id:
        return None
    return Damaged(f"the directory {id} holds a copy of session {state.id}; it can be read, not continued.",
                   hint=f"dshctl export {id} | dshctl import --as-new -")  # fmt: skip
