"""Texts and files that are too long for one line: put in pieces, then taken by the request that names them.

They belong to one connection. What is put lies in an unnamed file of the state directory, not in
memory, and is gone with the connection or with the daemon, whatever ends it.
"""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import attrs
import trio

from dshd import wire
from dshd.errors import Full, Invalid, NotFound
from dshd.log.disk import explained

MOST: Final = 64  # at once
MOST_BYTES: Final = 64 * 1024 * 1024  # of all of them

Json = dict[str, Any]


@attrs.define(eq=False)
class Upload:
    """``whole``: a file's bytes, of any size, not a text."""

    file: IO[bytes]
    whole: bool = False
    size: int = 0


class Uploads:
    def __init__(self) -> None:
        self._open: dict[str, Upload] = {}
        self._count = 0

    async def put(self, token: str | None, text: str, directory: Path) -> Json:
        """Add a piece; the name of the upload and its size. Raises `Full`, `NotFound`, `Invalid`."""
        if len(text) > wire.MAX_PIECE:
            raise Invalid(f"a piece has at most {wire.MAX_PIECE} characters @ $.text")
        return await self._add(token, text.encode("utf-8", "replace"), directory, whole=False)

    async def put_data(self, token: str | None, data: str, directory: Path) -> Json:
        """The same with a piece of a file, as base64. Its size is limited by the disk alone."""
        if len(data) > wire.MAX_PIECE:
            raise Invalid(f"a piece has at most {wire.MAX_PIECE} characters @ $.data")
        try:
            raw = base64.b64decode(data, validate=True)
        except binascii.Error:
            raise Invalid("expected base64 @ $.data") from None
        return await self._add(token, raw, directory, whole=True)

    async def _add(self, token: str | None, raw: bytes, directory: Path, *, whole: bool) -> Json:
        name, upload = await self._upload(token, directory, whole)
        if upload.whole != whole:
            raise Invalid(f'the upload "{name}" is of the other kind @ $.upload')
        self._check(upload, len(raw))
        with explained("write", directory):
            await trio.to_thread.run_sync(upload.file.write, raw)
        upload.size += len(raw)
        return {"type": "attachment", "upload": name, "bytes": upload.size}

    async def _upload(self, token: str | None, directory: Path, whole: bool) -> tuple[str, Upload]:
        if token is not None:
            return token, self._named(token)
        if len(self._open) >= MOST:
            raise Full(f"this connection has {MOST} uploads already.", outcome="not-written")
        with explained("write", directory):
            file = await trio.to_thread.run_sync(partial(_unnamed, directory))
        self._count += 1
        name = f"u{self._count}"
        self._open[name] = Upload(file, whole)
        return name, self._open[name]

    def _named(self, token: str) -> Upload:
        if token not in self._open:
            raise NotFound(f'no upload "{token}" on this connection', outcome="not-written")
        return self._open[token]

    def _check(self, upload: Upload, more: int) -> None:
        if upload.whole:
            return
        if upload.size + more > wire.MAX_TEXT:
            raise Full(f"not sent: the text has more than {wire.MAX_TEXT} bytes.", outcome="not-written")
        if sum(one.size for one in self._open.values() if not one.whole) + more > MOST_BYTES:
            raise Full(f"this connection has {MOST_BYTES} bytes of uploads.", outcome="not-written")

    async def taken(self, content: Sequence[Mapping[str, Any]] | None) -> list[Json] | None:
        """The blocks with the texts that they name; those uploads are gone then."""
        if content is None:
            return None
        return [await self._taken(block) for block in content]

    async def _taken(self, block: Mapping[str, Any]) -> Json:
        if block.get("type") != "text" or "upload" not in block or len(block) != 2:
            return dict(block)
        upload = self._take(str(block["upload"]), whole=False)
        return {"type": "text", "text": await trio.to_thread.run_sync(_text, upload.file)}

    def file(self, token: str) -> IO[bytes]:
        """A file that was put, from its beginning; whoever takes it closes it."""
        upload = self._take(token, whole=True)
        upload.file.seek(0)
        return upload.file

    def _take(self, token: str, *, whole: bool) -> Upload:
        upload = self._named(token)
        if upload.whole != whole:
            raise Invalid(f'the upload "{token}" is of the other kind @ $.upload')
        return self._open.pop(token)

    def close(self) -> None:
        for upload in self._open.values():
            upload.file.close()
        self._open.clear()


def _unnamed(directory: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=directory)


def _text(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode()
