"""What model servers put on the wire, over real HTTP into the real daemon: what its turn becomes of it,
what it runs, and what it sends next."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from tests.e2e.harness import Home
from tests.e2e.model import Model, bash, raw, script
from tests.e2e.rpc import Rpc
from tests.model.server import DONE, data, event, tool_delta

Json = dict[str, Any]

ROUTES = """
[model]
idle_timeout = 2

[routes.mock]
adapter = "openai"
base_url = "{url}"
model = "mock"
max_tokens = 100

[routes.v4]
adapter = "openai"
base_url = "{url}"
model = "deepseek-v4-flash"

[routes.r1]
adapter = "openai"
base_url = "{url}"
model = "deepseek-reasoner"
"""


@attrs.frozen
class Turn:
    """What became of one message. ``requests`` are the conversations that the server was sent for it."""

    result: Json
    log: list[Json]
    requests: list[list[Json]]

    def of_type(self, type: str) -> list[Json]:
        return [event["data"] for event in self.log if event["type"] == type]

    @property
    def ran(self) -> list[str]:
        """What each of the calls gave, in the order of the log; errors by their code."""
        results = self.of_type("tool/result")
        return [
            r["error"]["code"] if r["is_error"] else r["content"][0]["text"].split("\n")[0] for r in results
        ]


@attrs.define
class Daemon:
    home: Home
    model: Model
    rpc: Rpc
    work: int = 0

    def new(self, route: str = "mock", **more: Any) -> str:
        self.work += 1
        shown = self.rpc.call(
            "session.create", dir=str(self.home.work), name=f"n{self.work}", model=route, mode="full", **more
        )
        return str(shown["session"]["id"])

    def send(self, session: str, text: str) -> str:
        receipt = self.rpc.call("session.send", session=session, verb="followup", text=text)
        return str(receipt["message"])

    def ask(self, session: str, text: str) -> Turn:
        first = len(self.model.requests)
        result = self.rpc.result(self.send(session, text))
        requests = [request["messages"] for request in self.model.requests[first:]]
        for messages in requests:
            well_formed(messages)
        return Turn(result, self.home.log(session), requests)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Model() as model, Home(ROUTES.format(url=model.url)) as home:
        home.start()
        with home.rpc() as rpc:
            yield Daemon(home, model, rpc)


def well_formed(messages: list[Json]) -> None:
    """What the strictest server asks of a conversation: nothing empty, half, orphaned or in between."""
    json.dumps(messages, ensure_ascii=False).encode()  # no half surrogate pair
    owed: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == owed.pop(0)
            assert message["content"]
            continue
        assert not owed, "something stands between a call and its result"
        calls = message.get("tool_calls", [])
        assert message["content"] or calls
        owed = [call["id"] for call in calls]
        assert len(set(owed)) == len(owed)
        for call in calls:
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert not owed


HELLO = event({"content": "Hel"}) + event({"content": "lo"})
STOP = event(finish="stop")
USAGE = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
WHOLE = HELLO + STOP + DONE
FINE = script({"text": "fine"})


BEATS: list[bytes | float] = [b":\n\n", 0.7, b": hm\n\n", 0.7] * 2  # longer than the idle timeout


def endings(stream: bytes, end: bytes) -> bytes:
    return stream.replace(b"\n", end)


# Answers that are whole, whatever surrounds them.  {row: pieces of the stream}
GOOD: dict[str, list[bytes | float]] = {
    "usage beside empty choices": [HELLO, STOP, data({"choices": [], "usage": USAGE}), DONE],
    "usage without choices": [HELLO, STOP, data({"id": "x", "usage": USAGE}), DONE],
    "usage in every chunk, growing": [
        event({"content": "Hel"}, usage={"prompt_tokens": 10, "completion_tokens": 13}),
        event({"content": "lo"}, finish="stop", usage=USAGE),
        DONE,
    ],
    "usage null but in the last": [
        event({"content": "Hello"}, usage=None), STOP, data({"usage": USAGE}), DONE
    ],
    "a preamble of a content filter": [
        data({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
        WHOLE,
    ],
    "lines that end in CR LF, cut between the two": [
        piece
        for piece in endings(WHOLE, b"\r\n").replace(b"\r\n", b"\r|\n").split(b"|")
    ],
    "lines that end in CR": [endings(WHOLE, b"\r")],
    "every byte by itself": [bytes([byte]) for byte in WHOLE],
    "comments": [b": OPENROUTER PROCESSING\n\n", HELLO, b": OPENROUTER PROCESSING\n\n", STOP, DONE],
    "bare colons": [b":\n", HELLO, b":\n", STOP, b":\n\n", DONE],
    "a comment as a line of data": [b"data: : OPENROUTER PROCESSING\n\n", WHOLE],
    "a ping of another dialect": [b'event: ping\ndata: {"type":"ping"}\n\n', WHOLE],
    "an end mark without a finish reason": [HELLO, DONE],
    "an end mark after a finish reason that is null": [HELLO, event(finish=None), DONE],
    "an end mark after empty choices": [HELLO, data({"choices": []}), DONE],
    "reasoning beside the first of the answer": [
        event({"reasoning_content": "hm", "content": None}),
        event({"reasoning_content": " end.", "content": "Hel"}),
        event({"content": "lo"}),
        STOP,
        DONE,
    ],
    "reasoning under its other name": [event({"content": None, "reasoning": "hm"}), WHOLE],
    "nothing but comments for longer than the idle timeout": [
        *BEATS, event({"content": "Hel"}), *BEATS, event({"content": "lo"}), STOP, DONE,
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", GOOD)
def test_a_whole_answer_is_taken_whatever_surrounds_it(daemon: Daemon, row: str) -> None:
    turn = daemon.ask(daemon.new(), script(raw(*GOOD[row])))
    assert (turn.result["outcome"], turn.result["text"], len(turn.requests)) == ("completed", "Hello", 1)
    usage = turn.of_type("turn/end")[0]["usage"] or {}
    assert usage.get("output", 0) == (20 if row.startswith("usage") else 0)
    reasoning = [
        b["text"] for b in turn.of_type("assistant/message")[0]["content"] if b["type"] == "reasoning"
    ]
    assert "".join(reasoning) == (
        "hm end." if "beside" in row and "reasoning" in row else "hm" * ("other name" in row)
    )


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085"])
def test_characters_that_some_take_for_line_ends_go_there_and_back(daemon: Daemon, char: str) -> None:
    session = daemon.new()
    piece = 'data: {"choices":[{"delta":{"content":"Hello' + char + 'World"}}]}\n\n'
    assert daemon.ask(session, script(raw(piece.encode(), DONE))).result["text"] == f"Hello{char}World"
    (request,) = daemon.ask(session, f"and{char}back").requests
    assert [m["content"] for m in request if m["role"] == "assistant"] == [f"Hello{char}World"]
    assert request[-1]["content"] == f"and{char}back"


def test_half_an_emoji_of_the_models_does_not_stop_the_conversation(daemon: Daemon) -> None:
    session = daemon.new()
    half = b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
    assert daemon.ask(session, script(raw(half, DONE))).result["text"] == "a\ufffd"
    assert daemon.ask(session, "go on").result["text"] == "echo: go on"


# Answers that broke off, in ways that may pass. {row: (the failure's code, pieces, end of the connection)}
def broken(code: str, *pieces: bytes | float, end: str = "whole") -> tuple[str, Json]:
    return code, raw(*pieces, end=end)


HALF_CALL = event(tool_delta(0, id="c1", name="bash", arguments='{"command":"echo never'))
BROKEN: dict[str, tuple[str, Json]] = {
    "an error beside empty choices": broken(
        "SERVER",
        data({"choices": [], "error": {"code": 502, "message": "Worker local total request limit reached"}}),
        DONE,
    ),
    "an error by name, then the end mark": broken(
        "SERVER", HELLO, data({"error": {"type": "overloaded_error", "message": "Overloaded"}}), DONE
    ),
    "a rate limit in the middle": broken(
        "RATE_LIMIT", HELLO, data({"error": {"type": "rate_limit_error", "message": "slow"}}), STOP, DONE
    ),
    "no end mark": broken("STREAM_CLOSED", HELLO, STOP),
    "no end mark after reasoning": broken("STREAM_CLOSED", event({"reasoning_content": "hm"})),
    "no end mark after half a call": broken("STREAM_CLOSED", HALF_CALL),
    "nothing": broken("EMPTY_RESPONSE"),
    "an end mark after nothing": broken("EMPTY_RESPONSE", DONE),
    "cut for length before a word": broken(
        "EMPTY_RESPONSE", event(finish="length"), data({"usage": {}}), DONE
    ),
    "a connection closed in the middle": broken("STREAM_CLOSED", HELLO, end="cut"),
    "a connection reset in the middle": broken("STREAM_CLOSED", HALF_CALL, end="reset"),
    "silence after reasoning": broken("TIMEOUT", event({"reasoning_content": "hm"}), 4.0, DONE),
}


@pytest.mark.parametrize("row", BROKEN)
def test_an_answer_that_broke_off_is_asked_for_again_and_leaves_nothing(daemon: Daemon, row: str) -> None:
    code, item = BROKEN[row]
    turn = daemon.ask(daemon.new(), script({"attempts": [item, {"text": "again"}]}))
    assert (turn.result["outcome"], turn.result["text"], len(turn.requests)) == ("completed", "again", 2)
    assert turn.requests[0] == turn.requests[1]
    assert [retry["code"] for retry in turn.of_type("llm/retry")] == [code]
    assert len(turn.of_type("assistant/message")) == 1
    assert turn.ran == []


# Refusals that no second request would change. {row: (the failure's code, what the result says, the item)}
FINAL: dict[str, tuple[str, str, Json]] = {
    "a quota, in the middle": (
        "QUOTA",
        "You exceeded your current quota",
        raw(HELLO, data({"error": {"message": "You exceeded your current quota", "type": "x"}})),
    ),
    "a quota, in the middle, then the end mark": (
        "QUOTA",
        "quota exceeded",
        raw(data({"error": {"message": "quota exceeded"}}), DONE),
    ),
    "no money": (
        "QUOTA",
        "Insufficient Balance",
        {"status": 402, "body": {"error": {"message": "Insufficient Balance"}}},
    ),
    "a wrong key": ("AUTH", "made to fail", {"status": 401}),
    "a wrong request": ("INVALID_REQUEST", "made to fail", {"status": 400}),
    "a time beyond patience": (
        "RATE_LIMIT",
        "made to fail",
        {"status": 429, "headers": {"retry-after": "90000"}},
    ),
}


@pytest.mark.parametrize("row", FINAL)
def test_a_refusal_that_stays_ends_the_turn_with_what_the_provider_said_and_keeps_the_queue(
    daemon: Daemon, row: str
) -> None:
    code, said, item = FINAL[row]
    session, gate = daemon.new(), f"final: {row}"
    asked = len(daemon.model.requests)
    sent = [daemon.send(session, text) for text in (script({**item, "gate": gate}), FINE)]
    daemon.model.wait_requests(asked + 1)
    daemon.model.open(gate)
    result = daemon.rpc.result(sent[0])
    assert (result["outcome"], result["error"]["code"]) == ("error", code)
    assert said in result["error"]["message"]
    assert len(daemon.model.requests) == asked + 1
    assert daemon.home.log(session, "llm/retry") == []
    assert daemon.rpc.call("message.show", message=sent[1])["state"] == "pending"
    daemon.rpc.call("session.wake", session=session)
    assert daemon.rpc.result(sent[1])["text"] == "fine"


def test_a_time_that_the_provider_names_is_waited_for(daemon: Daemon) -> None:
    refusal = {"status": 429, "headers": {"retry-after": "2"}}
    began = time.monotonic()
    turn = daemon.ask(daemon.new(), script({"attempts": [refusal, {"text": "again"}]}))
    assert turn.result["text"] == "again"
    assert time.monotonic() - began >= 2


# Calls, however they are cut. {row: (pieces, what they give)}
def delta(*deltas: Json, finish: str | None = "tool_calls") -> list[bytes | float]:
    return [event(*deltas, finish=finish), DONE]


ONE, TWO = '{"command":"echo one"}', '{"command":"echo two"}'


def one(index: int | None = 0, **more: Any) -> Json:
    return tool_delta(index, **{"id": "c1", "name": "bash", "arguments": ONE, **more})


def two(index: int | None = 1, **more: Any) -> Json:
    return tool_delta(index, **{"id": "c2", "name": "bash", "arguments": TWO, **more})


CALLS: dict[str, tuple[list[bytes | float], list[str]]] = {
    "no index": (delta(one(None)), ["one"]),
    "no index, in pieces": (
        delta(one(None, arguments=ONE[:9]), tool_delta(None, arguments=ONE[9:])), ["one"],
    ),
    "all at index 0": (delta(one(), two(0)), ["one", "two"]),
    "all at index 0, in pieces": (
        delta(
            one(arguments=""), tool_delta(0, arguments=ONE),
            two(0, arguments=""), tool_delta(0, arguments=TWO),
        ),
        ["one", "two"],
    ),
    "id and name empty later": (
        delta(one(arguments=ONE[:9]), tool_delta(0, id="", name="", arguments=ONE[9:])), ["one"],
    ),
    "id in the first only": (
        delta(one(arguments=""), tool_delta(0, arguments=ONE[:9]), tool_delta(0, arguments=ONE[9:])), ["one"],
    ),
    "pieces of two in turn": (
        delta(
            one(arguments=ONE[:9]), two(arguments=TWO[:9]), tool_delta(0, arguments=ONE[9:]),
            tool_delta(1, arguments=TWO[9:]),
        ),
        ["one", "two"],
    ),
    "two in one delta": (
        delta({"tool_calls": [*one()["tool_calls"], *two()["tool_calls"]]}), ["one", "two"],
    ),
    "arguments null at first": (delta(one(arguments=None), tool_delta(0, arguments=ONE)), ["one"]),
    "arguments as an object, finished with stop": (
        delta(one(arguments={"command": "echo one"}), finish="stop"), ["one"],
    ),
    "one id for two": (delta(one(), two(id="c1")), ["one", "two"]),
    "arguments cut": (delta(one(arguments=ONE[:-1])), ["INVALID_ARGS"]),
    "arguments never said": (delta(one(arguments=None)), ["INVALID_ARGS"]),
    "a tool that is not there": (delta(one(name="bush"), two()), ["UNKNOWN_TOOL", "two"]),
}  # fmt: skip


@pytest.mark.parametrize("row", CALLS)
def test_calls_are_run_once_each_however_they_were_cut_and_their_results_go_back(
    daemon: Daemon, row: str
) -> None:
    pieces, gives = CALLS[row]
    turn = daemon.ask(daemon.new(), script(raw(*pieces), {"text": "done"}))
    assert turn.ran == gives
    assert (turn.result["outcome"], turn.result["text"], len(turn.requests)) == ("completed", "done", 2)
    assert len([m for m in turn.requests[1] if m["role"] == "tool"]) == len(gives)


def test_an_id_that_the_provider_uses_again_and_again_is_a_new_call_each_time(daemon: Daemon) -> None:
    again = raw(*delta(one(id="dup")))
    turn = daemon.ask(daemon.new(), script(again, again, again, {"text": "done"}))
    assert turn.ran == ["one"] * 3
    assert len({call["call"] for call in turn.of_type("tool/call")}) == 3
    assert [len([m for m in r if m["role"] == "tool"]) for r in turn.requests] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([event(one(), finish="length"), DONE], id="said to be cut, looks complete"),
        pytest.param([event(one(arguments=ONE[:9]), finish="length"), DONE], id="said to be cut"),
        pytest.param(
            [event(one(arguments=ONE[:9]), finish="tool_calls", usage={"completion_tokens": 100}), DONE],
            id="said to be whole, and exactly as long as it may be",
        ),
    ],
)  # fmt: skip
def test_no_call_of_an_answer_cut_for_length_runs_and_the_session_goes_on(
    daemon: Daemon, pieces: list[bytes | float]
) -> None:
    session = daemon.new()
    turn = daemon.ask(session, script(raw(*pieces)))
    assert (turn.result["outcome"], turn.ran, len(turn.requests)) == ("max-tokens", [], 1)
    assert daemon.ask(session, FINE).result["text"] == "fine"


# -- reasoning sent back: by the model's name, at an address that says nothing


def reasoned(*deltas: Json, think: str = "hm") -> Json:
    thought = [event({"reasoning_content": think})] if think else []
    return raw(*thought, *delta(*deltas, finish="tool_calls" if "tool_calls" in deltas[0] else "stop"))


def sent_back(messages: list[Json]) -> list[str | None]:
    """The reasoning on each of the assistant's messages; None where the field is not there."""
    return [m.get("reasoning_content") for m in messages if m["role"] == "assistant"]


