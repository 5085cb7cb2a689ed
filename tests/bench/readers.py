"""Many followers of one session, in one process and one thread.

``python -m tests.bench.readers SOCKET COUNT SESSION [STOPPED]`` prints ``ready`` once all follow, reads until
each has seen a ``turn/end``, and prints ``{"events": N, "in_order": B, "latencies": [s, ...], "ended": ns}``:
how many events the first got, whether each got every one in order, how old chunks were that say when they
were sent (``@<monotonic ns>;``, see `tests.bench.pace`), and when the last follower saw the end. So many
more, ``STOPPED``, follow and read nothing.
"""

from __future__ import annotations

import json
import re
import selectors
import sys
import time
from typing import Any

from tests.bench.senders import connect, request

SENT = re.compile(rb"@(\d+);")
SEQ = re.compile(rb'"seq":(\d+)')


class Follower:
    def __init__(self, path: str, session: str) -> None:
        self.socket = connect(path)
        self.socket.sendall(request(1, "log.follow", session=session, turns=0))
        self.rest = b""
        self.seqs: list[int] = []
        self.latencies: list[float] = []
        self.ended = 0
        while b"\n" not in self.rest:
            self.rest += self.socket.recv(1 << 16)
        answer, self.rest = self.rest.split(b"\n", 1)
        assert b'"result"' in answer, answer

    def read(self, timing: bool) -> None:
        data = self.socket.recv(1 << 18)
        assert data, "the daemon hung up"
        now = time.monotonic_ns()
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.take(line, now, timing)

    def take(self, line: bytes, now: int, timing: bool) -> None:
        seq = SEQ.search(line)
        assert seq, line
        self.seqs.append(int(seq[1]))
        if timing and b'"type":"assistant/chunk"' in line:
            self.latencies += [(now - int(sent)) / 1e9 for sent in SENT.findall(line)]
        if b'"type":"turn/end"' in line:
            self.ended = now


def main(path: str, count: int, session: str, stopped: int) -> dict[str, Any]:
    followers = [Follower(path, session) for _ in range(count)]
    idle = [Follower(path, session) for _ in range(stopped)]
    selector = selectors.DefaultSelector()
    for follower in followers:
        selector.register(follower.socket, selectors.EVENT_READ, follower)
    print("ready", flush=True)
    while any(not follower.ended for follower in followers):
        for key, _ in selector.select():
            key.data.read(timing=key.data is followers[0])
    first = followers[0].seqs
    in_order = all(f.seqs == list(range(first[0], first[-1] + 1)) for f in followers)
    ended = max(follower.ended for follower in followers)
    del idle
    return {
        "events": len(first), "in_order": in_order, "latencies": followers[0].latencies, "ended": ended,
    }  # fmt: skip


if __name__ == "__main__":
    _, path, count, session, *stopped = sys.argv
    print(json.dumps(main(path, int(count), session, int(stopped[0]) if stopped else 0)))
