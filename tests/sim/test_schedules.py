"""Histories of schedules; ``DSHD_LONG=1`` plays many."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import attrs
import pytest

from dshd.session.deciding import firing
from dshd.session.registry.scheduled_runs import Runs
from tests.sim.schedules import play

SOON = 40
SEEDS = 500 if os.environ.get("DSHD_LONG") == "1" else 6


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_instant_sends_at_most_once_and_nothing_acknowledged_is_lost(seed: int) -> None:
    assert play(seed).finds == []


def test_what_is_sent_without_the_key_of_its_instant_would_be_noticed() -> None:
    def keyless(instant: Any) -> Any:
        return attrs.evolve(message(instant), key=None)

    message = firing._message
    with mock.patch.object(firing, "_message", keyless):
        assert any(play(seed).finds for seed in range(SOON))


def test_runs_that_are_made_without_the_key_of_their_instant_would_be_noticed() -> None:
    asked = Runs._asked

    async def keyless(self: Runs, instant: Any) -> Any:
        return (await asked(self, instant)).replace(key=None)

    with mock.patch.object(Runs, "_asked", keyless):
        assert any(play(seed).finds for seed in range(SOON))
