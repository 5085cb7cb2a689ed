"""What every adapter keeps to, whatever it speaks. The same tests run against each of them."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from dshd.model.adapter import PreparedCall
from dshd.model.blocks import Assembler, Stream
from dshd.model.chunks import Chunk, Finish, Usage, chunk_from_json, chunk_to_json
from dshd.model.errors import CODES, ModelError
from dshd.model.models import Models
from dshd.model.request import ModelRequest, ToolSpec, text_of
from tests.model import test_anthropic_reader as messages
from tests.model.server import DONE, HEAD, Connection, Server, data, event, streamed, tool_delta


@attrs.frozen
class Subject:
    """An adapter to test. ``says``, ``calls``, ``hangs`` and ``fails`` make the next answer that."""

    models: Models
    ref: str
    says: Callable[[], ModelRequest]
    calls: Callable[[], ModelRequest]
    hangs: Callable[[], ModelRequest]
    fails: Callable[[], ModelRequest]

    def call(self) -> PreparedCall:
        return self.models.prepare_call(self.ref)


def request(text: str) -> ModelRequest:
    message = {"role": "user", "content": [{"type": "text", "text": text}], "verb": "followup"}
    return ModelRequest("system", (message,), (ToolSpec("bash", "runs", {"type": "object"}),))


async def run(subject: Subject, asked: ModelRequest) -> list[Chunk]:
    got: list[Chunk] = []
    call = subject.call()

    async def emit(chunk: Chunk) -> None:
        await trio.lowlevel.checkpoint()
        got.append(chunk)

    with trio.fail_after(5):
        await call.adapter.stream(call, call.adapter.encode(call, asked), emit)
    return got


class AdapterContract:
    @pytest.fixture
    async def subject(self) -> Subject:
        raise AssertionError("each adapter brings its own")

    async def test_an_answer_ends_with_one_finish_and_usage_before_it(self, subject: Subject) -> None:
        got = await run(subject, subject.says())
        assert [type(chunk) for chunk in got[-2:]] == [Usage, Finish]
        assert [type(chunk) for chunk in got].count(Finish) == 1
        assert got[-1] == Finish("stop")

    async def test_the_assembler_takes_every_chunk_and_there_is_text(self, subject: Subject) -> None:
        assembler = Assembler()
        for chunk in await run(subject, subject.says()):
            assembler.feed(chunk)
        assert assembler.stream is Stream.FINISHED
        assert text_of(assembler.result().content)
        assert not assembler.result().problems

    async def test_a_call_has_a_name_an_id_and_arguments_and_finishes_as_calls(
        self, subject: Subject
    ) -> None:
        assembler = Assembler()
        for chunk in await run(subject, subject.calls()):
            assembler.feed(chunk)
        got = assembler.result()
        block = next(block for block in got.content if block["type"] == "tool-call")
        assert (block["name"], block["arguments"]) == ("bash", '{"command":"ls"}')
        assert block["id"]
        assert got.finish == "tool-calls"

    async def test_chunks_go_into_the_log_and_come_back(self, subject: Subject) -> None:
        got = await run(subject, subject.calls())
        assert [chunk_from_json(chunk_to_json(chunk)) for chunk in got] == got

    async def test_usage_is_counted_in_four_kinds(self, subject: Subject) -> None:
        usage = next(chunk for chunk in await run(subject, subject.says()) if isinstance(chunk, Usage))
        assert set(usage.usage) == {"input", "cached", "output", "reasoning"}
        assert all(isinstance(count, int) and count >= 0 for count in usage.usage.values())

    async def test_the_same_request_gives_the_same_bytes(self, subject: Subject) -> None:
        call, asked = subject.call(), request("hi \ud83d")
        encoded = call.adapter.encode(call, asked)
        assert encoded == call.adapter.encode(subject.call(), asked)
        assert subject.models.rebuild(call.context(), call.adapter.encoder, asked) == encoded

    async def test_an_empty_history_is_refused_before_anything_is_sent(self, subject: Subject) -> None:
        call = subject.call()
        with pytest.raises(ModelError) as caught:
            call.adapter.encode(call, ModelRequest("", ()))
        assert caught.value.code == "INVALID_REQUEST"

    async def test_a_failure_is_a_model_error_with_a_known_code(self, subject: Subject) -> None:
        with pytest.raises(ModelError) as caught:
            await run(subject, subject.fails())
        assert caught.value.code in CODES

    async def test_it_can_be_cancelled_while_it_waits(self, subject: Subject) -> None:
        with trio.fail_after(5), trio.move_on_after(0.05) as scope:
            await run(subject, subject.hangs())
        assert scope.cancelled_caught

    async def test_it_can_be_cancelled_at_every_chunk(self, subject: Subject) -> None:
        whole = await run(subject, subject.calls())
        for stop_at in range(len(whole)):
            got = await cancelled_at(subject, stop_at)
            assert got == whole[:stop_at]
        gc.collect()

    async def test_what_the_consumer_raises_comes_out(self, subject: Subject) -> None:
        call = subject.call()

        async def emit(chunk: Chunk) -> None:
            raise LookupError

        with pytest.raises(LookupError):
            await call.adapter.stream(call, call.adapter.encode(call, subject.says()), emit)
        gc.collect()


async def cancelled_at(subject: Subject, stop_at: int) -> list[Chunk]:
    """What arrives until the consumer's scope is cancelled, before it takes chunk ``stop_at``."""
    got: list[Chunk] = []
    call = subject.call()
    with trio.CancelScope() as scope:

        async def emit(chunk: Chunk) -> None:
            if len(got) == stop_at:
                scope.cancel()
            await trio.lowlevel.checkpoint()
            got.append(chunk)

        await call.adapter.stream(call, call.adapter.encode(call, subject.calls()), emit)
    assert scope.cancelled_caught
    return got


