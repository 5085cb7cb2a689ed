"""Which addresses a model may be led to: those of the world, and no others unless a person names the host.

On this machine and beside it stand services that trust whoever reaches them: databases, routers, the metadata
of a cloud. Sans-IO.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address

TRANSLATED = IPv6Network("64:ff9b::/96")  # NAT64: the last 32 bits are an IPv4 address
SITE = IPv6Network("fec0::/10")


def why_not(text: str) -> str | None:
    """What kind of an address it is, if it is none of the world's. Raises `ValueError` for no address."""
    return _kind(_inner(ip_address(text.partition("%")[0])))


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 one leads to."""
    if isinstance(address, IPv4Address):
        return address
    if address in TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address


def _kind(address: Address) -> str | None:
    kinds = (
        (address.is_unspecified or address.is_loopback or _this_host(address), "this machine"),
        (address.is_link_local, "link-local"),
        (address.is_multicast, "multicast"),
        (address.is_private or address in SITE, "private"),
        (address.is_reserved or not address.is_global, "no address of the open network"),
    )
    return next((words for applies, words in kinds if applies), None)


def _this_host(address: Address) -> bool:
    """0.0.0.0/8, and the IPv4 addresses that stand in IPv6's first ones."""
    return int(address) >> (24 if address.version == 4 else 32) == 0
