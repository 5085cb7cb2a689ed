"""Hooks whose program is not where they look for it: said before the first event finds out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from dshd.config import Config

SHELL_SIGNS = frozenset("|&;<>()$`\"'*?[]#~=%!{}\\")  # what only a shell understands, so we don't guess


def missing(config: Config, path: str) -> list[str]:
    """A sentence for each program that is neither a file nor on ``path``. Blocks for a moment.

    A session may have another PATH; a relative name is one of its directory. Of a text for the shell only a
    plain first word is looked for.
    """
    return [
        f"{where} runs {program}, and there is no such program"
        for where, program in _programs(config)
        if not program.startswith(("./", "../")) and shutil.which(program, path=path) is None
    ]


def _programs(config: Config) -> Iterator[tuple[str, str]]:
    if config.notify.command is not None:
        yield from _program("notify.command", config.notify.command)
    for name, server in config.mcp.items():
        if server.command is not None:
            yield from _program(f"mcp.{name}.command", server.command)
    for n, hook in enumerate(config.hooks):
        yield from _program(f"hooks[{n}].command", hook.command)


def _program(where: str, command: str | list[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(command, str):
        yield where, command[0]
    elif (words := command.split()) and "/" in words[0] and not SHELL_SIGNS.intersection(words[0]):
        yield where, words[0]
