"""`read`, `write` and `edit`: files by name, within bounds, replaced whole or not at all.

Reading streams: a window of lines is found in a file of any size without holding more than the window.
Writing goes to a temporary file in the same directory, which is synced and renamed over the old one, so
there is never half a file, and the old one's mode stays. An edit changes bytes: what it does not name is
left as it was, valid text or not, whatever its line ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from io import BufferedReader, FileIO
from typing import Any, ClassVar

import attrs

from dshd import plural
from dshd.tools import text
from dshd.tools.containment import Target, check, open_file, open_parent, resolve, trouble
from dshd.tools.threads import reading, writing
from dshd.tools.tool import Args, ToolContext, ToolFailure, ToolOutput, text_output

LINES = 2000  # in one read, unless asked for fewer
LINE_BYTES = 2000
WINDOW_BYTES = 48 * 1024
COUNTED = 16 * 1024 * 1024  # files up to this size are read to the end to say how many lines are left
EDITABLE = 32 * 1024 * 1024
SECONDS = 20.0  # of one read

PATH = {"type": "string", "description": "absolute, or relative to the session's directory"}


def schema(required: list[str], **properties: Any) -> dict[str, Any]:
    """An object schema that takes nothing but these properties."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# -- read -----------------------------------------------------------------------------------------------


@attrs.define(slots=True)
class Window:
    """Lines ``first`` to ``last`` (1-based) of a file, numbered, and what there is to say about them."""

    first: int
    last: int
    shown: list[str]
    full: bool = False  # stopped for size, not for the limit
    more: bool = False
    total: int | None = None  # lines of the whole file, where counted
    invalid: bool = False  # not UTF-8
    crlf: bool = False


class Read:
    """Show a file's lines, numbered."""

    name: ClassVar[str] = "read"
    description: ClassVar[str] = (
        f"Show a text file, with line numbers. At most {LINES} lines and {WINDOW_BYTES // 1024} KiB at once;"
        " offset (first line, from 1) and limit (lines) choose the part. Long lines are cut."
    )
    schema: ClassVar[dict[str, Any]] = schema(
        ["path"],
        path=PATH,
        offset={"type": "integer", "minimum": 1, "description": "first line, from 1"},
        limit={"type": "integer", "minimum": 1, "description": "number of lines"},
    )
    read_only: ClassVar[bool] = True

    def describe(self, args: Args) -> str:
        return f"read: {text.short_path(args['path'])}"

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        return await reading(_read, args, ctx)


def _read(args: Args, ctx: ToolContext) -> ToolOutput:
    target = resolve(args["path"], ctx)
    check("read", target, ctx)
    first, limit = int(args.get("offset", 1)), min(int(args.get("limit", LINES)), LINES)
    with open_file(target, ctx) as fd:
        size = os.fstat(fd).st_size
        with open(fd, "rb", closefd=False) as file:
            sample = file.peek(text.SAMPLE)
            if text.is_binary(sample):
                shown = text.describe_binary(str(target.named), size, sample)
                return text_output(shown, summary=f"binary, {size:,} bytes")
            return _shown(target, read_window(file, first, limit, size), first)


class Lines:
    """A file's lines, one after the other, within bounded memory and time whatever a "line" is."""

    def __init__(self, file: BufferedReader) -> None:
        self.file = file
        self.until = time.monotonic() + SECONDS

    def next(self) -> tuple[bytes, int]:
        """A line's beginning, and how many bytes of it were passed over; empty at the end."""
        line = piece = self.file.readline(1 << 16)
        dropped = 0
        while piece and not piece.endswith(b"\n"):
            self._in_time()
            piece = self.file.readline(1 << 20)
            dropped += len(piece)
        return line, dropped

    def skip(self, lines: int) -> int:
        """Pass over so many lines; how many there were."""
        passed = 0
        while passed < lines and self.next()[0]:
            passed += 1
            if passed % 4096 == 0:
                self._in_time()
        return passed

    def _in_time(self) -> None:
        if time.monotonic() > self.until:
            raise ToolFailure(f"stopped after {SECONDS:.0f} s; the file is too large to read so far in")


def read_window(file: BufferedReader, first: int, limit: int, size: int) -> Window:
    """The window of ``limit`` lines from line ``first``; stops early when it holds enough bytes."""
    lines = Lines(file)
    skipped = lines.skip(first - 1)
    window = Window(first, skipped, [])
    room = WINDOW_BYTES
    while skipped == first - 1 and len(window.shown) < limit:
        line, dropped = lines.next()
        if not line:
            break
        room -= min(len(line), LINE_BYTES) + 8
        if room < 0 and window.shown:
            window.full = True
            break
        window.last += 1
        window.shown.append(_numbered(window, line, dropped))
    _look_ahead(lines, window, size)
    return window


