"""The state directory's sessions: making and removing them, which are active, the reserve.

::

    STATE/sessions/<id>/log.jsonl     a session
    STATE/sessions/<id>/attachments/  its long texts, each named by the hash of its bytes
    STATE/sessions/.new-<id>/         one that is being made, or was when the power went
    STATE/sessions/.trash-<id>/       one that is being removed
    STATE/+schedules/                 a log like a session's, of what belongs to none (`OWN`)
    STATE/active/<id>                 empty: the daemon opens it by itself when it starts
    STATE/reserve                     1 MiB, given up to write closing events on a full disk

A session exists when its directory has its name: everything in it is durable by then. It is gone
when it has lost it. `Store.sweep` removes the leftovers of both.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from dshd.errors import Conflict, DshError, NotFound
from dshd.log.disk import FILE_MODE, Disk, explained

OWN = "+schedules"  # the id of that log; no session can have it
LOG = "log.jsonl"
ATTACHMENTS = "attachments"
NEW = ".new-"
TRASH = ".trash-"
RESERVE_SIZE = 1024 * 1024


class Store:
    """All methods block, and raise `DshError`s that name the path.

    Durability: unless a method says otherwise, what it did is on disk when it returns.
    """

    def __init__(self, disk: Disk, state: Path) -> None:
        self.disk = disk
        self.state = state
        self.sessions = state / "sessions"
        self.active = state / "active"
        self.reserve = Reserve(disk, state / "reserve")

    def prepare(self) -> None:
        """Make the directories that are missing."""
        with explained("make", self.state):
            self.disk.create_dir_synced(self.sessions)
            self.disk.create_dir_synced(self.active)

    def session_dir(self, session: str) -> Path:
        return self.state / OWN if session == OWN else self.sessions / session

    def log_path(self, session: str) -> Path:
        return self.session_dir(session) / LOG

    # -- sessions

    def ids(self) -> list[str]:
        """Ids of all sessions, sorted. An unreadable directory is an error, not an empty one.

        What has a name that is no text was not put there by dshd, and could not be named by anybody.
        """
        with explained("list", self.sessions):
            names = self.disk.listdir(self.sessions)
        return [name for name in names if not name.startswith(".") and _is_text(name)]

    def exists(self, session: str) -> bool:
        with explained("read", self.sessions):
            return self.disk.exists(self.session_dir(session))

    def create(self, session: str, lines: bytes, files: Mapping[str, bytes] | None = None) -> Path:
        """Make a session whose log holds ``lines``, with ``files`` (name or one below a directory:
        content) beside it.

        Returns the log's path. Raises `Conflict` if there is one; on any error there is none.
        """
        self._refuse_taken(session)
        try:
            new = self.begin(session)
            with explained("make", self.session_dir(session)):
                for name, content in {LOG: lines, **(files or {})}.items():
                    self.disk.create_dir_synced((new / name).parent)
                    self.disk.write_synced(new / name, content)
            return self.finish(session, session)
        except DshError:
            self.abandon(session)
            raise

    def begin(self, token: str) -> Path:
        """An empty directory for a session that is made step by step; ``token`` names it meanwhile. What
        is in it is swept at the next start, unless it comes to `finish`. Not durable before that."""
        new = self.sessions / f"{NEW}{token}"
        with explained("make", new):
            self._discard(new)
            self.disk.create_dir(new)
        return new

    def finish(self, token: str, session: str) -> Path:
        """Give the directory its name; its files are synced. Returns the log's path.

        Raises `Conflict` if there is such a session; on any error there is no new one.
        """
        self._refuse_taken(session)
        new, final = self.sessions / f"{NEW}{token}", self.session_dir(session)
        with explained("make", final):
            if self.disk.exists(new / ATTACHMENTS):
                self.disk.sync_dir(new / ATTACHMENTS)
            self.disk.sync_dir(new)
            try:
                self.disk.rename_synced(new, final)
            except OSError:  # it may have come as far as its name, and failed to make it durable
                with contextlib.suppress(OSError):
                    self.disk.rename_synced(final, new)
                raise
        return final / LOG

    def abandon(self, token: str) -> None:
        """Take back what was begun, best effort."""
        self._discard(self.sessions / f"{NEW}{token}")

    def _refuse_taken(self, session: str) -> None:
        if self.exists(session):
            raise Conflict(f"session {session} exists already.")

    def _discard(self, directory: Path) -> None:
        with contextlib.suppress(OSError):
            self.disk.remove_tree(directory)

    def delete(self, session: str) -> None:
        """Remove a session. It is gone for good when its name is; its files go after, best effort."""
        trash = self.sessions / f"{TRASH}{session}"
        with explained("remove", self.session_dir(session)):
            if not self.disk.exists(self.session_dir(session)):
                raise NotFound(f"no session {session}.")
            self._discard(trash)
            self.disk.rename_synced(self.session_dir(session), trash)
        self.unmark(session)
        self._discard(trash)

    def sweep(self) -> list[str]:
        """Remove what unfinished creations and deletions left; returns the names. At start only.

        A killed daemon may have left names that no sync has reached. They are seen and will be relied
        on, so they are made durable first: the next power cut must not take them away.
        """
        with explained("list", self.sessions):
            self.disk.sync_dir(self.active)
            self.disk.sync_dir(self.sessions)
            names = [name for name in self.disk.listdir(self.sessions) if name.startswith((NEW, TRASH))]
        for name in names:
            self._discard(self.sessions / name)
        return names

    # -- attachments

    def attachments(self, session: str) -> Path:
        return self.session_dir(session) / ATTACHMENTS

    def attach(self, session: str, files: Mapping[str, bytes]) -> None:
        """Keep these files (name: content). One that is there has this content: names are hashes."""
        place = self.attachments(session)
        with explained("write", place):
            self.disk.create_dir_synced(place)
            self.disk.sync_dir(place.parent)  # it may have been made by one who died before its sync
            missing = [name for name, content in files.items() if not self._has(place / name, len(content))]
            try:
                for name in missing:
                    self.disk.write_atomic(place / name, files[name])
                self.disk.sync_dir(place)
            except OSError:  # of a sync: the next one may "succeed", and have written none of these names
                self.detach(session, missing)
                raise

    def _has(self, path: Path, size: int) -> bool:
        return self.disk.exists(path) and self.disk.stat(path).size == size

    def detach(self, session: str, names: list[str]) -> None:
        """Take files away that no message needs. Not durable: one too many does no harm."""
        for name in names:
            with contextlib.suppress(OSError):
                self.disk.unlink(self.attachments(session) / name)

    # -- active markers

    def mark(self, session: str) -> None:
        """Say that the daemon must open this session by itself. Marking twice is fine."""
        with explained("write", self.active / session):
            self.disk.touch_synced(self.active / session)

    def unmark(self, session: str) -> None:
        """Take the mark back, if there is one. Not durable: one too many does no harm."""
        with explained("remove", self.active / session):
            self.disk.unlink(self.active / session)

    def is_marked(self, session: str) -> bool:
        with explained("read", self.active):
            return self.disk.exists(self.active / session)

    def marked(self) -> list[str]:
        """Ids of the active sessions, sorted; there may be no such session any more."""
        with explained("list", self.active):
            return [name for name in self.disk.listdir(self.active) if not name.startswith(".")]


def _is_text(name: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in name)


class Reserve:
    """A file that takes up room, so that there is some when the disk is full. Never an error.

    The room is for anybody who is quick: `release` it right before writing.
    """

    def __init__(self, disk: Disk, path: Path, size: int = RESERVE_SIZE) -> None:
        self.disk = disk
        self.path = path
        self.size = size

    @property
    def held(self) -> bool:
        """Whether the room is ours now."""
        try:
            return self.disk.stat(self.path).size >= self.size
        except OSError:
            return False

    def hold(self) -> bool:
        """Take the room, if there is some; says whether it is held now."""
        if not self.held and not self._allocate():
            self.release()
        return self.held

    def _allocate(self) -> bool:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = self.disk.calls.open(str(self.path), flags, FILE_MODE)
        except OSError:
            return False
        try:
            self.disk.calls.allocate(fd, self.size)
        except OSError:
            return False
        finally:
            self.disk.calls.close(fd)
        return True

    def release(self) -> None:
        """Give the room up."""
        with contextlib.suppress(OSError):
            self.disk.unlink(self.path)
