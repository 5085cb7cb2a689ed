"""Any order of writes, faults, kills, power cuts and reopenings, against a model of two lists."""

from __future__ import annotations

import errno
from random import Random

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dshd.errors import Faulted, NoSpace
from dshd.log.memory import MemoryDisk, Seeded
from dshd.log.recovery import open_log, reopen_copy
from dshd.log.store import Store
from dshd.log.writer import LogWriter
from tests.amount import examples
from tests.log.kit import KNOWN, LOG, SESSION, STATE, header, lines, note


class LogMachine(RuleBasedStateMachine):
    """``durable``: texts that must be there for ever, in order. ``loose``: those that may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        store = Store(self.disk, STATE)
        store.prepare()
        store.create(SESSION, lines(header()))
        self.durable: list[str] = []
        self.loose: list[str] = []
        self.count = 0
        self.open()

    def open(self) -> None:
        """What an opening finds is believed from then on, for it was synced before."""
        file, found = open_log(self.disk, LOG, KNOWN)
        assert file is not None
        assert found.damage is None
        texts = [event.data["text"] for event in found.events[1:]]
        loose = texts[len(self.durable) :]
        assert texts[: len(self.durable)] == self.durable
        assert loose == self.loose[: len(loose)]
        self.durable, self.loose = texts, []
        self.writer = LogWriter(
            file, next_seq=found.next_seq, synced=found.synced, size=found.size, threads=None
        )

    def settled(self) -> None:
        self.durable += self.loose
        self.loose = []

    # -- the owner

    @rule(count=st.integers(1, 4), size=st.sampled_from([1, 50, 3000]), sync=st.booleans())
    def append(self, count: int, size: int, sync: bool) -> None:
        texts = [f"{self.count + n} {'x' * size}" for n in range(count)]
        self.count += count
        first = self.writer.next_seq
        events = [
            note(first + n, text, synced=None if n else self.writer.synced) for n, text in enumerate(texts)
        ]
        try:
            trio.run(lambda: self.writer.append(lines(events), events[-1].seq, sync=sync))
        except NoSpace:  # its texts are in neither list: they must never be seen
            self.settled()
        except Faulted as error:
            self.loose += texts if error.outcome == "unknown" else []
        else:
            self.loose += texts
            if sync:
                self.settled()

    @precondition(lambda self: self.writer.fault is None)
    @rule()
    def sync(self) -> None:
        try:
            trio.run(self.writer.sync)
        except Faulted:
            return
        self.settled()

    # -- the disk

    @rule(call=st.sampled_from(["write", "fdatasync"]), error=st.sampled_from([errno.EIO, errno.ENOSPC]))
    def fail(self, call: str, error: int) -> None:
        self.disk.fail(call, error, path="log.jsonl")

    @rule()
    def fail_the_sync_and_the_cut_after_it(self) -> None:
        self.disk.fail("fdatasync", errno.EIO, path="log.jsonl")
        self.disk.fail("ftruncate", errno.EIO, path="log.jsonl")

    @rule(take=st.integers(1, 200))
    def write_short(self, take: int) -> None:
        self.disk.short_write(take)

    @rule(free=st.one_of(st.none(), st.integers(0, 3000)))
    def fill(self, free: int | None) -> None:
        self.disk.limit(free=free)

    # -- ends and beginnings

    @rule()
    def kill(self) -> None:
        self.disk.heal()
        self.open()

    @rule(random=st.randoms(use_true_random=False))
    def cut_the_power(self, random: Random) -> None:
        self.disk = self.disk.crash(Seeded(random))
        self.open()

    @precondition(lambda self: self.writer.fault is not None)
    @rule()
    def leave_the_fault(self) -> None:
        self.disk.heal()
        reopen_copy(self.disk, LOG, self.writer.synced_size, source=self.writer.file)
        self.writer.close()
        self.loose = []
        self.open()

    @precondition(lambda self: self.writer.fault is not None)
    @rule(random=st.randoms(use_true_random=False), after=st.integers(0, 20))
    def cut_the_power_while_leaving_the_fault(self, random: Random, after: int) -> None:
        self.disk.heal()
        points: list[MemoryDisk] = []
        self.disk.before(lambda _call, _path: points.append(self.disk.crash(Seeded(random))))
        reopen_copy(self.disk, LOG, self.writer.synced_size, source=self.writer.file)
        self.disk = points[min(after, len(points) - 1)]
        self.open()

    @invariant()
    def a_fault_withdraws_to_what_is_synced(self) -> None:
        writer = self.writer
        assert writer.synced < writer.next_seq
        if writer.fault is not None:
            assert (writer.next_seq, writer.size) == (writer.synced + 1, writer.synced_size)
            assert writer.synced == len(self.durable)

    @invariant()
    def what_is_durable_survives_the_worst_power_cut(self) -> None:
        file, found = open_log(self.disk.crash(), LOG, KNOWN)
        assert file is not None
        assert [event.data["text"] for event in found.events[1:]][: len(self.durable)] == self.durable


LogMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30)
TestLogMachine = LogMachine.TestCase
