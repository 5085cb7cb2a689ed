"""``python -m dshd.spawn FD``: a spawner that is executed, not forked.

For a daemon whose spawner was killed: forking itself is no longer safe there (threads), and a
parent-death signal would belong to the thread that happened to start us, so the parent is watched.
"""

from __future__ import annotations

import os
import socket
import sys

from dshd.spawn import server


def main() -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    server.run(sock, os.getppid(), signalled=False)


if __name__ == "__main__":
    main()
