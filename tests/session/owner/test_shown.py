"""What a session and a message show of themselves: since when, whose word, by whom."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from dshd import wire
from dshd.config import Sessions
from dshd.errors import Conflict
from tests.session.rig import ME, World, call, followup, settled, steer


async def test_a_turn_that_runs_says_since_when(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        assert session.show()["turn_started_at"] is None
        world.script = [call("gate")]
        sent = await followup(session, "x")
        await world.gate.began.wait()
        (start,) = [event for event in world.events(session) if event.type == "turn/start"]
        assert session.show()["turn_started_at"] == start.time
        with pytest.raises(Conflict, match=r"--if-idle, and \w+ runs turn 1 \(0 s\)\.$"):
            await followup(session, "y", if_idle=True)
        more = await steer(session, "z")
        assert (more["waits_for"], more["since_at"]) == (session.show()["doing"], session.show()["since_at"])
        assert (sent["since_at"], type(more["since_at"])) == (None, int)


async def test_the_end_of_an_aborted_turn_says_how_many_messages_were_parked(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        world.script = [call("gate")]
        await followup(session, "x")
        await world.gate.began.wait()
        await followup(session, "y")
        await followup(session, "z", hold=True)
        await session.abort(wire.AbortParams(), ME)
        (end,) = [event for event in world.events(session) if event.type == "turn/end"]
        assert end.data["parked"] == 1


async def test_settings_say_whose_word_they_are(autojump_clock: Any) -> None:
    async with World().run() as world:
        world.config = attrs.evolve(world.config, sessions=Sessions(ask="deny"))
        session = await world.session(net=True)
        origins = session.show_all()["origins"]
        assert origins == {
            "model": origins["model"], "mode": "session", "net": "session", "ask": "config",
            "patience": "default",
        }  # fmt: skip
        await session.change({"ask": "wait", "net": None}, ME)
        assert session.show_all()["origins"] == {**origins, "ask": "session", "net": "default"}


async def test_a_message_s_way_says_by_whom_in_words(autojump_clock: Any) -> None:
    async with World().run() as world:
        session = await world.session()
        sent = await followup(session, "x")
        await settled(session, sent["message"])
        way = session.message(sent["message"])["way"]
        assert [(stop["state"], stop["by"]) for stop in way] == [
            ("pending", "you (pts/3)"), ("claimed", "dshd"), ("entered", "dshd"), ("settled", "dshd"),
        ]  # fmt: skip
        assert way[0]["source"]["kind"] == "user"
