"""The jobs of a session, without processes: what is written when, what ends them, and who is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from dshd import wire
from dshd.config import Config, Jobs
from dshd.errors import Conflict
from dshd.session.owner.session import Session
from tests.session.background import Background, Command
from tests.session.invariants import check_log, check_memory
from tests.session.rig import ME, World, call, followup, memory, of_type, say, settled, until


def world_of(*script: Any, jobs: Jobs | None = None) -> tuple[World, Background]:
    world = World(config=Config(jobs=jobs) if jobs is not None else None)
    world.script = list(script)
    world.tools.add(tool := Background())
    return world, tool


async def begun(session: Session, tool: Background, name: str, text: str = "work") -> Command:
    """A job of a turn that has ended."""
    command = tool.commands[name] = Command()
    await settled(session, (await followup(session, text))["message"])
    assert command.runs.is_set()
    return command


async def gone(session: Session) -> None:
    await until(session, lambda: not session.state.running_jobs)


def told(session: Session) -> list[str]:
    return [m.text for m in session.state.queues["next-step"] if m.kind == "job"]


async def test_that_it_began_is_on_disk_before_it_runs_and_its_end_with_the_notice() -> None:
    world, tool = world_of(call("bg:serve"), say("runs"), say("again"))
    async with world.run():
        session = await world.session()

        class Looking(Command):
            async def work(self, passage: Any) -> Any:
                assert [j["id"] for j in of_type(world, session, "job/started")] == ["j1"]
                return await super().work(passage)

        command = tool.commands["serve"] = Looking()
        await settled(session, (await followup(session, "work"))["message"])
        assert not session.at_rest
        assert not session.rests
        assert session.state.active
        command.end.set()
        await gone(session)
        types = world.types(session)
        assert types[types.index("job/ended") + 1] == "inbox/spliced"
        assert told(session) == ["Job j1 (serve) has ended: exit 0, 1 s.\nIt printed nothing."]
        assert not session.state.runnable, "nobody is woken"
        check_log(world.events(session))
        check_memory(session, world.events(session))


async def test_what_runs_is_said_to_the_model_while_it_runs() -> None:
    world, tool = world_of(call("bg:serve"), say("runs"), say("more"), say("ended"))
    async with world.run():
        session = await world.session()
        command = await begun(session, tool, "serve")
        assert "running job: j1: serve" in (session.state.snapshot or "")
        command.end.set()
        await gone(session)
        await settled(session, (await followup(session, "and?"))["message"])
        assert "running job" not in (session.state.snapshot or "")


async def test_an_end_wakes_if_the_config_says_so_and_not_for_ever() -> None:
    world, tool = world_of(jobs=Jobs(notify="wake"))
    async with world.run():
        session = await world.session()
        for n in range(21):
            world.script = [call(f"bg:{n}"), say("runs"), say("woken")]
            command = tool.commands[str(n)] = Command()
            command.end.set()
            if n == 0:
                await followup(session, "begin")
            else:
                more = wire.SendParams(queue="next-turn", wake=True, text="more", as_="hook")
                await session.send(more, ME)
            await until(session, lambda: len(of_type(world, session, "job/ended")) == n + 1)  # noqa: B023
            await until(session, lambda: session.quiet)
        woke = [m["wake"] for s in of_type(world, session, "inbox/spliced") for op in s["ops"]
                for m in op["insert"] if m["source"]["kind"] == "job"]  # fmt: skip
        assert woke == [True] * 20 + [False]
        await followup(session, "a person says something")
        await until(session, lambda: session.quiet)
        assert session.state.wakes == 0


async def test_an_abort_ends_what_its_turn_began_and_clear_all() -> None:
    world, tool = world_of(call("bg:old"), say("x"), call("bg:new", "gate:g"), say("y"))
    async with world.run():
        session = await world.session()
        old, new = await begun(session, tool, "old"), Command()
        tool.commands["new"] = new
        await followup(session, "second")
        with trio.fail_after(5):
            await world.gate.began.wait()
        await session.abort(wire.AbortParams(), ME)
        assert new.stopped.is_set()
        assert not old.stopped.is_set()
        assert [(j["id"], j["how"], j["cause"]) for j in of_type(world, session, "job/ended")] == [
            ("j2", "stopped", "abort")
        ]
        await session.abort(wire.AbortParams(disposition="clear"), ME)
        assert old.stopped.is_set()
        assert not session.state.running_jobs
        assert session.state.pending == 0, "what is cleared leaves no notice behind"
        check_log(world.events(session))


async def test_it_keeps_its_session_open_until_somebody_ends_both() -> None:
    world, tool = world_of(call("bg:serve"), say("x"))
    async with world.run():
        session = await world.session()
        command = await begun(session, tool, "serve")
        with pytest.raises(Conflict, match=r"runs 1 job \(j1\)"):
            await session.close(False, ME)
        with pytest.raises(Conflict, match="runs 1 job"):
            await world.registry.delete(session.id, False, ME)
        await session.close(True, ME)
        assert command.stopped.is_set()
        assert session.state.closed
        assert session.state.pending == 0


async def test_a_run_ends_its_jobs_and_is_closed_then() -> None:
    world, tool = world_of(call("bg:serve"), say("x"))
    async with world.run():
        command = tool.commands["serve"] = Command()
        session, receipt = await world.registry.create(
            wire.CreateParams(dir="/", mode="full", run=True, text="work"), ME
        )
        assert receipt is not None
        await until(session, lambda: session.state.closed)
        assert command.stopped.is_set()
        assert of_type(world, session, "job/ended")[0]["cause"] == "run"
        assert session.state.pending == 0


async def test_no_more_than_the_limit_run_at_once() -> None:
    world, tool = world_of(call("bg:a"), call("bg:b"), say("x"), jobs=Jobs(max=1))
    async with world.run():
        session = await world.session()
        with pytest.raises(AssertionError):
            await begun(session, tool, "b")
        refused = of_type(world, session, "tool/result")[1]
        assert refused["error"]["code"] == "FULL"
        assert "1 job runs already" in refused["content"][0]["text"]
        assert len(session.state.running_jobs) == 1


async def test_one_that_a_crash_cut_off_is_told_as_lost_once() -> None:
    world, tool = world_of(call("bg:serve"), say("x"))
    async with world.run():
        session = await world.session()
        await begun(session, tool, "serve")
    again = world.crash()
    async with again.run():
        session = await again.again(session)
        await gone(session)
        assert of_type(again, session, "job/ended") == [{"id": "j1", "how": "lost", "cause": "crash"}]
        assert told(session) == [
            "Job j1 (serve) has ended: the daemon died, and nobody saw how it ended."
        ]
    third = again.crash()
    async with third.run():
        session = await third.again(session)
        assert len(of_type(third, session, "job/ended")) == 1
        check_memory(session, third.events(session))


async def test_a_stop_of_the_daemon_ends_it_on_the_record() -> None:
    world, tool = world_of(call("bg:serve"), say("x"))
    async with world.run():
        session = await world.session()
        command = await begun(session, tool, "serve")
        with trio.fail_after(10):
            await world.registry.drain(1.0)
        assert command.stopped.is_set()
        assert of_type(world, session, "job/ended")[0]["cause"] == "shutdown"


async def test_an_end_that_the_disk_has_no_room_for_is_written_when_there_is() -> None:
    world, tool = world_of(call("bg:serve"), say("x"))
    async with world.run():
        session = await world.session()
        command = await begun(session, tool, "serve")
        world.give_reserve()
        memory(world).limit(free=0)
        command.end.set()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert session.state.running_jobs
        memory(world).limit()
        await gone(session)
        assert len(told(session)) == 1


async def test_a_fork_and_an_import_have_none() -> None:
    world, tool = world_of(call("bg:serve"), say("x"))
    async with world.run():
        session = await world.session()
        await begun(session, tool, "serve")
        made = await world.registry.fork(session, wire.ForkParams(session=session.id), ME)
        forked = await world.registry.get(made["session"])
        assert forked.jobs.rows() == []
        assert session.state.running_jobs


async def test_its_number_is_taken_once_in_the_state_directory() -> None:
    world, tool = world_of(call("bg:a"), say("x"), call("bg:b"), say("y"))
    async with world.run():
        one, two = await world.session(), await world.session()
        await begun(one, tool, "a")
        await begun(two, tool, "b")
        assert [job.id for s in (one, two) for job in s.state.running_jobs] == ["j1", "j2"]
        assert (await world.registry.jobs.session_of("j2")).id == two.id
        rows = await world.registry.jobs.rows(None, False)
        assert [(row["id"], row["session"]) for row in rows] == [("j1", one.id), ("j2", two.id)]
        assert attrs.asdict(one.state.running_jobs[0])["command"] == "a"


async def test_a_notice_says_what_of_the_output_was_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a file that was cut off is not the end of what was printed."""
    world, tool = world_of(call("bg:serve"), say("runs"))
    async with world.run():
        session = await world.session()
        command = await begun(session, tool, "serve")
        monkeypatch.setattr(type(session.jobs), "_spill", tmp_path)
        session.jobs.output("j1").write_bytes(b"first\nsecond\n")
        command.total = 4_000
        command.end.set()
        await gone(session)
        (notice,) = told(session)
        assert "All of it" not in notice
        assert notice.splitlines()[1:] == [
            "[only the first 13 of the 4000 bytes that it printed were kept]",
            "The end of what was kept:", "first", "second",
            f"What was kept: {session.jobs.output('j1')}",
        ]  # fmt: skip
