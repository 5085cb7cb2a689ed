"""Sends that wait on disk for the daemon: what a file of the spool holds, and how it comes and goes.

::

    STATE/spool/<number>-<uuid>.json           a send that waits; the lowest number came first
    STATE/spool/taken/<uuid>                   what became of one that was taken up, for ever
    STATE/spool/refused/<number>-<uuid>.json   one that was refused, and why
    STATE/spool/refused/<name>.broken          a file that can't be read as a send, as it was found

A waiting send is one line of JSON, written, synced and renamed into place. Like a line of a log it ends in
``,"crc":"xxxxxxxx"}``, the CRC-32 of all bytes before.

The order is that of the numbers, which are given under a lock (a `flock` on the directory): one more than
the highest that waits. Under it, too, is decided that there is no daemon: who finds one hands nothing in.
A daemon looks at the spool under the same lock, once it holds the state lock, so that what was handed in
before it was there is found, and nothing is handed in behind its back.

``taken/<uuid>`` is ``{"session": S, "message": M}``. It is written twice: with the session, before the send
is made, so that a crash in between can't send the same words to two sessions; and with the message, which
makes ``spool:<uuid>`` another name for it. The send itself has a key, its own or ``spool:<uuid>``, and so
happens once however often it is tried.

Light: the standard library and the room of the disk. Everything here blocks, and raises `OSError`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from dshd import nesting
from dshd.errors import DshError, NotFound, Unavailable
from dshd.log.disk import Disk
from dshd.wire import SPOOLED, spool_uuid

Json = dict[str, Any]

VERSION: Final = 1
LOCK_S: Final = 5.0  # a lock held for longer is a stopped process's
MOST_BYTES: Final = 64 * 1024 * 1024  # of one file; the longest text is far from it
_NAME: Final = re.compile(r"([0-9]{12})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.json\Z", re.ASCII)
_CRC: Final = b',"crc":"%08x"}\n'
_CRC_SIZE: Final = len(_CRC % 0)


class Broken(Exception):
    """A file that is no send; the text says why."""


class Spooled(NamedTuple):
    """A send that waits. ``send`` is a `SendParams` as JSON; ``created`` is Unix ms; ``source`` is who
    said it: uid, pid, tty, client."""

    id: str
    created: int
    source: Json
    send: Json


class Taken(NamedTuple):
    """Where a send went; ``message`` None: it is not known to have got there."""

    session: str
    message: str | None


class Counts(NamedTuple):
    """``problem``: why the rest is not known, with the place; a status tells that and goes on."""

    waiting: int
    refused: int
    problem: str | None = None


def is_alias(text: str) -> bool:
    """Whether this is ``spool:<uuid>``."""
    return spool_uuid(text) is not None


def uuid_of(alias: str) -> str:
    uuid = spool_uuid(alias)
    assert uuid is not None, alias
    return uuid


def new_id() -> str:
    """A fresh ``spool:<uuid>``."""
    raw = bytearray(os.urandom(16))  # a random UUID, without the 10 ms that its module takes
    raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{SPOOLED}{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# ---------------------------------------------------------------- what a file holds


def encode(spooled: Spooled) -> bytes:
    fields = {"version": VERSION, **spooled._asdict()}
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    body = text.encode("utf-8", "replace")[:-1]
    return body + _CRC % zlib.crc32(body)


def decode(data: bytes) -> Spooled:
    """Raises `Broken`."""
    body, tail = data[:-_CRC_SIZE], data[-_CRC_SIZE:]
    if tail != _CRC % zlib.crc32(body):
        raise Broken("its checksum is wrong")
    try:
        fields = nesting.loads(body + b"}")
    except ValueError:
        raise Broken("it is not JSON") from None
    if not isinstance(fields, dict) or fields.get("version") != VERSION:
        raise Broken("another version of dshctl wrote it")
    found = Spooled(*map(fields.get, Spooled._fields))  # type: ignore[arg-type]
    kinds = {"id": str, "created": int, "source": dict, "send": dict}
    wrong = [name for name, kind in kinds.items() if type(getattr(found, name)) is not kind]
    if wrong or not is_alias(found.id):
        raise Broken(f"its {wrong[0] if wrong else 'id'} is wrong")
    return found


# ---------------------------------------------------------------- the directory


class Spool:
    """A state directory's spool. Durability: what a method did is on disk when it returns."""

    def __init__(self, disk: Disk, state: Path) -> None:
        self.disk = disk
        self.path = state / "spool"
        self.refused = self.path / "refused"
        self.taken = self.path / "taken"

    @contextlib.contextmanager
    def locked(self, patience: float = LOCK_S) -> Iterator[bool]:
        """Alone with the spool, which must be there; False: somebody has it for longer than ``patience``.
        A disk in memory is nobody else's."""
        if self.disk.inline:
            yield True
            return
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield _lock(fd, time.monotonic() + patience)
        finally:
            os.close(fd)

    def put(self, spooled: Spooled) -> None:
        """Hand in a send, in the `locked` spool."""
        last = max((int(_NAME.match(name)[1]) for name in self.waiting()), default=0)  # type: ignore[index]
        name = f"{last + 1:012}-{uuid_of(spooled.id)}.json"
        self.disk.write_atomic(self.path / name, encode(spooled))

    def prepare(self) -> None:
        """Make the directory, if there is none."""
        self.disk.create_dir_synced(self.path)

    # -- what is there

    def waiting(self) -> list[str]:
        """Names of the sends that wait, the first one first."""
        return [name for name in self._names() if _NAME.match(name)]

    def strange(self) -> list[str]:
        """Names of what doesn't belong here."""
        known = (self.refused.name, self.taken.name)
        return [n for n in self._names() if not _NAME.match(n) and not n.startswith(".") and n not in known]

    def _names(self, place: Path | None = None) -> list[str]:
        try:
            return self.disk.listdir(place or self.path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def look(self) -> list[str]:
        """The names of all that waits, once whoever is handing something in has done so.

        What a writer that was killed left half written was never acknowledged, and is removed.
        """
        if not self.disk.exists(self.path):
            return []
        with self.locked() as alone:
            for name in self._names() if alone else ():
                if name.startswith(".") and name.endswith(".tmp"):
                    self.disk.unlink(self.path / name)
            return [*self.strange(), *self.waiting()]

    def counts(self) -> Counts:
        """How many wait, and how many were refused. Never a reason to fail."""
        try:
            refused = [name for name in self._names(self.refused) if not name.startswith(".")]
            return Counts(len(self.waiting()), sum(name.endswith(".json") for name in refused))
        except OSError as error:
            return Counts(0, 0, f"{error.filename or self.path}: {(error.strerror or str(error)).lower()}")

    def read(self, name: str) -> Spooled:
        """Raises `Broken`."""
        match = _NAME.match(name)
        if match is None:
            raise Broken("it is not named like a send")
        found = self.disk.stat(self.path / name)
        if found.is_dir or found.size > MOST_BYTES:
            raise Broken("it is a directory" if found.is_dir else f"it has {found.size} bytes")
        spooled = decode(self.disk.read_bytes(self.path / name))
        if uuid_of(spooled.id) != match[2]:
            raise Broken("its name is another send's")
        return spooled

    # -- what becomes of it

    def note(self, alias: str, taken: Taken) -> None:
        """Write down where a send goes, or went."""
        self.disk.create_dir_synced(self.taken)
        self.disk.write_atomic(self.taken / uuid_of(alias), json.dumps(taken._asdict()).encode())

    def find(self, alias: str) -> Taken | None:
        """Where a send went, None if it was not taken up."""
        try:
            fields = json.loads(self.disk.read_bytes(self.taken / uuid_of(alias)))
            return Taken(str(fields["session"]), fields["message"])
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            return None

    def done(self, name: str) -> None:
        self.disk.unlink_synced(self.path / name)

    def refuse(self, name: str, reason: Mapping[str, Any], spooled: Spooled | None) -> None:
        """Set it aside with the reason. What is no send is kept as it is, beside the reason."""
        self.disk.create_dir_synced(self.refused)
        about = {**reason, "file": name, **(spooled._asdict() if spooled else {})}
        text = json.dumps(about, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        stem = name.removesuffix(".json")
        self.disk.write_atomic(self.refused / f"{stem}.json", text)
        if spooled is not None:
            self.done(name)
        else:
            kept = self.disk.spare_name(self.refused / f"{stem}.broken")
            self.disk.rename_synced(self.path / name, kept)

    def fate(self, alias: str) -> str | None:
        """``waiting`` or ``refused``, for one that was not taken up; None for one that never was."""
        tail = f"-{uuid_of(alias)}.json"
        if any(name.endswith(tail) for name in self.waiting()):
            return "waiting"
        return "refused" if self.refused_file(alias) is not None else None

    def refused_file(self, alias: str) -> Path | None:
        """Where the reason is."""
        tail = f"-{uuid_of(alias)}.json"
        return next((self.refused / n for n in self._names(self.refused) if n.endswith(tail)), None)


def _lock(fd: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        else:
            return True


def missing(alias: str, fate: str | None, file: Path | None) -> DshError:
    """Why there is no message of this name: not yet, not any more, or not at all."""
    if fate == "waiting":
        said = f"{alias} is on disk, in the spool; it becomes a message as soon as the daemon takes it up."
        return Unavailable(said, hint="dshctl daemon start")
    if fate == "refused":
        return NotFound(f"{alias} was refused when it was taken up.", hint=f"cat {file}")
    return NotFound(f'no message "{alias}"', hint="dshctl queue")
