"""Many clients that send as fast as they are answered, in one process and one thread.

``python -m tests.bench.senders SOCKET CLIENTS SECONDS SESSION...`` prints ``{"sent": N, "seconds": S}``;
client K sends to session K modulo their number. A process of its own, so that the bench's own work does not
count against the daemon.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from typing import Any


def request(id: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n"


def connect(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.sendall(request(0, "daemon.hello", protocol=1, client="bench"))
    while not client.recv(65536).endswith(b"\n"):
        pass
    return client


def send_line(session: str) -> bytes:
    return request(1, "session.send", session=session, verb="followup", no_wake=True, text="x" * 40)


def main(path: str, clients: int, seconds: float, sessions: list[str]) -> dict[str, float]:
    selector = selectors.DefaultSelector()
    lines = {}
    for number in range(clients):
        client = connect(path)
        lines[client] = send_line(sessions[number % len(sessions)])
        selector.register(client, selectors.EVENT_READ)
    for client, line in lines.items():
        client.sendall(line)
    sent = 0
    started = time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        for key, _ in selector.select(1):
            assert isinstance(key.fileobj, socket.socket)
            client = key.fileobj
            answer = client.recv(65536)
            if not answer.endswith(b"\n"):
                continue
            assert b'"error"' not in answer[:200] or b'"result"' in answer[:200], answer
            sent += 1
            client.sendall(lines[client])
    return {"sent": sent, "seconds": passed}


if __name__ == "__main__":
    _, path, clients, seconds, *sessions = sys.argv
    print(json.dumps(main(path, int(clients), float(seconds), sessions)))
