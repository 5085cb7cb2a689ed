"""What a page looks like to who reads it: a process that is given HTML and prints text.

In a process, because a page can be made so that reading it takes for ever, and the interpreter is held
meanwhile. Standard library only, started with `-I -S`. On stdin: a line with the page's address, then UTF-8.
Headings, lists, links (absolute) and code keep a mark; what is not shown (scripts, styles) is left out.
"""

from __future__ import annotations

import re
import resource
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

MEMORY = 1 << 30  # bytes of address space
UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "math", "iframe", "object", "select"})
BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "body", "dd", "details", "dialog", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "legend", "main", "nav", "ol", "p",
    "pre", "section", "summary", "table", "title", "tr", "ul",
))  # fmt: skip
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
MARKS = frozenset({"- ", *HEADINGS.values()})
SPACE = re.compile(r"[ \t\r\n\f]+")


class Reader(HTMLParser):
    """Feed it, close it, and take ``text``."""

    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base = base
        self._parts: list[str] = []
        self._unseen: list[str] = []  # open elements that nothing of is shown
        self._literal = 0  # open <pre>
        self._links: list[tuple[str, int]] = []  # (address, where its text begins)

    @property
    def text(self) -> str:
        lines = (line.rstrip() for line in "".join(self._parts).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in UNSEEN:
            self._unseen.append(tag)
        if self._unseen:
            return
        given = dict(attrs)
        if tag in HEADINGS:
            self._apart(HEADINGS[tag])
        elif tag == "li":
            self._line("- ")
        elif tag == "br":
            self._parts.append("\n")
        elif tag in ("td", "th"):
            self._cell()
        elif tag in BLOCKS:
            self._apart("")
        self._special(tag, given)

    def _special(self, tag: str, given: dict[str, str | None]) -> None:
        if tag == "pre":
            self._parts.append("```\n")
            self._literal += 1
        elif tag == "img" and given.get("alt"):
            self._parts.append(f"[image: {SPACE.sub(' ', given['alt'] or '')}]")
        elif tag == "a":
            self._links.append((self._address(given.get("href")), len(self._parts)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag in UNSEEN or tag in ("a", "pre"):
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._unseen:
            if tag == self._unseen[-1]:
                self._unseen.pop()
            return
        if tag == "a" and self._links:
            self._close_link(*self._links.pop())
        elif tag == "pre" and self._literal:
            self._literal -= 1
            self._line("```")
        if tag in BLOCKS or tag in HEADINGS:
            self._apart("")

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        if self._literal:
            self._put(data)
            return
        text = SPACE.sub(" ", data)
        self._put(text.lstrip() if self._last.endswith(("\n", " ")) else text)

    def _close_link(self, address: str, start: int) -> None:
        words = "".join(self._parts[start:]).strip()
        if address and words and "\n" not in words:
            self._parts[start:] = [f"[{words}]({address})"]

    def _address(self, href: str | None) -> str:
        try:
            found = urljoin(self._base, (href or "").strip())
        except ValueError:
            return ""
        leads = found.startswith(("http://", "https://")) and not (href or "").startswith("#")
        return found if leads else ""

    @property
    def _last(self) -> str:
        return self._parts[-1] if self._parts else "\n"

    def _put(self, text: str) -> None:
        if text:
            self._parts.append(text)

    def _cell(self) -> None:
        self._put("" if self._last.endswith("\n") else " | ")

    def _line(self, mark: str) -> None:
        self._put(mark if self._last.endswith("\n") else f"\n{mark}")

    def _apart(self, mark: str) -> None:
        if not self._parts or (self._last.lstrip("\n") in MARKS and not mark):
            self._put(mark)  # at the beginning, and behind a mark, there is nothing to stand apart from
        else:
            self._put(f"\n\n{mark}")


def readable(base: str, html: str) -> str:
    reader = Reader(base)
    reader.feed(html)
    reader.close()
    return reader.text


def main() -> None:
    """The process: stdin to stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    base, _, html = sys.stdin.buffer.read().decode("utf-8", "replace").partition("\n")
    sys.stdout.buffer.write(readable(base, html).encode("utf-8", "replace"))
