from __future__ import annotations

import pytest

from dshd.tools.urls import BadUrl, host_of, parse


@pytest.mark.parametrize(
    ("text", "host", "whole"),
    [
        ("http://example.com", "example.com", "http://example.com/"),
        (" HTTP://Example.COM:80/a?b#c ", "example.com", "http://example.com/a?b"),
        ("https://example.com.:8443/", "example.com", "https://example.com:8443/"),
        ("http://[::1]:80/x", "::1", "http://[::1]/x"),
        ("http://bücher.example/ü ö?q=ä", "xn--bcher-kva.example",
         "http://xn--bcher-kva.example/%C3%BC%20%C3%B6?q=%C3%A4"),
        ("http://example.com/%7Ea+b;c", "example.com", "http://example.com/%7Ea+b;c"),
        ("http://127.1/", "127.1", "http://127.1/"),
    ],
)  # fmt: skip
def test_an_address_is_read_once_and_said_back_as_it_will_be_asked(text: str, host: str, whole: str) -> None:
    url = parse(text)
    assert (url.host, str(url)) == (host, whole)
    assert host_of(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "file:///etc/passwd",
        "ftp://example.com/",
        "example.com",
        "http://",
        "http:///path",
        "http://user@example.com/",
        "http://good.example:pw@evil.example/",
        "http://good.example\\@evil.example/",
        "http://evil.example%2f.good.example/",
        "http://exa mple.com/",
        "http://exa\0mple.com/",
        "http://[::1",
        "http://[::1%25lo]/",
        "http://[v1.x]/",
        "http://a:99999/",
        "http://a:b/",
        "http://a:0/",
        f"http://{'a' * 64}.example/",
        "http://" + "a" * 9000,
    ],
)
def test_what_could_be_read_in_two_ways_is_not_read_at_all(text: str) -> None:
    with pytest.raises(BadUrl):
        parse(text)
    assert host_of(text) is None


@pytest.mark.parametrize(
    ("location", "leads"),
    [
        ("/b", "http://a.example/b"),
        ("c?d", "http://a.example/x/c?d"),
        ("//other.example/", "http://other.example/"),
        ("HTTPS://other.example", "https://other.example/"),
    ],
)
def test_a_redirect_leads_where_a_browser_would_go(location: str, leads: str) -> None:
    assert str(parse("http://a.example/x/y").joined(location)) == leads


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://[", "javascript:alert(1)", "//u@b.example/"]
)
def test_a_redirect_to_what_is_not_fetched_is_no_way_around(location: str) -> None:
    with pytest.raises(BadUrl):
        parse("http://a.example/").joined(location)
