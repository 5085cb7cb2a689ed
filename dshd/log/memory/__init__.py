"""A disk in memory that fails and loses power when told to: for tests, ours and other people's.

It keeps two states of everything: what programs see (the page cache) and what is *durable*, and
moves the first to the second only where a real disk would have to:

- bytes by ``fdatasync`` or ``fsync`` of their file, names by ``fsync`` of their directory;
- a sync that fails forgets which bytes were dirty, as Linux does: the next one succeeds, and the
  bytes are seen until the power goes, and were never written.

`MemoryDisk.crash` is the power cut: a new disk that holds what was durable, and of the rest what a
`Survivor` lets through, down to zeros in the middle (unsynced 4 KiB blocks that were allocated and
never written) and names that were renamed but not synced. The old disk stays as it is, so one
instant can be crashed in many ways. Without a random survivor all of it is deterministic.

Faults are scripted: `fail` (the nth call of a kind, on some path, with an errno), `short_write`,
`capacity` (bytes; beyond it writes fall short, then fail with ENOSPC) and `max_files` (inodes).
``counts`` counts calls by name, ``struck`` those that were made to fail; ``trace`` lists them if it is
set to a list. ``before`` is called before each call that changes something and may raise, to crash at
that very point.

Single-threaded, and never blocks: `dshd.log.writer.hop` runs its calls in place and awaits `pause`
before, one checkpoint unless a test replaces it (by an event's ``wait``: a disk that stalls).

`disk` is what programs hold, and what faults are set on; below it are `calls` (the system calls, and where
faults strike), `survivors` (what a power cut leaves), `nodes` (files and directories, in their two states).
"""

from __future__ import annotations

from dshd.log.memory.disk import MemoryDisk
from dshd.log.memory.survivors import BLOCK, Everything, Nothing, Prefix, Seeded, Survivor, Unsynced

__all__ = ["BLOCK", "Everything", "MemoryDisk", "Nothing", "Prefix", "Seeded", "Survivor", "Unsynced"]