USAGE = data({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})


class TestOpenAI(AdapterContract):
    @pytest.fixture
    async def subject(self, server: Server) -> Any:
        async def hang(connection: Connection) -> None:
            await connection.send(HEAD)
            await connection.until_gone()

        call = tool_delta(0, id="c1", name="bash", arguments='{"command":"ls"}')

        def playing(play: Callable[[Connection], Awaitable[None]]) -> Callable[[], ModelRequest]:
            def prepare() -> ModelRequest:
                server.plays.append(play)
                return request("hi")

            return prepare

        models = server.models()
        yield Subject(
            models,
            "mock",
            says=playing(streamed(event({"content": "Hel"}, {"content": "lo"}, finish="stop"), USAGE, DONE)),
            calls=playing(streamed(event(call, finish="tool_calls"), USAGE, DONE)),
            hangs=playing(hang),
            fails=playing(streamed(data({"error": "no"}))),
        )
        await models.aclose()


class TestAnthropic(AdapterContract):
    @pytest.fixture
    async def subject(self, server: Server) -> Any:
        async def hang(connection: Connection) -> None:
            await connection.send(HEAD)
            await connection.until_gone()

        def playing(play: Callable[[Connection], Awaitable[None]]) -> Callable[[], ModelRequest]:
            def prepare() -> ModelRequest:
                server.plays.append(play)
                return request("hi")

            return prepare

        overloaded = messages.ev("error", error={"type": "overloaded_error", "message": "no"})
        models = server.models(adapter="anthropic")
        yield Subject(
            models,
            "mock",
            says=playing(streamed(messages.BEGIN, messages.HELLO, messages.ends())),
            calls=playing(
                streamed(messages.BEGIN, messages.tool(0, '{"command":"ls"}'), messages.ends("tool_use"))
            ),
            hangs=playing(hang),
            fails=playing(streamed(overloaded)),
        )
        await models.aclose()


class TestRehearsal(AdapterContract):
    @pytest.fixture
    async def subject(self) -> Any:
        models = Models()
        yield Subject(
            models,
            "rehearsal",
            says=lambda: request("hello"),
            calls=lambda: request("run: ls"),
            hangs=lambda: request("wait 1h"),
            fails=lambda: request("fail"),
        )
        await models.aclose()
