from __future__ import annotations

import pytest

from dshd.tools.fetch.addresses import why_not


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "64:ff9b::1.1.1.1"])
def test_the_world_is_reached(address: str) -> None:
    assert why_not(address) is None


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1", "this machine"),
        ("127.8.9.10", "this machine"),
        ("0.0.0.0", "this machine"),
        ("0.1.2.3", "this machine"),
        ("::1", "this machine"),
        ("::", "this machine"),
        ("::127.0.0.1", "this machine"),
        ("::ffff:127.0.0.1", "this machine"),
        ("64:ff9b::7f00:1", "this machine"),
        ("2002:7f00:1::", "this machine"),
        ("169.254.169.254", "link-local"),
        ("::ffff:169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("10.0.0.1", "private"),
        ("172.16.3.4", "private"),
        ("192.168.1.1", "private"),
        ("::ffff:192.168.1.1", "private"),
        ("64:ff9b::c0a8:101", "private"),
        ("fd00::1", "private"),
        ("fec0::1", "private"),
        ("100.64.0.1", "no address of the open network"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "private"),
        ("240.0.0.1", "private"),
    ],
)
def test_what_is_not_the_world_is_told_apart_however_it_is_written(address: str, why: str) -> None:
    assert why_not(address) == why
