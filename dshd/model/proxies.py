"""Which proxy the environment names for an address."""

from __future__ import annotations

import os


class Proxies:
    """Of the environment as it is when this is made."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}  # {scheme or "all": address}
        if any(name.lower().endswith("_proxy") for name in os.environ):
            from urllib.request import getproxies

            self._named = getproxies()

    def of(self, scheme: str, host: str) -> str | None:
        """The proxy's address; None for straight."""
        proxy = self._named.get(scheme) or self._named.get("all")
        if proxy is None:
            return None
        from urllib.request import proxy_bypass

        if proxy_bypass(host):
            return None
        return proxy if "://" in proxy else f"http://{proxy}"
