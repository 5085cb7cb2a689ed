"""Each command is one call: the table of dshd-rpc(7), held against what is really asked."""

from __future__ import annotations

import json
import re

import pytest

from dshctl import client
from dshd.control.methods import METHODS
from tests.docs import pages
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import SESSION, Drop, Fake, Refuse
from tests.dshctl.test_schemas import ANSWERS, EVERY, PIECE, TAR, WOKEN, WOULD

TABLE = {
    item.tag.removeprefix("Ic "): pages.words(item.body, "Ic")
    for item in pages.read("dshd-rpc.7").section("COMMANDS")
}
LINES = [line for line, _ in EVERY if line and not line.startswith("-") and line != "nonsense"]


def of(line: str) -> set[str]:
    """What the table says of a command line."""
    words = [word for word in line.split() if not word.startswith("-")]
    return TABLE.get(" ".join(words[:2]), TABLE.get(words[0], set()))


@pytest.mark.parametrize("line", LINES)
def test_a_command_asks_what_the_table_says_and_changes_something_by_one_call(
    line: str, dshctl: Dshctl, fake: Fake
) -> None:
    fake.answers = json.loads(json.dumps(ANSWERS))
    if "--dry-run" in line:
        fake.answers["session.send"] = WOULD
    if line == "wake --all":
        fake.answers["session.wake"] = {"type": "woken", "exit": 0, "sessions": [WOKEN]}
    dshctl(*line.split(), stdin={"key deepseek": b"k\n", "import -": TAR}.get(line, b""))
    asked = [method for method, _ in fake.asked if method != "daemon.hello"]
    assert set(asked) <= of(line)
    assert len([method for method in asked if METHODS[method].writes and method != "attachment.put"]) <= 1


def test_what_the_table_names_exists() -> None:
    assert {name for names in TABLE.values() for name in names} <= set(METHODS)


def test_rpc_makes_one_call_and_prints_its_result(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers = {"session.show": SESSION}
    ran = dshctl("rpc", "session.show", '{"session":"api"}')
    assert (ran.code, json.loads(ran.out)) == (0, SESSION)
    assert fake.params("session.show") == [{"session": "api"}]
    assert dshctl("rpc", "session.show", "--json").last["exit"] == 0


def test_rpc_prints_notifications_as_they_come(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers = {"log.read": {"type": "log"}}
    fake.during["log.read"] = lambda peer, _: peer.notify("export.piece", {"data": "eA=="})
    first, last = dshctl("rpc", "log.read").objects
    assert first == {"method": "export.piece", "params": {"data": "eA=="}}
    assert last == {"type": "log"}


def test_rpc_exits_by_the_table(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers = {
        "session.show": Refuse("NOT_FOUND", 'no session "apy"', hint="dshctl ls"),
        "session.send": Drop(),
    }
    assert dshctl("rpc", "session.show").code == 4
    assert dshctl("rpc", "session.send").code == 1
    assert len(fake.params("session.send")) == 1, "it is not known to be repeatable"
    for wrong in ("{", "[]"):
        assert dshctl("rpc", "session.show", wrong).code == 2


def test_no_method_is_in_two_rows_of_the_page() -> None:
    tags = re.findall(r"^\.It Ic (\w+\.\w+)$", pages.read("dshd-rpc.7").source, re.M)
    assert len(tags) == len(set(tags))


# These are no writes to the daemon, and yet not simply asked again.
_ONCE = {
    "daemon.hello": "part of connecting", "log.unfollow": "of a connection that is gone",
    "session.export": "what came is written already", "session.fsck": "it may repair",
}  # fmt: skip


def test_all_that_changes_nothing_is_asked_again_after_a_lost_connection() -> None:
    reads = {name for name, method in METHODS.items() if not method.writes} - set(_ONCE)
    assert reads | {"daemon.stop", "daemon.reload"} == client._READS


def test_a_jobs_output_is_followed_through_a_restart_of_the_daemon(dshctl: Dshctl, fake: Fake) -> None:
    none = dict.fromkeys(("signal", "cause", "detail", "by"))
    end = {**none, "how": "exit", "code": 0, "bytes": 6, "ms": 1}
    more = {**PIECE, "offset": 3, "next": 6, "size": 6, "text": "dd\n", "state": "ended", "end": end}
    fake.answers["job.output"] = [PIECE, Drop(), more]
    assert dshctl("jobs", "output", "-f", "j3") == (0, "cc\ndd\n", "")
    assert [p.get("offset") for p in fake.params("job.output")][-2:] == [3, 3]
