"""The head of a body as text, and what must be said about it. Sans-IO."""

from __future__ import annotations

import codecs
import re
from email.message import Message

import attrs

from dshd.tools.text import decoded, describe_binary, is_binary, whole_end

SNIFFED = 2048  # bytes in which a page may say its own encoding
HTML = frozenset({"text/html", "application/xhtml+xml"})
# Text encodings that people write pages in; Python knows stranger ones, and some of them take for ever.
KNOWN = re.compile(
    r"utf-8|ascii|utf-16.*|utf-32.*|iso8859-\d+|latin.*|cp\d+|koi8-.|mac-.*|gb.*|big5.*|euc_.*|shift_jis.*|tis-620"
)
DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{2,40})""", re.IGNORECASE)


@attrs.frozen(slots=True)
class Kind:
    """What a server says that it sends. ``mime`` in lower case, ``""`` if it says nothing."""

    mime: str
    charset: str | None

    @property
    def html(self) -> bool:
        return self.mime in HTML


UNSAID = Kind("", None)


def kind(header: str) -> Kind:
    """Of a ``Content-Type``, however mangled."""
    message = Message()
    message["content-type"] = "".join(c for c in header if c.isprintable())
    charset = message.get_param("charset")
    mime = message.get_content_type() if "/" in header else ""
    return Kind(mime, charset if isinstance(charset, str) else None)


def codec_of(said: Kind, data: bytes) -> str:
    """The encoding that the header, a mark or the page itself names; else UTF-8."""
    marked = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    for mark, name in marked.items():
        if data.startswith(mark):
            return name
    declared = DECLARED.search(data[:SNIFFED]) if said.html and said.charset is None else None
    return _known(declared[1].decode("ascii") if declared else said.charset) or "utf-8"


def _known(name: str | None) -> str | None:
    try:
        found = codecs.lookup((name or "").strip()).name
    except (LookupError, ValueError):
        return None
    return found if KNOWN.fullmatch(found) else None


def text_of(said: Kind, data: bytes) -> tuple[str, list[str]]:
    """Text, and notes."""
    codec = codec_of(said, data)
    if codec == "utf-8":
        text, wanted = decoded(whole_end(data)), "UTF-8"
    else:
        text, wanted = data.decode(codec, "replace").replace("\0", "\ufffd"), codec
    broken = [f"bytes that are not {wanted} text are shown as \ufffd"] if "\ufffd" in text else []
    return text, broken


def is_text(said: Kind, data: bytes) -> bool:
    return not is_binary(data) or codec_of(said, data) != "utf-8"


def binary(data: bytes, size: int) -> str:
    return describe_binary("it", size, data)
