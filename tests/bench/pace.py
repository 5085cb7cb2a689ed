"""A model server that streams at a pace: each chunk says when it was sent.

``python -m tests.bench.pace CHUNKS_A_SECOND SECONDS`` prints its port; each answer is such a stream, and what
is late is sent at once. Prints, after each, when the last chunk was sent (monotonic ns).
"""

from __future__ import annotations

import socket
import sys
import threading
import time

from tests.bench.instant import USAGE, chunk

TICK_S = 0.001


def piece(count: int) -> bytes:
    return chunk({"content": f"@{time.monotonic_ns()};"}) * count


def stream(client: socket.socket, rate: float, seconds: float) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    sent, began = 0, time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * rate)
        if due > sent:
            client.sendall(piece(due - sent))
            sent = due
        time.sleep(TICK_S)
    print(time.monotonic_ns(), flush=True)
    client.sendall(chunk({}, "stop") + USAGE)


def read_request(client: socket.socket) -> bool:
    """Whether there was one."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (piece := client.recv(1 << 16)):
            return False
        data += piece
    head, body = data.split(b"\r\n\r\n", 1)
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    left = int(lengths[0].partition(b":")[2]) - len(body)
    while left > 0 and (piece := client.recv(1 << 16)):
        left -= len(piece)
    return True


def serve(client: socket.socket, rate: float, seconds: float) -> None:
    with client:
        if read_request(client):
            stream(client, rate, seconds)


def main(rate: float, seconds: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(client, rate, seconds), daemon=True).start()


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]))
