"""A full disk is told with what was not done."""

from __future__ import annotations

from typing import Any

import pytest

from dshd.control.refusals import worded
from dshd.errors import Conflict, NoSpace
from dshd.log.memory import MemoryDisk
from tests.control.rig import Refused, Server


@pytest.mark.parametrize(("method", "params", "says"), [
    ("session.send", {"session": "api", "no_wake": True}, "not sent: no space"),
    ("session.send", {"session": "api", "no_wake": True, "key": "k"}, "not sent: no space"),
    ("session.interrupt", {"session": "api"}, "not sent: no space"),
    ("session.create", {"dir": "/"}, "not made: no space"),
])  # fmt: skip
async def test_what_is_not_done_for_want_of_room_is_said(method: str, params: Any, says: str) -> None:
    disk = MemoryDisk()
    server = Server(disk)
    async with server.serving():
        await server.named("api")
        client = await server.client()
        disk.limit(free=0, files=0)
        with pytest.raises(Refused, match=f"^{says}") as caught:
            await client.call(method, **params, text="x" * 9000)
        assert (caught.value.code, caught.value.error["data"]["outcome"]) == ("NO_SPACE", "not-written")
        disk.heal()


def test_it_is_said_once_and_of_nothing_else() -> None:
    full = NoSpace("no space on /. Nothing was lost.", outcome="not-written")
    told = worded("session.send", full)
    assert told.message == "not sent: no space on /. Nothing was lost."
    assert worded("session.send", told) is told
    assert worded("session.rename", full) is full
    conflict = Conflict("busy")
    assert worded("session.send", conflict) is conflict