def _numbered(window: Window, line: bytes, dropped: int) -> str:
    window.crlf = window.crlf or line.endswith(b"\r\n")
    body, cut = text.shorten(line.rstrip(b"\r\n"), LINE_BYTES)
    shown, valid = text.decode(body)
    window.invalid = window.invalid or not valid
    if window.last == 1:
        shown = shown.removeprefix("\ufeff")
    mark = f" [... {cut + dropped:,} more bytes in this line]" if cut + dropped else ""
    return f"{window.last:>6}\t{shown}{mark}"


def _look_ahead(lines: Lines, window: Window, size: int) -> None:
    if size > COUNTED:
        window.more = window.full or bool(lines.file.peek(1))
        return
    left = lines.skip(sys.maxsize) + window.full  # the line that had no room counts
    window.more, window.total = left > 0, window.last + left


def _shown(target: Target, window: Window, first: int) -> ToolOutput:
    if not window.shown and window.last < first - 1:
        raise ToolFailure(
            f"{target.named} has {plural.count(window.last, 'line')}; there is no line {first}",
            code="OUT_OF_RANGE",
        )
    if not window.shown:
        return text_output(f"[{target.named} is empty]" if first == 1 else "[end of file]", summary="0 lines")
    body = "\n".join([*window.shown, *_footer(window)])
    return text_output(body, summary=plural.count(len(window.shown), "line"))


def _footer(window: Window) -> Iterator[str]:
    if window.more:
        of = f" of {window.total}" if window.total is not None else ""
        yield f"[lines {window.first}-{window.last}{of}; go on with offset={window.last + 1}]"
    if window.invalid:
        yield "[not valid UTF-8: \ufffd stands for bytes that are not text]"
    if window.crlf:
        yield "[lines end in CR LF]"


# -- write ----------------------------------------------------------------------------------------------


class Write:
    """Make a file, or replace one whole."""

    name: ClassVar[str] = "write"
    description: ClassVar[str] = (
        "Make a file with this content, or replace the whole of an existing one; directories are made as"
        " needed. To change a part of a file use edit."
    )
    schema: ClassVar[dict[str, Any]] = schema(["path", "content"], path=PATH, content={"type": "string"})
    read_only: ClassVar[bool] = False

    def describe(self, args: Args) -> str:
        return f"write: {text.short_path(args['path'])}"

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        return await writing(_write, args, ctx)


def _write(args: Args, ctx: ToolContext) -> ToolOutput:
    target = resolve(args["path"], ctx)
    data = args["content"].encode()
    with open_parent("write", target, ctx) as parent:
        before = _stat(parent, target)
        old = _old_bytes(target, ctx) if before is not None and before.st_size <= EDITABLE else b""
        replace(parent, target, data, before)
    added, removed = text.changed_lines(old, data)
    what = "made" if before is None else "replaced"
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    size = f"{plural.count(lines, 'line')}, {len(data):,} bytes"
    return text_output(f"{what} {target.named}: {size}", summary=f"+{added} -{removed}")


def _old_bytes(target: Target, ctx: ToolContext) -> bytes:
    try:
        with open_file(target, ctx) as fd, FileIO(fd, closefd=False) as file:
            return file.readall() or b""
    except ToolFailure:  # not readable is no reason not to replace it
        return b""


