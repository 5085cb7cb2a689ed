"""dshd-rpc(7) against the table of methods, both ways."""

from __future__ import annotations

import re

import pytest

import dshctl.client  # noqa: F401 - its errors are no errors of the wire
from dshctl.cli import COMMANDS
from dshd import errors
from dshd.control.methods import METHODS
from dshd.wire.params import REQUIRED, wire_name
from tests.docs import pages
from tests.docs.pages import ROOT

PAGE = pages.read("dshd-rpc.7")
ITEMS = {item.tag.removeprefix("Ic "): item for item in PAGE.section("METHODS")}


def test_every_method_stands_in_the_page_and_no_other() -> None:
    assert set(ITEMS) == set(METHODS)


def told(body: str, word: str) -> set[str]:
    """The parameters on the line behind ``Needs`` or ``takes``."""
    found = re.search(rf"(?i)^{word}\n(\.Va .*)$", body, re.M)
    return pages.words(found[1], "Va") if found else set()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_told_with_its_parameters_and_whether_it_writes(name: str) -> None:
    method, body = METHODS[name], ITEMS[name].body
    fields = {wire_name(field): default for field, default in method.params.fields.items()}
    needed = {field for field, default in fields.items() if default is REQUIRED}
    assert told(body, "needs") == needed
    assert told(body, "takes") == set(fields) - needed
    assert ("\nWrites.\n" in body) == method.writes
    assert "\nAnswers\n.Vt " in body


def test_every_notification_stands_in_the_page_and_no_other() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "dshd" / "control").rglob("*.py"))
    named = set(re.findall(r'"((?:log|export|approval|session)\.[a-z]+)"', sources))
    items = {item.tag.removeprefix("Ic ") for item in PAGE.section("NOTIFICATIONS")}
    assert items == named - set(METHODS)


def test_every_code_stands_in_the_page_with_its_numbers() -> None:
    kinds = [errors.DshError]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each.__module__ == "dshd.errors"]
    wire = {
        kind.code: (str(kind.rpc_code), str(kind.exit_status))
        for kind in kinds
        if kind is not errors.Unreachable
    }
    wire["INTERNAL"] = (str(errors.Internal.rpc_code), str(errors.Internal.exit_status))
    rows = [item.tag.split(" Ta ") for item in PAGE.section("FAILURES") if "Er " in item.tag]
    assert {row[0].removeprefix("Er "): (row[1], row[2]) for row in rows} == wire


def test_every_command_stands_in_the_table() -> None:
    listed = {item.tag.removeprefix("Ic ").split()[0] for item in PAGE.section("COMMANDS")}
    (others,) = re.findall(r"^All others work on files:\n((?:\..*\n)+)", PAGE.source, re.M)
    assert listed | pages.words(others, "Ic") == set(COMMANDS)
