"""Process trees that end when told to.

Three kinds of process, each watching the one above it::

    dshd ──socket──▶ spawner ──forks──▶ supervisor (one a call) ──starts──▶ the command and its tree

- `client` (Trio, in the daemon) is the room's front: `Spawner.run`. It takes a waiting supervisor from
  the `pool` and talks to it over a socket of their own (`call`).
- `server` (the spawner) forks supervisors when asked to.
- `supervisor` has the command started (`command`), collects its output (`output`), and ends the tree by
  the table in `lifecycle`. When nothing is left below, it can take the next call.
- `passage` is a command's way out of the call that began it: to go on as a job, or to be `kept` when all of
  the above end.
- `protocol` is what they say, `kernel` what Linux offers, `tree` the processes as /proc shows them,
  `landlock` and `seccomp` the sandbox that needs no helper.

What holds, whoever is killed: the daemon dies, and everybody sees a socket close (the spawner has a
parent-death signal besides); the spawner dies, and the supervisors get their parent-death signal and end
their trees; a supervisor dies, and what it ran arrives at the spawner, its subreaper, and is ended there;
both die, and it arrives at the daemon, a subreaper too, which sees that nobody reported and ends it (`pool`).
Who is only stopped gets SIGCONT, and is killed if that doesn't help. Only if daemon, spawner and supervisor
are killed in one instant can something be left that is not in a sandbox; `orphans` finds that at the next
start by marks that it carries, unless it took pains to get rid of both.

This module is imported before Trio, by the process that forks: keep it and what it imports small.
"""

from __future__ import annotations

import dataclasses
import os
import socket


@dataclasses.dataclass(slots=True)
class SpawnerHandle:
    """A running spawner, a child of ours: its pid, and our end of its socket."""

    pid: int
    sock: socket.socket


def start() -> SpawnerHandle:
    """Fork the spawner. To be called once, from the main thread, before any thread, descriptor or event
    loop exists, and as early as can be: the smaller the process, the faster every fork of it. From then on
    this process is a subreaper, so `Spawner.reap` must be called on SIGCHLD."""
    from dshd.spawn import kernel, server

    kernel.become_subreaper()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        server.run(theirs, parent, signalled=True)
    theirs.close()
    return SpawnerHandle(pid, ours)
