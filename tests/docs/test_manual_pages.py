"""The manual pages against the code: what the code has stands in its page, and the other way round."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

import dshctl.client  # noqa: F401 - its errors count, too
from dshctl import exits
from dshd import errors
from dshd.model.errors import CODES
from dshd.session.fold import events
from tests.docs import pages
from tests.docs.pages import ROOT


def all_errors(base: type[errors.DshError] = errors.DshError) -> Iterator[type[errors.DshError]]:
    yield base
    for child in base.__subclasses__():
        yield from all_errors(child)


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "man").iterdir()))
def test_a_page_is_clean_mdoc(page: str) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed here")
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", ROOT / "man" / page], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_page_names_all_the_others_in_order() -> None:
    own = [tuple(p.name.rsplit(".", 1)) for p in (ROOT / "man").iterdir()]
    for name, section in own:
        ends = (ROOT / "man" / f"{name}.{section}").read_text().partition(".Sh SEE ALSO\n")[2]
        named = re.findall(r"^\.Xr (\S+) (\d)", ends, re.MULTILINE)
        assert set(named) >= {other for other in own if other != (name, section)}
        assert named == sorted(named, key=lambda one: (one[1], one[0]))


def exit_items() -> dict[int, str]:
    """{exit status: what dshctl(1) says of it}"""
    found = {}
    for item in pages.read("dshctl.1").section("EXIT STATUS"):
        for status in re.findall(r"\d+", item.tag):
            found[int(status)] = item.source
    return found


def test_every_exit_status_stands_in_dshctl_1_and_no_other() -> None:
    assert set(exit_items()) == set(exits.MEANING)


@pytest.mark.parametrize("error", list(all_errors()), ids=lambda error: error.__name__)
def test_every_error_code_stands_at_the_exit_status_it_ends_in(error: type[errors.DshError]) -> None:
    assert error.code in pages.words(exit_items()[error.exit_status], "Er")


def test_no_two_errors_share_a_code() -> None:
    codes = [error.code for error in all_errors() if "code" in vars(error)]
    assert len(set(codes)) == len(codes)


def test_every_failure_of_a_model_call_stands_in_dshctl_1() -> None:
    page = pages.read("dshctl.1")
    known = {error.code for error in all_errors()}
    assert pages.words(page.source, "Er") - known == CODES - known


def event_types(*, soon: bool = False) -> set[str]:
    """The types that dshd-log(5) lists; with ``soon``, those it marks so."""
    items = pages.read("dshd-log.5").section("EVENTS")
    listed = [item.tag for item in items if "Em soon" in item.body or not soon]
    return {word for tag in listed for word in pages.words(tag, "Ic")}


def test_every_event_type_stands_in_dshd_log_5_and_no_other() -> None:
    assert event_types() == events.KNOWN_TYPES


def test_dshd_log_5_marks_the_events_that_are_told_before_they_are_synced() -> None:
    assert event_types(soon=True) == events.SOON_TYPES


def test_every_reason_of_a_turns_end_stands_in_dshd_log_5() -> None:
    (end,) = [i for i in pages.read("dshd-log.5").section("EVENTS") if "turn/end" in i.tag]
    assert set(events.TURN_REASONS) <= pages.words(end.body, "Li")


MACROS = set(
    "Fl Ar Cm Ic Op Oo Oc Pq Po Pc Ns No Em Sy Li Xr Sx It Nm Pa Ev Er Dq Sq Va Vt Ql".split()  # noqa: SIM905
)
PUNCTUATION = set(",.;:|()[]?!")


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "man").iterdir()))
def test_no_word_of_a_sentence_is_shown_as_a_flag(page: str) -> None:
    """``Fl -keep , the default`` would print "--keep, -the -default"."""
    for line in (ROOT / "man" / page).read_text().splitlines():
        words = line.split() if line.startswith(".") else []
        flags = False
        for word in words:
            if word.lstrip(".") in MACROS:
                flags = word.lstrip(".") == "Fl"
            elif flags and word not in PUNCTUATION:
                assert word.startswith("-") or len(word) == 1, f"{page}: {line}"
