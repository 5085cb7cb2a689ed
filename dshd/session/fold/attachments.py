"""Long texts: what becomes an attachment, and what the log says of one. Sans-IO.

A text block of more than `MOST_INLINE` bytes is kept as a file of its own, named by the hash of its
bytes, in the session's directory; in its place the log holds

    {"type": "file", "sha256": H, "bytes": N, "lines": L, "head": "...", "tail": "..."}

The file is durable before the message is acknowledged, and never changes. The model sees head, tail,
sizes and the path. The path is not in the log, so that a session's directory can be moved: it is said
again, in `request/context`, when it is another one.

Files that no message refers to are leftovers of refused sends and crashes, and do no harm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from dshd.errors import Full, Invalid
from dshd.log.codec import lossless
from dshd.session.fold.events import Block
from dshd.wire import MAX_TEXT

MOST_INLINE: Final = 64 * 1024  # bytes of UTF-8
HEAD: Final = 8 * 1024  # characters, at most, that the model sees of the beginning
TAIL: Final = 4 * 1024  # and of the end


@attrs.frozen(slots=True)
class Content:
    """What a message holds: its blocks, and the files that must be on disk before it is.
    # files: {sha256: text as UTF-8}
    """

    blocks: tuple[Block, ...]
    files: Mapping[str, bytes] = attrs.field(factory=dict)


def content_of(text: str | None, content: Sequence[Mapping[str, Any]] | None) -> Content:
    """A message given as text or as blocks. Raises `Invalid` when empty, `Full` when too large."""
    if (text is None) == (content is None):
        raise Invalid("give either text or content @ $.text", outcome="not-written")
    if content is None and text and len(text) <= MOST_INLINE and text.isascii() and not text.isspace():
        return Content(({"type": "text", "text": text},))
    given = [text or ""] if content is None else [_text(i, block) for i, block in enumerate(content)]
    texts = [str(lossless(text)) for text in given]
    if not any(text.strip() for text in texts):
        raise Invalid("the message is empty", hint="dshctl followup 'TEXT'", outcome="not-written")
    raw = [text.encode("utf-8", "replace") for text in texts]
    size = sum(map(len, raw))
    if size > MAX_TEXT:
        raise Full(f"not sent: the text has {size} bytes, the most is {MAX_TEXT}.",
                   hint="dshctl followup --ref FILE", outcome="not-written")  # fmt: skip
    files: dict[str, bytes] = {}
    return Content(tuple(_block(*each, files) for each in zip(texts, raw, strict=True)), files)


def _text(index: int, block: Mapping[str, Any]) -> str:
    text = block.get("text")
    if block.get("type") != "text" or not isinstance(text, str) or len(block) != 2:
        raise Invalid(f"expected a text block @ $.content[{index}]", outcome="not-written")
    return text


def _block(text: str, raw: bytes, files: dict[str, bytes]) -> Block:
    if len(raw) <= MOST_INLINE:
        return {"type": "text", "text": text}
    sha256 = hashlib.sha256(raw).hexdigest()
    files[sha256] = raw
    return {
        "type": "file", "sha256": sha256, "bytes": len(raw), "lines": lines_of(text),
        "head": _head(text), "tail": _tail(text),
    }  # fmt: skip


def lines_of(text: str) -> int:
    """Lines, the last one counted also when it has no end."""
    return text.count("\n") + (not text.endswith("\n"))


def _head(text: str) -> str:
    """The first lines that fit, whole ones unless the first is longer than half of that."""
    piece = text[:HEAD]
    cut = piece.rfind("\n")
    return piece[:cut] if cut >= HEAD // 2 else piece


def _tail(text: str) -> str:
    piece = text[-TAIL:]
    cut = piece.find("\n")
    return piece[cut + 1 :] if 0 <= cut <= TAIL // 2 else piece


def hashes(blocks: Sequence[Block]) -> list[str]:
    """The attachments that these blocks refer to."""
    return [str(block["sha256"]) for block in blocks if block.get("type") == "file"]


def said(block: Block) -> list[str]:
    """What a block stands for, as far as a key is concerned: its text, attached or not."""
    if block.get("type") == "file":
        return ["text", str(block["sha256"])]
    text = str(block.get("text", ""))
    return [str(block.get("type")), hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()]
