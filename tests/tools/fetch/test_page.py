from __future__ import annotations

import pytest

from dshd.tools.fetch.page import kind, text_of
from dshd.tools.fetch.readable import readable


@pytest.mark.parametrize(
    ("header", "data", "text"),
    [
        ("text/plain", "grün".encode(), "grün"),
        ("text/plain; charset=ISO-8859-1", "grün".encode("latin-1"), "grün"),
        ('text/html; charset="windows-1251"', "да".encode("cp1251"), "да"),
        ("text/html", '<meta charset="latin1">ü'.encode("latin-1"), '<meta charset="latin1">ü'),
        ("text/plain", "ü".encode("utf-16"), "ü"),
        ("text/plain; charset=punycode", b"abc", "abc"),
        ("text/plain; charset=zlib", b"abc", "abc"),
        ("text/plain; charset=\n", b"abc", "abc"),
        ("", b"\xef\xbb\xbfabc", "abc"),
        ("text/plain", "abcü".encode()[:-1], "abc"),
    ],
)
def test_text_is_read_as_it_says_it_is_written(header: str, data: bytes, text: str) -> None:
    assert text_of(kind(header), data) == (text, [])


def test_what_is_not_the_text_it_says_is_shown_and_said() -> None:
    text, notes = text_of(kind("text/plain"), b"a\xffb\0c")
    assert (text, notes) == ("a\ufffdb\ufffdc", ["bytes that are not UTF-8 text are shown as \ufffd"])


PAGE = """<!doctype html><html><head><title>The &amp; title</title><style>p {color: red}</style>
<script>if (a < b) { alert("no") }</script></head><body>
<h2>A
 heading</h2><p>Some   <b>bold</b> text, a <a href="../docs?x=1">link</a> and <a href="#here">one here</a>.
<ul><li>one<li><p>two</p></ul>
<pre>def f():
    return 1</pre><table><tr><td>a</td><td>b</td></tr></table>
<noscript>no</noscript><svg><title>no</title></svg><img alt="a cat" src="x"><a href="javascript:x">js</a>
</body></html>"""


def test_a_page_is_made_readable() -> None:
    assert readable("http://a.example/b/c", PAGE).split("\n") == [
        "The & title", "", "## A heading", "",
        "Some bold text, a [link](http://a.example/docs?x=1) and one here.", "",
        "- one", "- two", "",
        "```", "def f():", "    return 1", "```", "",
        "a | b", "",
        "[image: a cat]js",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "html", ["", "<", "<p", "<!--", "</a></a></pre>", "<script>", "&#x110000;", "<a href='http://['>x"]
)
def test_broken_html_is_no_error(html: str) -> None:
    assert isinstance(readable("http://a.example/", html), str)
