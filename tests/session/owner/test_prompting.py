"""What a session's next request is made of, as it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from dshd.driver.port import Notes
from tests.session.rig import ME, Nowhere, World, followup, say, settled


class Somewhere(Nowhere):
    async def instructions(self, directory: Path) -> list[tuple[str, str]]:
        await trio.lowlevel.checkpoint()
        return [("/src/AGENTS.md", "use tabs\n" * 8_000)]

    async def notes(self, directory: Path) -> Notes:
        await trio.lowlevel.checkpoint()
        return Notes(persona="You are terse.", memory="Remembered for all projects:\n- tea")


async def test_the_parts_are_shown_with_their_sizes_and_what_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.session.rig.Nowhere", Somewhere)
    async with World().run() as world:
        session = await world.session()
        world.script = [say("an answer")]
        await settled(session, (await followup(session, "hello"))["message"])
        before = world.events(session)
        shown = await session.prompt()
        assert shown["text"] in world.requests[0].decode().encode().decode("unicode_escape")
        rows = {row["section"]: row for row in shown["sections"]}
        assert list(rows) == ["identity", "persona", "/src/AGENTS.md", "memory"]
        cut = rows["/src/AGENTS.md"]
        assert (cut["rule"], cut["why"], cut["budget"]) == ("head", "budget", 8_000)
        assert cut["tokens"] <= 8_000 < cut["was"]
        assert rows["memory"]["rule"] == "whole"
        assert shown["tokens"] == sum(shown["parts"].values())
        assert abs(shown["tokens"] - session.show()["context"]["used"]) < 20
        assert [tool["tool"] for tool in shown["tools"]] == ["gate", "look", "quick"]
        assert (shown["window"], shown["compacts_at"]) == (100_000, 80_000)
        assert world.events(session) == before, "looking writes nothing"


async def test_the_prompt_of_a_session_whose_model_is_gone_is_shown_without_a_window() -> None:
    async with World().run() as world:
        session = await world.session()

        def gone(*args: object, **more: object) -> None:
            from dshd.model.errors import ModelError

            raise ModelError("NO_ADAPTER", "there is no such route")

        world.models.prepare_call = gone  # type: ignore[method-assign, assignment]
        shown = await session.prompt()
        assert (shown["window"], shown["compacts_at"]) == (None, None)
        assert shown["sections"][0]["section"] == "identity"
        answer = await session.compact(ME)
        assert (answer["outcome"], answer["error"]["code"], answer["exit"]) == ("failed", "NO_ADAPTER", 10)
