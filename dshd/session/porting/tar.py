"""Tar, as far as sessions need it: plain files, one after the other, read and written in pieces.

Why not the standard library's: it believes what a file says of itself. It follows links, takes a long
name of any length into memory, lets a later member replace an earlier one, and calls an archive that was
cut off between two members a whole one. What comes from elsewhere is read here, so:

- A member is a regular file or a directory. Links, devices, and headers that change the meaning of others
  (long names, pax) are refused, by name; no session needs one.
- A name is relative, and no part of it is empty, ``..``, or has a control character in it.
- No name comes twice.
- The archive ends with a block of zeros. One without was cut off.

What is written is POSIX ustar: any tar can list and unpack it. Decisions, no IO: `header` gives a block,
`Reader` is fed blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)
MOST_MEMBERS: Final = 100_000
NAME_MOST: Final = 100  # bytes
SIZE_MOST: Final = 0o77777777777  # 8 GiB - 1
_FILE: Final = b"0\0"
_DIRECTORY: Final = b"5"
_OTHERS: Final = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe",
    b"S": "a sparse file",
}  # fmt: skip
_ABOUT_OTHERS: Final = {
    b"L": "a long name", b"K": "a long name", b"x": "a pax header", b"g": "a pax header",
}  # fmt: skip
_PACKED: Final = {
    b"\x1f\x8b": "gunzip", b"\x28\xb5\x2f\xfd": "zstd -d", b"\xfd7zXZ": "xz -d", b"BZh": "bunzip2",
}  # fmt: skip


class Wrong(ValueError):
    """Not an archive, or none that is taken; the text is a clause that says why. ``unpack``: the command
    that would make one of it."""

    def __init__(self, why: str, unpack: str | None = None) -> None:
        super().__init__(why)
        self.unpack = unpack


@attrs.frozen(slots=True)
class Member:
    """A file of ``size`` bytes, or a directory (``size`` 0)."""

    name: str
    size: int
    directory: bool = False

    @property
    def padding(self) -> int:
        """Zeros behind its bytes."""
        return -self.size % BLOCK


# --- writing -------------------------------------------------------------------------------------


def header(name: str, size: int, mtime: int, mode: int = 0o600) -> bytes:
    """The block before a file. ``mtime`` in Unix seconds."""
    raw = name.encode()
    assert len(raw) <= NAME_MOST, name
    if size > SIZE_MOST:
        raise Wrong(f"{name} has {size} bytes, more than a tar can hold")
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, max(0, mtime))
    block = raw.ljust(100, b"\0") + numbers + b" " * 8 + b"0" + bytes(100) + b"ustar\x0000"
    block = block.ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padding(size: int) -> bytes:
    """What goes behind a file of ``size`` bytes."""
    return bytes(-size % BLOCK)


# --- reading -------------------------------------------------------------------------------------


class Reader:
    """Give it the header blocks in order; it says what follows each."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._first = True

    def member(self, block: bytes) -> Member | None:
        """The member whose header this is; None at the end of the archive. Raises `Wrong`."""
        if len(block) < BLOCK:
            raise _cut_off() if not self._first else _no_tar(block)
        first, self._first = self._first, False
        if block == bytes(BLOCK):
            return None
        if not _is_header(block):
            raise _no_tar(block) if first else Wrong("a header in it is damaged")
        member = _member(block)
        if member.name in self._names:
            raise Wrong(f"it holds {member.name} twice")
        if len(self._names) >= MOST_MEMBERS:
            raise Wrong(f"it holds more than {MOST_MEMBERS} files")
        self._names.add(member.name)
        return member


def short() -> Wrong:
    """The archive ended inside a member."""
    return _cut_off()


def _cut_off() -> Wrong:
    return Wrong("it is cut off")


def _no_tar(block: bytes) -> Wrong:
    unpack = next((command for magic, command in _PACKED.items() if block.startswith(magic)), None)
    return Wrong("it is compressed", unpack) if unpack else Wrong("it is no tar of a session")


def _is_header(block: bytes) -> bool:
    summed = sum(block[:148]) + 8 * 32 + sum(block[156:])
    return block[257:262] == b"ustar" and _octal(block[148:156]) == summed


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else None


def _member(block: bytes) -> Member:
    kind, size = block[156:157], _octal(block[124:136])
    if kind in _ABOUT_OTHERS:
        raise Wrong(f"it holds {_ABOUT_OTHERS[kind]}")
    name = _name(block)
    if kind == _DIRECTORY:
        return Member(name, 0, directory=True)
    if kind not in (_FILE[:1], _FILE[1:]):
        raise Wrong(f"{name} in it is {_OTHERS.get(kind, 'no file')}")
    if size is None:
        raise Wrong(f"{name} in it has no size that can be read")
    return Member(name, size)


def _name(block: bytes) -> str:
    prefix = block[345:500].split(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    raw = block[:100].split(b"\0")[0]
    try:
        text = (prefix + b"/" + raw if prefix else raw).decode()
    except UnicodeDecodeError:
        raise Wrong("a name in it is not UTF-8") from None
    parts = list(_parts(text))
    if not parts or text.startswith("/"):
        raise Wrong(f"it holds a file named {text!r}")
    return "/".join(parts)


def _parts(text: str) -> Iterator[str]:
    for part in text.removesuffix("/").removeprefix("./").split("/"):
        if part in ("", "..", ".") or not part.isprintable():
            raise Wrong(f"it holds a file named {text!r}")
        yield part
