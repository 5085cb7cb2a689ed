"""Tools, and who is asked before one runs: the rules, approvals, servers of others."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal

import attrs

from dshd.config.kinds import Command, Duration, Text


@attrs.frozen(slots=True, kw_only=True)
class Tools:
    bash_max: Duration = 600.0
    sandbox: Literal["auto", "bwrap", "landlock", "none"] = "auto"
    fetch: bool = False


@attrs.frozen(slots=True, kw_only=True)
class Rule:
    """All globs given must match; of the rules that match, the last wins."""

    action: Literal["allow", "ask", "deny"]
    tool: Text | None = None
    command: Text | None = None
    path: Text | None = None
    host: Text | None = None


@attrs.frozen(slots=True, kw_only=True)
class Approval:
    expires: Duration = 24 * 3600.0


@attrs.frozen(slots=True, kw_only=True)
class Jobs:
    """What goes on in the background. ``notify``: whether the end of one wakes its session; ``keep``: whether
    each outlives the daemon; ``max``: how many a session may have at once."""

    notify: Literal["none", "wake"] = "none"
    keep: bool = False
    max: int = 16


@attrs.frozen(slots=True, kw_only=True)
class Server:
    """One ``[mcp.NAME]``: a command to start, or a URL."""

    command: Command | None = None
    url: Text | None = None


def unserved(servers: Mapping[str, Server]) -> list[str]:
    """What keeps servers from being spoken to, a sentence each."""
    if not servers or _there("mcp"):
        return []
    return ["[mcp] is set, and the package for it is not installed: pip install 'dshd[mcp]'"]


def _there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # it is known not to be
        return False
