"""Bytes of unknown origin as text for a model: numbered lines, whole code points, marks. Sans-IO.

Lines end at byte 0x0A and nowhere else. What is not UTF-8 is shown with U+FFFD and said to be so; what
holds NUL bytes is shown as a hex dump of its beginning. Nothing here assumes that there are lines: a
"line" is cut after so many bytes whether or not it ends.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

SAMPLE = 8192  # bytes looked at to tell text from binary
DUMPED = 256
MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or a document in one)"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "an ELF binary"),
    (b"SQLite format 3", "an SQLite database"),
    (codecs.BOM_UTF16_LE, "text in UTF-16 (iconv -f UTF-16 shows it)"),
    (codecs.BOM_UTF16_BE, "text in UTF-16 (iconv -f UTF-16 shows it)"),
)


def is_binary(sample: bytes) -> bool:
    return b"\0" in sample[:SAMPLE]


def describe_binary(name: str, size: int, sample: bytes) -> str:
    """What is shown instead of a binary file: kind, size in bytes, and a dump of the beginning."""
    kind = next((what for magic, what in MAGIC if sample.startswith(magic)), "binary")
    return f"{name} is {kind}, {size:,} bytes; not text. It begins:\n" + "\n".join(hexdump(sample[:DUMPED]))


def hexdump(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{at:08x}  {row.hex(' '):<47}  {shown}"


def decode(data: bytes) -> tuple[str, bool]:
    """Text, and whether it was valid UTF-8."""
    try:
        return data.decode(), True
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), False


def shorten(line: bytes, most: int) -> tuple[bytes, int]:
    """At most ``most`` bytes of a line, cut between code points, and how many bytes were cut off."""
    if len(line) <= most:
        return line, 0
    end = most
    while end > most - 4 and line[end] & 0xC0 == 0x80:  # inside of a code point, if it is UTF-8 at all
        end -= 1
    return line[:end], len(line) - end


def line_numbers(text: bytes, found: bytes, most: int = 5) -> list[int]:
    """The 1-based lines on which the first ``most`` occurrences of ``found`` begin."""
    lines: list[int] = []
    at, line, last = text.find(found), 1, 0
    while at >= 0 and len(lines) < most:
        line += text.count(b"\n", last, at)
        last = at
        lines.append(line)
        at = text.find(found, at + len(found))
    return lines


def changed_lines(old: bytes, new: bytes) -> tuple[int, int]:
    """Lines added and removed between two texts, outside of what they have in common at both ends."""
    start = old.rfind(b"\n", 0, _common(old, new)) + 1
    old, new = old[start:], new[start:]
    end = _common_end(old, new)
    return _lines(new[: len(new) - end]), _lines(old[: len(old) - end])


def _lines(data: bytes) -> int:
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))


def _common(left: bytes, right: bytes) -> int:
    """Bytes in common at the beginning, by halving: a comparison of slices is a memcmp."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(left: bytes, right: bytes) -> int:
    """Bytes of the whole lines in common at the end."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[len(left) - middle :] == right[len(right) - middle :]:
            low = middle
        else:
            high = middle - 1
    if low in (len(left), len(right)) and _at_line_start(left, low) and _at_line_start(right, low):
        return low
    first = left.find(b"\n", len(left) - low)
    return 0 if first < 0 else len(left) - first - 1


def _at_line_start(data: bytes, from_end: int) -> bool:
    at = len(data) - from_end
    return at == 0 or data[at - 1 : at] == b"\n"


def short_path(path: str, most: int = 60) -> str:
    """A path for a status line: its end, whole components where possible."""
    return path if len(path) <= most else "…" + path[-(most - 1) :]


# --- bytes that a command printed


def decoded(data: bytes) -> str:
    return data.decode(errors="replace").replace("\0", "\ufffd")


def whole_end(data: bytes) -> bytes:
    """Without the beginning of a code point at the end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            need = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if need > back else data
        if byte < 0x80:
            break
    return data


def whole_start(data: bytes) -> bytes:
    """Without the rest of a code point at the start."""
    for skip in range(min(4, len(data))):
        if data[skip] & 0xC0 != 0x80:
            return data[skip:]
    return data if len(data) > 3 else b""
