"""The table of methods, who may call what, and how handlers find their session."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any

import pytest
import trio

from dshd import wire
from dshd.control.methods import METHODS
from dshd.strict import checker
from tests.control.rig import Client, Refused, Server
from tests.session.rig import call, followup, say, settled, until

for family in wire.HOLDS:
    importlib.import_module(f"dshd.wire.{family}")


def all_params(kind: type[wire.Params] = wire.Params) -> set[type[wire.Params]]:
    return {kind} | {found for below in kind.__subclasses__() for found in all_params(below)}


def test_every_method_that_can_be_asked_is_in_the_table_once() -> None:
    named = [kind for kind in all_params() if kind.method and kind.__module__.startswith("dshd.wire.")]
    assert {kind.method for kind in named} == set(METHODS)
    assert len(named) == len(METHODS)
    for name, method in METHODS.items():
        assert method.params.method == name
        checker(method.params)


# What the protocol promises by name; there may be more.
PROMISED = {
    "daemon": "hello status reload stop doctor",
    "session": "create list show set rename close delete fork export import send interrupt abort retry wake "
               "wait compact fsck reopen follow_list",
    "queue": "ls show edit first last promote demote rm clear undo",
    "message": "show why",
    "log": "read follow",
    "answer": "show",
    "approval": "list answer follow",
    "agent": "list stop",
    "job": "list output stop keep",
    "schedule": "add list rm pause resume run log",
    "model": "list",
    "tool": "list",
    "usage": "show",
    "prompt": "show",
    "attachment": "put",
}  # fmt: skip


@pytest.mark.parametrize("family", PROMISED)
def test_every_method_that_the_protocol_promises_can_be_asked(family: str) -> None:
    assert {f"{family}.{name}" for name in PROMISED[family].split()} <= set(METHODS)


READERS = {
    "daemon.hello", "daemon.status", "model.list", "session.list", "session.follow_list", "session.show",
    "session.wait",
    "session.fsck", "queue.ls", "queue.show", "message.show", "message.why", "answer.show",
    "log.read", "log.follow", "log.unfollow", "session.export", "daemon.doctor",
    "schedule.list", "schedule.log", "tool.list", "usage.show",
    "approval.list", "approval.follow", "prompt.show", "job.list", "job.output", "agent.list",
}  # fmt: skip


def test_what_is_not_known_to_be_harmless_counts_as_writing() -> None:
    assert {name for name, method in METHODS.items() if not method.writes} == READERS
    assert {name for name, method in METHODS.items() if method.agent == "yes"} == READERS
    assert {name for name, method in METHODS.items() if method.agent == "own"} == {
        "session.send", "attachment.put",
    }  # fmt: skip


async def denied(client: Client, method: str, **params: Any) -> str:
    with pytest.raises(Refused) as caught:
        await client.call(method, **params)
    assert caught.value.code == "DENIED"
    return str(caught.value)


VALID: dict[str, dict[str, Any]] = {
    "session.create": {"dir": "/"},
    "schedule.add": {"session": "api", "text": "t", "zone": "UTC", "typed": "@daily", "cron": "@daily"},
    **{f"schedule.{op}": {"schedule": "c1"} for op in ("rm", "pause", "resume", "run")},
    "session.set": {"session": "api", "values": {"net": True}},
    "session.rename": {"session": "api", "name": "other"},
    "queue.edit": {"message": "s1234567.1", "text": "x"},
    **{f"queue.{op}": {"messages": ["s1234567.1"]} for op in ("first", "last", "promote", "demote", "rm")},
    "agent.stop": {"agent": "s1234567"},
    **{f"job.{op}": {"job": "j1"} for op in ("stop", "keep")},
    "session.send": {"session": "api", "text": "x"},
    "attachment.put": {"text": "x"},
}


@pytest.mark.parametrize("method", sorted(set(METHODS) - READERS))
async def test_a_reader_can_change_nothing(method: str) -> None:
    async with Server().serving() as server:
        await server.named("api")
        client = await server.client(mode="read")
        await denied(client, method, **VALID.get(method, {}))
        assert (await client.call("session.show", session="api"))["name"] == "api"


@pytest.mark.parametrize("method", sorted(set(METHODS) - READERS - {"session.send", "attachment.put"}))
async def test_a_tool_can_change_nothing(method: str) -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client(kind="agent", session=session.id)
        await denied(client, method, **VALID.get(method, {}))


async def test_a_tool_may_read_and_send_to_its_own_session_only() -> None:
    async with Server().serving() as server:
        own, other = await server.named("own"), await server.named("other")
        client = await server.client(kind="agent", session=own.id)
        receipt = await client.call("session.send", session="own", verb="inject", text="hi")
        assert (await client.call("message.show", message=receipt["message"]))["source"]["kind"] == "agent"
        await denied(client, "session.send", session="other", verb="inject", text="hi")
        await denied(client, "session.send", session="new", text="hi", create={"dir": "/", "name": "new"})
        assert (await client.call("session.show", session="other"))["id"] == other.id


async def test_a_client_may_lower_what_it_is_and_not_raise_it() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        lowered = await client.call("session.send", session="api", verb="inject", text="x", **{"as": "hook"})
        assert session.message(lowered["message"])["source"]["kind"] == "hook"
        tool = await server.client(kind="agent", session=session.id)
        raised = await tool.call("session.send", session="api", verb="inject", text="x", **{"as": "user"})
        assert session.message(raised["message"])["source"]["kind"] == "agent"


# ---------------------------------------------------------------- which session


async def test_a_send_makes_the_session_of_its_directory_once_however_many_ask() -> None:
    async with Server().serving() as server:
        receipts: list[dict[str, Any]] = []

        async def one() -> None:
            client = await server.client()
            create = {"dir": "/tmp", "implicit": True}
            receipts.append(
                await client.call("session.send", cwd="/tmp/x", verb="inject", text="hi", create=create)
            )

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(one)
        assert len({receipt["session"] for receipt in receipts}) == 1
        assert sorted(receipt["created"] for receipt in receipts) == [False] * 9 + [True]
        assert receipts[0]["name"] == "tmp"


async def test_of_sends_with_other_settings_that_would_make_one_session_those_of_one_are_taken() -> None:
    async with Server().serving() as server:
        taken: list[str] = []
        refused: list[str] = []

        async def one(mode: str) -> None:
            client = await server.client()
            create = {"dir": "/tmp", "implicit": True, "mode": mode}
            try:
                await client.call("session.send", cwd="/tmp", verb="inject", text="hi", create=create,
                                  settings={"mode": mode})  # fmt: skip
                taken.append(mode)
            except Refused as error:
                refused.append(error.code)

        async with trio.open_nursery() as nursery:
            for mode in ("read-only", "full") * 5:
                nursery.start_soon(one, mode)
        assert refused == ["CONFLICT"] * 5
        assert taken in (["read-only"] * 5, ["full"] * 5)
        session = await server.registry.get(await server.registry.resolve(None, "/tmp"))
        assert session.state.settings["mode"] == taken[0]
        assert session.state.pending == 5


async def test_an_ambiguous_reference_makes_no_session() -> None:
    async with Server().serving() as server:
        await server.named("api-one")
        await server.named("api-two")
        client = await server.client()
        with pytest.raises(Refused) as caught:
            await client.call("session.send", session="api", text="x", create={"dir": "/", "name": "api"})
        assert caught.value.code == "NOT_FOUND"
        assert caught.value.error["data"]["candidates"] == ["api-one", "api-two"]


async def test_removing_takes_no_prefix_and_no_directory() -> None:
    async with Server().serving() as server:
        session = await server.session(implicit=True)
        await server.named("apidoc")
        client = await server.client()
        for params in {"session": "apid"}, {"cwd": "/"}, {"session": ".", "cwd": "/"}:
            with pytest.raises(Refused) as caught:
                await client.call("session.delete", **params)
            assert caught.value.code in ("NOT_FOUND", "INVALID")
        await client.call("session.delete", session="apidoc")
        assert [one["id"] for one in (await client.call("session.list"))["sessions"]] == [session.id]


async def test_listing_says_which_one_is_of_this_directory() -> None:
    async with Server().serving() as server:
        session = await server.session(implicit=True)
        client = await server.client()
        listed = await client.call("session.list", cwd="/usr/lib")
        assert listed["current"] == session.id
        assert (await client.call("session.list"))["current"] is None


# ---------------------------------------------------------------- the work of handlers


async def test_making_a_session_with_its_first_message_is_one_request() -> None:
    async with Server().serving() as server:
        server.script = [say("done")]
        client = await server.client()
        made = await client.call("session.create", dir="/", run=True, text="go", key="k")
        result = (await client.call("session.wait", messages=[made["receipt"]["message"]]))["results"][0]
        assert result["text"] == "done"
        again = await client.call("session.create", dir="/", run=True, text="go", key="k")
        assert again["session"]["id"] == made["session"]["id"]
        assert again["receipt"]["duplicate"] is True


async def test_waiting_for_several_answers_in_the_order_asked() -> None:
    async with Server().serving() as server:
        server.script = [say("one"), say("two")]
        session = await server.named("api")
        first, second = [(await followup(session, text))["message"] for text in ("a", "b")]
        client = await server.client()
        results = (await client.call("session.wait", messages=[second, first]))["results"]
        assert [result["text"] for result in results] == ["two", "one"]


async def test_waiting_for_one_that_is_not_there_is_an_error_at_once() -> None:
    async with Server().serving() as server:
        server.script = [call("gate")]
        session = await server.named("api")
        sent = await followup(session, "go")
        client = await server.client()
        with pytest.raises(Refused) as caught:
            await client.call("session.wait", messages=[sent["message"], f"{session.id}.99"])
        assert caught.value.code == "NOT_FOUND"
        with pytest.raises(Refused, match="not the id of a message"):
            await client.call("session.wait", messages=["nonsense"])


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "nothing to set"),
        ({"net": "on"}, "$.values.net"),
        ({"mode": "everything"}, "$.values.mode"),
        ({"patience": -1}, "$.values.patience"),
        ({"dir": "relative"}, "$.values.dir"),
        ({"mode": None}, "mode can't be empty: read-only, workspace, full"),
        ({"ask": None}, "wait, deny"),
        ({"dir": None}, "a directory"),
        ({"model": ""}, "$.values.model"),
        ({"modle": None}, "did you mean"),
        ({"modle": "x"}, "did you mean model?"),
        ({"env.": "x"}, "no setting"),
    ],
)
async def test_a_setting_is_checked_before_it_is_taken(values: dict[str, Any], says: str) -> None:
    async with Server().serving() as server:
        await server.named("api")
        client = await server.client()
        with pytest.raises(Refused) as caught:
            await client.call("session.set", session="api", values=values)
        assert caught.value.code == "INVALID"
        assert says in str(caught.value)


async def test_a_directory_that_is_set_is_there(tmp_path: Path) -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        with pytest.raises(Refused) as caught:
            await client.call("session.set", session="api", values={"dir": f"{tmp_path}/nothing"})
        assert caught.value.code == "NOT_FOUND"
        await client.call("session.set", session="api", values={"dir": str(tmp_path), "patience": None})
        assert session.state.settings["dir"] == str(tmp_path)


async def test_settings_are_taken_together() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        client = await server.client()
        await client.call("session.set", session="api", values={"net": True, "env.A": "1", "patience": 0})
        assert session.state.settings["net"] is True
        assert session.state.settings["env.A"] == "1"


async def test_queues_are_shown_and_changed() -> None:
    async with Server().serving() as server:
        server.script = [call("gate")]
        session = await server.named("api")
        await followup(session, "running")
        await server.gate.began.wait()
        a, b = [(await followup(session, text))["message"] for text in ("a", "b")]
        client = await server.client()

        async def texts() -> list[str]:
            return [m["text"] for m in (await client.call("queue.ls", session="api"))["messages"]]

        assert await texts() == ["a", "b"]
        await client.call("queue.first", messages=[b])
        assert await texts() == ["b", "a"]
        await client.call("queue.edit", message=a, text="edited")
        assert (await client.call("queue.show", message=a))["text"] == "edited"
        assert (await client.call("message.why", message=a))["type"] == "why"
        await client.call("queue.rm", messages=[b])
        await client.call("queue.clear", session="api")
        assert await texts() == []


async def test_a_session_lives_through_everything_that_is_done_to_it_as_a_thing() -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        await settled(session, (await followup(session, "go"))["message"])
        client = await server.client()
        assert (await client.call("answer.show", session="api"))["text"] == "done"
        await client.call("session.rename", session="api", name="web")
        await client.call("session.close", session="web")
        assert (await client.call("session.show", session="web"))["state"] == "closed"
        assert (await client.call("session.list"))["sessions"] == []
        assert (await client.call("session.list", all=True))["closed"] == 1
        await client.call("session.reopen", session="web")
        report = await client.call("session.fsck", all=True)
        assert (report["exit"], len(report["sessions"])) == (0, 1)
        await client.call("session.delete", session="web")
        with pytest.raises(Refused):
            await client.call("session.show", session="web")


async def test_abort_parks_wake_goes_on_and_interrupt_comes_first() -> None:
    async with Server().serving() as server:
        server.script = [call("gate"), say("b done"), call("gate"), say("c done")]
        session = await server.named("api")
        await followup(session, "a")
        await server.gate.began.wait()
        client = await server.client()
        waiting = await client.call("session.send", session="api", verb="followup", text="b")
        aborted = await client.call("session.abort", session="api")
        assert (aborted["turn"], aborted["outcome"]) == (1, "aborted")
        assert (await client.call("session.show", session="api"))["state"] == "parked"
        woken = await client.call("session.wake", all=True)
        assert len(woken["sessions"]) == 1
        assert (await settled(session, waiting["message"]))["text"] == "b done"
        sent = await client.call("session.interrupt", session="api", text="c")
        await until(session, lambda: session.state.turn is not None)
        server.gate.opened.set()
        assert (await settled(session, sent["message"]))["text"] == "c done"


async def test_status_lists_what_is_open_and_counts_what_is_closed() -> None:
    async with Server().serving() as server:
        await server.named("open")
        closed = await server.named("closed")
        client = await server.client()
        await client.call("session.close", session=closed.id)
        status = await client.call("daemon.status")
        assert [one["name"] for one in status["sessions"]] == ["open"]
        assert status["closed"] == 1
        await client.call("daemon.reload")
        assert server.process.reloads == 1


async def test_a_deleted_session_ends_whoever_follows_it() -> None:
    async with Server().serving() as server:
        await server.named("api")
        client = await server.client()
        await client.call("log.follow", session="api", turns=0)
        await client.call("session.delete", session="api")
        while (event := await client.event())["method"] != "log.end":
            pass
        assert event["params"]["reason"] == "deleted"
        with contextlib.suppress(EOFError):
            assert (await client.call("session.list"))["sessions"] == []


@pytest.mark.parametrize("label", ["", "x" * 257])
@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("session.send", "key"), ("session.send", "tag"), ("session.interrupt", "key"),
        ("session.interrupt", "tag"), ("session.create", "key"),
    ],
)  # fmt: skip
async def test_a_label_that_is_empty_or_would_swell_every_line_about_it_is_refused(
    method: str, name: str, label: str
) -> None:
    async with Server().serving() as server:
        client = await server.client()
        await server.named("api")
        where = {"dir": "/"} if method == "session.create" else {"session": "api"}
        with pytest.raises(Refused, match=f"a {name} has 1 to 256 characters, not {len(label)} @") as caught:
            await client.call(method, **where, text="x", **{name: label})
        assert caught.value.error["data"]["code"] == "INVALID"
        assert await client.call(method, **where, text="x", **{name: "x" * 256})


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("session.abort", {"session": "api"}), ("session.interrupt", {"session": "api", "text": "x"}),
        ("approval.answer", {"id": "a1", "answer": "deny"}),
    ],
)  # fmt: skip
async def test_a_reason_that_would_swell_the_log_is_refused_and_nothing_is_done(
    method: str, more: dict[str, Any]
) -> None:
    async with Server().serving() as server:
        client = await server.client()
        session = await server.named("api")
        before = session.state.seq
        with pytest.raises(Refused, match="a reason has at most 4096 characters, not 4097 @") as caught:
            await client.call(method, **more, reason="x" * 4097)
        assert caught.value.error["data"]["code"] == "INVALID"
        assert session.state.seq == before


async def test_who_says_hello_has_a_name_of_bounded_length() -> None:
    async with Server().serving() as server:
        client = server.connect()
        with pytest.raises(Refused, match="a client has 1 to 256 characters"):
            await client.call("daemon.hello", protocol=1, client="x" * 257)


@pytest.mark.parametrize(("name", "value"), [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0")])
async def test_what_no_process_can_have_is_no_variable_of_a_session(name: str, value: str) -> None:
    async with Server().serving() as server:
        client = await server.client()
        env = {name: value}
        for method, params in (
            ("session.create", {"dir": "/", "env": env}),
            ("session.send", {"session": "/", "text": "x", "create": {"dir": "/", "env": env}}),
            ("session.import", {"upload": "u", "env": env}),
        ):
            with pytest.raises(Refused, match="can't be a variable") as caught:
                await client.call(method, **params)
            assert caught.value.error["data"]["code"] == "INVALID"
        assert (await client.call("session.list", all=True))["sessions"] == []
        await server.named("api")
        with pytest.raises(Refused, match=r"can't be a variable|no setting"):
            await client.call("session.set", session="api", values={f"env.{name}": value})
