"""The secrets beside a log: what is no file of secrets is none, is told, and tells nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dshd.log.memory import MemoryDisk
from dshd.session.registry.environment import SECRETS, Environments, file
from tests.session.rig import World, followup, settled

GOOD = {"MY_TOKEN": "sesame", "OTHER_KEY": ""}
BAD = {
    "empty": b"",
    "zeros": bytes(30),
    "cut": b'{"MY_TOKEN": "sesame',
    "a list": b'["sesame"]',
    "a number": b'{"MY_TOKEN": 1, "A_KEY": "sesame"}',
    "a NUL": b'{"MY_TOKEN": "sesame\\u0000"}',
    "a name that is none": b'{"MY=TOKEN": "sesame"}',
    "no name": b'{"": "sesame"}',
    "half a surrogate pair": b'{"MY_TOKEN": "sesame\\ud83d"}',
    "no text": b"\xff\xfe\x00",
    "a nest": b"[" * 100_000,
}


@pytest.mark.parametrize("what", [*BAD, "what was written", "nothing"])
async def test_secrets_that_can_not_be_used_are_none_and_that_is_said(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with World().run() as world:
        session = await world.session()
        disk = world.disk
        assert isinstance(disk, MemoryDisk)
        path = world.store.session_dir(session.id) / SECRETS
        content = {"what was written": file(GOOD)[SECRETS], **BAD}.get(what)
        if content is not None:
            disk.write_atomic(path, content)
        with caplog.at_level(logging.WARNING):
            found = Environments(world.store).read(session.id)
        assert found == (GOOD if what == "what was written" else {})
        assert (str(path) in caplog.text) == (what in BAD)
        assert "sesame" not in caplog.text


@pytest.mark.parametrize("what", BAD)
async def test_a_daemon_starts_and_the_session_goes_on_without_them(what: str) -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await followup(session, "work", hold=True)
        after = world.crash()
    after.disk.write_atomic(after.store.session_dir(session.id) / SECRETS, BAD[what])
    async with after.run():
        again: Any = after.registry.loaded[session.id]
        assert again.message(sent["message"])["state"] == "held"
        assert (await settled(again, (await followup(again, "go on"))["message"]))["outcome"] == "completed"
