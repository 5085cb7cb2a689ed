"""The tools in the box."""

from __future__ import annotations

from dshd.tools.agents import Agent
from dshd.tools.bash import Bash
from dshd.tools.fetch.tool import Fetch
from dshd.tools.files import Edit, Read, Write
from dshd.tools.jobs import Jobs
from dshd.tools.registry import Registry
from dshd.tools.search import Glob, Grep
from dshd.tools.todo import Todo

FETCH_OFF = "a person can turn it on in the config, with fetch = true under [tools]"


def builtin_tools(provider_keys: frozenset[str] = frozenset()) -> Registry:
    """A registry of all of them. ``provider_keys`` are names of variables that no command may see.
    `fetch` is off until it is turned on."""
    tools = Agent(), Bash(provider_keys), Read(), Write(), Edit(), Glob(), Grep(), Jobs(), Todo(), Fetch()
    registry = Registry(tools)
    registry.turn(Fetch.name, FETCH_OFF)
    return registry
