"""What a server sends, within bounds: decompressed by pieces, the head in memory, all of it in a file."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from dshd.spawn.output import Output
from dshd.tools.text import is_binary
from dshd.tools.threads import writing

MIB = 1 << 20
MOST = 32 * MIB  # bytes of a body, decompressed
PAGE = MIB  # bytes of HTML that are made readable: the beginning
HEAD = 30_000  # bytes of anything else that the model is shown
PIECE = 64 * 1024
BATCH = 256 * 1024  # bytes that are written at once


class Body:
    """``whole``: nothing was left out of what the server sent. ``file`` gets what is more than the head."""

    def __init__(self, encoding: str, *, html: bool, file: Path) -> None:
        self._most = PAGE if html else MOST
        self._file = file
        self._out = Output(PAGE if html else HEAD, 0, None if html else str(file))
        self._inflate = _inflater(encoding)
        self._batch = bytearray()
        self._begun = False
        self.size = 0
        self.whole = True

    async def take(self, data: bytes) -> bool:
        """A piece as it came; True: no more is wanted. Raises `zlib.error`.

        Cancellation: a write that has begun ends first.
        """
        for piece in self._pieces(data):
            piece = piece[: self._most - self.size]
            self.size += len(piece)
            self._batch += piece
            if len(self._batch) >= BATCH:
                await self._flush()
            if self.size >= self._most:
                self.whole = False
                return True
        return False

    async def ended(self) -> None:
        await self._flush()
        self._out.close()

    def dropped(self) -> None:
        """The call was given up: nothing of it stays."""
        self._out.close()
        if self._out.spill is not None:
            self._file.unlink(missing_ok=True)

    @property
    def head(self) -> bytes:
        return self._out.head

    @property
    def file(self) -> Path | None:
        """The file with all of it, if the head isn't all."""
        spill = self._out.spill
        return self._file if spill is not None and spill.written else None

    @property
    def unkept(self) -> str | None:
        """Why the file ends before the body does."""
        spill = self._out.spill
        return spill.error if spill is not None else None

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        if self._inflate is None:
            yield data
            return
        while data and not self._inflate.eof:
            yield self._inflate.decompress(data, PIECE)
            data = self._inflate.unconsumed_tail

    async def _flush(self) -> None:
        data, self._batch = bytes(self._batch), bytearray()
        if not self._begun and is_binary(data):
            self._out.follow()  # nobody can use a head of it: the file is what is wanted
        self._begun = True
        if data:
            await writing(self._out.feed, data)


def _inflater(encoding: str) -> zlib._Decompress | None:
    """For those who compress though they were asked not to."""
    kind = encoding.strip().lower()
    return zlib.decompressobj(zlib.MAX_WBITS | 32) if kind in {"gzip", "x-gzip", "deflate"} else None
