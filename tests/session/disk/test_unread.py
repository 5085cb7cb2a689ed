"""A log that can't be read: what the disk says is told, and nothing else is put in its place."""

from __future__ import annotations

import errno
import os

import pytest

from dshd.errors import DshError
from dshd.log.memory import MemoryDisk
from tests.session.rig import World, followup, settled


@pytest.mark.parametrize("code", [errno.EIO, errno.EFBIG, errno.EACCES])
async def test_who_asks_for_it_is_told_which_file_and_why(code: int) -> None:
    async with World().run() as world:
        session = await world.session(name="api")
        await settled(session, (await followup(session, "work"))["message"])
        after = world.crash()
    disk = after.disk
    assert isinstance(disk, MemoryDisk)
    before = list(after.store.ids())
    for call in ("open", "pread"):
        disk.fail(call, code, path=f"{session.id}/log.jsonl", times=-1)
    async with after.run():
        with pytest.raises(DshError) as raised:
            await after.again(session)
        said = raised.value.message.lower()
        assert f"{session.id}/log.jsonl" in said
        assert os.strerror(code).lower() in said
        assert raised.value.code != "NOT_FOUND"
        assert list(after.store.ids()) == before
        disk.heal()
        assert (await after.again(session)).state.last_turn == 1