def test_a_model_that_wants_all_of_its_reasoning_back_gets_it_on_every_message(daemon: Daemon) -> None:
    session = daemon.new("v4")
    words = {"content": "Hello"}
    turn = daemon.ask(
        session, script(reasoned(one()), reasoned(two(), think=""), reasoned(words, think="so"))
    )
    assert [sent_back(r) for r in turn.requests] == [[], ["hm"], ["hm", ""]]
    for n in range(4):
        turn = daemon.ask(session, script(reasoned(words, think="" if n % 2 else "hm")))
    assert sent_back(turn.requests[0]) == ["hm", "", "so", "hm", "", "hm"]


def test_a_model_that_wants_it_back_within_the_tool_loop_only_gets_it_there(daemon: Daemon) -> None:
    session = daemon.new("r1")
    turn = daemon.ask(session, script(reasoned(one()), reasoned({"content": "Hello"})))
    assert [sent_back(r) for r in turn.requests] == [[], ["hm"]]
    assert sent_back(daemon.ask(session, "and now").requests[0]) == [None, None]


def test_other_models_never_get_it_back(daemon: Daemon) -> None:
    turn = daemon.ask(daemon.new(), script(reasoned(one()), reasoned({"content": "Hello"})))
    assert [sent_back(r) for r in turn.requests] == [[], [None]]


def test_an_answer_of_reasoning_alone_is_not_sent_back_empty(daemon: Daemon) -> None:
    session = daemon.new()
    daemon.ask(session, script(raw(event({"reasoning_content": "hm"}), STOP, DONE)))
    (request,) = daemon.ask(session, "go on").requests
    assert [m for m in request if m["role"] == "assistant"] == []


def test_a_command_that_prints_nothing_has_a_result_that_says_something(daemon: Daemon) -> None:
    turn = daemon.ask(daemon.new(), script(bash("true"), {"text": "done"}))
    assert turn.result["text"] == "done"  # and `well_formed` looked at what was sent


# -- leaving


def test_after_many_aborted_streams_the_next_request_is_answered(daemon: Daemon) -> None:
    session = daemon.new()
    for n in range(15):
        asked = len(daemon.model.requests)
        sent = daemon.send(session, script({"text": "late", "gate": f"leave {n}"}))
        daemon.model.wait_requests(asked + 1)
        daemon.rpc.call("session.abort", session=session)
        assert daemon.rpc.result(sent)["outcome"] == "aborted"
    assert daemon.ask(session, FINE).result["text"] == "fine"
