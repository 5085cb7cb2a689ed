"""dshctl(1) against the commands themselves: every command and option, both ways; dshd(8) likewise."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from dshctl.cli import COMMANDS, ROOT
from dshd.__main__ import _parser
from tests.docs import pages

PAGE = pages.read("dshctl.1")
SHARED = ("Common options", "Session options", "Send options")


def commands() -> dict[str, click.Command]:
    """{command as typed: it}, groups and their subcommands both."""
    with click.Context(ROOT, info_name="dshctl") as ctx:
        found = {}
        for name in COMMANDS:
            command = ROOT.get_command(ctx, name)
            assert command is not None
            found[name] = command
            if isinstance(command, click.Group):
                found |= {f"{name} {sub}": each for sub, each in command.commands.items()}
        return found


def options(command: click.Command) -> set[str]:
    """What only this command takes."""
    return every_flag(command) - every_flag(ROOT)


def every_flag(command: click.Command) -> set[str]:
    given = [param for param in command.params if isinstance(param, click.Option)]
    return {flag for param in given for flag in [*param.opts, *param.secondary_opts]}


def item_of(name: str) -> pages.Item:
    """The item of that command: ``.It Ic queue first ... , Ic queue last ...``."""
    words = name.split()
    found = [item for item in PAGE.section("COMMANDS") if any(t[: len(words)] == words for t in typed(item))]
    assert found, f"dshctl(1) has no item for {name}"
    return found[0]


def typed(item: pages.Item) -> Iterator[list[str]]:
    for part in f" {item.tag}".split(" Ic ")[1:]:
        yield part.replace(",", " ").split()


def shared_flags() -> set[str]:
    return {flag for item in PAGE.items if item.subsection in SHARED for flag in pages.flags(item.tag)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_its_item_with_every_option(name: str) -> None:
    for each, command in commands().items():
        if each.split()[0] == name:
            missing = options(command) - pages.flags(item_of(each).source) - shared_flags()
            assert not missing, f"dshctl(1) does not tell of these options of {each}"


def test_every_command_in_the_page_exists() -> None:
    known = {name.split()[0] for name in commands()}
    told = {words[0] for item in PAGE.section("COMMANDS") for words in typed(item)}
    assert told == known


def test_every_option_in_the_page_exists() -> None:
    known = {flag for command in commands().values() for flag in every_flag(command)} | every_flag(ROOT)
    told = {flag for item in PAGE.section("COMMANDS") for flag in pages.flags(item.tag)} | shared_flags()
    assert told - known <= {"-h", "--help"}


def test_dshd_8_has_every_option_of_dshd_and_no_other() -> None:
    taken = {flag for action in _parser()._actions for flag in action.option_strings}
    page = pages.read("dshd.8")
    assert {flag for item in page.section("DESCRIPTION") for flag in pages.flags(item.tag)} == taken
