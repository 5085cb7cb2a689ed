"""Small files that can be made again: a checksum line, then the body. One that is not whole is none."""

from __future__ import annotations

import hashlib


def seal(body: bytes) -> list[bytes]:
    """The pieces of the file."""
    return [_digest(body) + b"\n", body]


def unseal(data: bytes) -> bytes:
    """The body. ValueError if these are not the bytes that were sealed."""
    digest, _, body = data.partition(b"\n")
    if digest != _digest(body):
        raise ValueError("its checksum is wrong")
    return body


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).hexdigest().encode()
