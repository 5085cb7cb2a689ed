"""What a client that never reads costs: the bytes that are held for it, not those that it was promised."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import trio.testing

from dshd import wire
from dshd.control import encoding, feed, outbox
from dshd.control.connection import Connection
from dshd.control.encoding import Encoder, Shared, own, pieces
from dshd.session.owner.session import Session
from tests.control.rig import Server
from tests.session.rig import ME

COST = 512  # bytes of an entry in the queue, and of its view


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
    made: list[Connection] = []

    class Noted(Connection):
        def __init__(self, *args: object, **more: object) -> None:
            super().__init__(*args, **more)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr("tests.control.rig.Connection", Noted)
    yield made
    made.clear()


def held(one: Connection) -> tuple[int, set[int]]:
    """Bytes of its own, and the long lines that others hold with it."""
    whole: dict[int, Any] = {id(view.obj): view.obj for view in one.out.unsent}
    ours = sum(len(data) for data in whole.values() if not isinstance(data, Shared))
    return ours + COST * len(one.out.unsent), {n for n, data in whole.items() if isinstance(data, Shared)}


async def fill(session: Session, *sizes: int) -> None:
    for size in sizes:
        params = wire.SendParams(verb="followup", no_wake=True, text="x" * size)
        await session.send(params, ME)


@pytest.mark.parametrize("sizes", [
    [10] * 400, [3000] * 700, [10] * 50 + [60_000] * 30 + [10] * 50,
    [700_000] * 3 + [10] * 50, [10, 700_000] * 4,
], ids=["small", "middling", "larger", "long", "mixed"])  # fmt: skip
@pytest.mark.parametrize("when", ["before", "after"])
async def test_who_never_reads_holds_far_less_than_a_mebibyte(
    connections: list[Connection], sizes: list[int], when: str
) -> None:
    async with Server().serving() as server:
        session = await server.named("api")
        if when == "before":
            await fill(session, *sizes)
        for _ in range(8):
            client = await server.client()
            await client.post("log.follow", session="api")
        await trio.testing.wait_all_tasks_blocked(0.02)
        if when == "after":
            await fill(session, *sizes)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert len(connections) == 8
        found = [held(one) for one in connections]
        assert max(ours for ours, _ in found) < feed.KEPT * 5 // 8
        assert len({line for _, lines in found for line in lines}) <= 2


def test_what_is_put_together_is_what_came_in_its_order() -> None:
    dice = random.Random(1)
    encoder = Encoder()
    for _ in range(50):
        sizes = [dice.choice((10, 100, encoding.LONG, 10)) for _ in range(dice.randrange(30))]
        raw = [b"%d" % n * size + b"\n" for n, size in enumerate(sizes)]
        lines = [encoder.line("s", seq, one) for seq, one in enumerate(raw)]
        made = pieces(lines)
        assert b"".join(made) == b"".join(lines)
        assert all(isinstance(one, Shared) or len(one) <= encoding.LONG + 200 for one in made)
        assert own(made) == sum(len(one) for one in lines if not isinstance(one, Shared))


def test_a_line_written_anew_under_its_seq_is_another_line() -> None:
    encoder = Encoder()
    old, new = (b"x" * encoding.LONG + b',"crc":"%08x"}\n' % n for n in (1, 2))
    first, second = encoder.line("s", 1, old), encoder.line("s", 1, new)
    assert first != second
    assert encoder.line("s", 1, old) is first
    assert encoder.line("t", 1, old) is not first
    del first, second
    assert len(encoder) == 0


def test_small_pieces_that_wait_become_larger_ones() -> None:
    assert outbox.TOGETHER > 20 * COST