def _stat(parent: int, target: Target) -> os.stat_result | None:
    """What stands at the target now; None when nothing does."""
    try:
        found = os.stat(target.path.name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise trouble(error, target) from None
    if not stat.S_ISREG(found.st_mode):
        raise ToolFailure(f"{target.named} exists and is not a regular file", code="NOT_A_FILE")
    return found


def replace(parent: int, target: Target, data: bytes, before: os.stat_result | None) -> None:
    """Put ``data`` at the target, whole or not at all, if what stands there is still ``before``.

    The mode is the old file's, for a new one the directory's without its x bits; the group is kept where
    the system lets us. Durability: the content is synced before the rename, so a crash shows either file.
    """
    temporary = f".{target.path.name[:80]}.{secrets.token_hex(6)}.tmp"
    try:
        _write_temporary(parent, temporary, data, before)
        if not _unchanged(before, _stat(parent, target)):
            raise ToolFailure(f"{target.named} was changed meanwhile; nothing was written", code="CHANGED")
        os.rename(temporary, target.path.name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError as error:
        _remove(parent, temporary)
        raise trouble(error, target) from None
    except BaseException:
        _remove(parent, temporary)
        raise


def _write_temporary(parent: int, name: str, data: bytes, before: os.stat_result | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(name, flags, 0o600, dir_fd=parent)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        _take_over(fd, parent, before)
        os.fsync(fd)
    finally:
        os.close(fd)


def _take_over(fd: int, parent: int, before: os.stat_result | None) -> None:
    if before is None:
        os.fchmod(fd, stat.S_IMODE(os.fstat(parent).st_mode) & 0o666 | 0o600)
        return
    if before.st_gid != os.fstat(fd).st_gid:
        with contextlib.suppress(OSError):  # not a member: the file's group is ours then
            os.fchown(fd, -1, before.st_gid)
    os.fchmod(fd, stat.S_IMODE(before.st_mode) & 0o777)


def _unchanged(before: os.stat_result | None, now: os.stat_result | None) -> bool:
    if before is None or now is None:
        return before is now
    return _version(before) == _version(now)


def _version(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _remove(parent: int, name: str) -> None:
    with contextlib.suppress(OSError):  # it was renamed, or never made
        os.unlink(name, dir_fd=parent)


# -- edit -----------------------------------------------------------------------------------------------


class Edit:
    """Replace one piece of a file's text by another."""

    name: ClassVar[str] = "edit"
    description: ClassVar[str] = (
        "Replace old_string by new_string in a file. old_string must stand there exactly once, whitespace"
        " included, without the line numbers that read shows; with replace_all, all of them are replaced."
    )
    schema: ClassVar[dict[str, Any]] = schema(
        ["path", "old_string", "new_string"],
        path=PATH,
        old_string={"type": "string"},
        new_string={"type": "string"},
        replace_all={"type": "boolean", "description": "replace every occurrence (default: false)"},
    )
    read_only: ClassVar[bool] = False

    def describe(self, args: Args) -> str:
        return f"edit: {text.short_path(args['path'])}"

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        if not args["old_string"]:
            raise ToolFailure("old_string is empty; to make a file use write", code="INVALID_ARGS")
        if args["old_string"] == args["new_string"]:
            raise ToolFailure("old_string and new_string are the same; nothing to do", code="INVALID_ARGS")
        return await writing(_edit, args, ctx)


def _edit(args: Args, ctx: ToolContext) -> ToolOutput:
    target = resolve(args["path"], ctx)
    with open_parent("edit", target, ctx, make=False) as parent:
        before, old = _editable(target, ctx)
        new, count, line = edited(old, args["old_string"], args["new_string"], bool(args.get("replace_all")))
        replace(parent, target, new, before)
    added, removed = text.changed_lines(old, new)
    times = plural.count(count, "replacement")
    return text_output(f"edited {target.named}: {times}, line {line}", summary=f"+{added} -{removed}")


def _editable(target: Target, ctx: ToolContext) -> tuple[os.stat_result, bytes]:
    with open_file(target, ctx) as fd, FileIO(fd, closefd=False) as file:
        before = os.fstat(fd)
        if before.st_size > EDITABLE:
            raise ToolFailure(
                f"{target.named} is too large to edit ({before.st_size:,} bytes)", code="TOO_LARGE"
            )
        return before, file.readall() or b""


def edited(data: bytes, old_text: str, new_text: str, everywhere: bool) -> tuple[bytes, int, int]:
    """The new bytes, how many replacements they hold, and the line of the first. `ToolFailure` if unclear."""
    old, new = old_text.encode(), new_text.encode()
    count = data.count(old)
    if not count and b"\r\n" in data:
        # a model writes \n for a line end; the file's own line ends stay
        old, new = _crlf(old), _crlf(new)
        count = data.count(old)
    if not count:
        raise ToolFailure(f"old_string is not in the file{_nearly(data, old_text)}", code="NO_MATCH")
    lines = text.line_numbers(data, old)
    if count > 1 and not everywhere:
        where = ", ".join(map(str, lines)) + (", ..." if count > len(lines) else "")
        raise ToolFailure(
            f"old_string stands in the file {count} times (lines {where}); nothing was changed. Give more"
            " of the text around it so that it is unique, or set replace_all",
            code="AMBIGUOUS",
        )
    return data.replace(old, new), count, lines[0]


def _crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _nearly(data: bytes, wanted: str) -> str:
    """Where the text stands but for its whitespace: the usual reason."""
    first = next((line.strip().encode() for line in wanted.split("\n") if line.strip()), b"")
    lines = [i for i, line in enumerate(data.split(b"\n"), 1) if first and line.strip() == first]
    if not lines:
        return "; read the file again and copy the text exactly"
    return f"; its first line stands, with other whitespace or other lines after it, on line {lines[0]}"
