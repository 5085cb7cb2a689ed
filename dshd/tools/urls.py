"""An address as it is written, read once, by one reader: rules are asked about the host that is connected to.

Two readers that disagree are a hole (``http://good.example\\@evil.example/``), so nothing behind this one
reads an address again. Sans-IO.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import attrs

PORTS = {"http": 80, "https": 443}
LONGEST = 8000  # characters
NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
LITERAL = re.compile(r"[0-9a-f:.]+")  # IPv6; a zone is no part of an address on the web
KEPT = "!$%&'()*+,-./:;=?@[]_~"  # what stays as it is in a path and a query


class BadUrl(ValueError):
    """``str()`` says what is wrong with it, for the model."""


@attrs.frozen(slots=True)
class Url:
    """``host`` in lower case, as DNS has it (``xn--``), without brackets; ``target``: path and query."""

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def authority(self) -> str:
        """As in the header ``Host``."""
        host = bracketed(self.host)
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def joined(self, location: str) -> Url:
        """Where a redirect leads. Raises `BadUrl`."""
        try:
            return parse(urljoin(str(self), location))
        except BadUrl:
            raise
        except ValueError as error:
            raise BadUrl(f"it can't be read: {error}") from None


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse(text: str) -> Url:
    """Raises `BadUrl`."""
    text = text.strip()
    if len(text) > LONGEST:
        raise BadUrl(f"it is longer than {LONGEST} characters")
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise BadUrl(f"it can't be read: {error}") from None
    if parts.scheme not in PORTS:
        raise BadUrl("only http:// and https:// are fetched")
    if "[" in parts.netloc and ":" not in (host or ""):
        raise BadUrl("its host is no address")
    if "@" in parts.netloc:
        raise BadUrl("a user or a password in an address is never sent; leave it out")
    if not host:
        raise BadUrl("it names no host")
    if port == 0:
        raise BadUrl("0 is no port")
    return Url(parts.scheme, _plain(host), port or PORTS[parts.scheme], _target(parts))


def host_of(text: str) -> str | None:
    """The host, None if there is none to be seen. Never raises."""
    try:
        return parse(text).host
    except BadUrl:
        return None


def spellings(host: str) -> list[str]:
    """A host as rules may call it: as DNS has it, and as people write it."""
    try:
        written = host.encode("ascii").decode("idna")
    except UnicodeError:
        return [host]
    return [host] if written == host else [host, written]


def _plain(host: str) -> str:
    if ":" in host:
        if LITERAL.fullmatch(host):
            return host
        raise BadUrl("its host is no address")
    try:
        plain = host.rstrip(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        plain = ""
    if not NAME.fullmatch(plain):
        raise BadUrl("its host is no name")
    return plain


def _target(parts: SplitResult) -> str:
    path = quote(parts.path, safe=KEPT) or "/"
    return f"{path}?{quote(parts.query, safe=KEPT)}" if parts.query else path
