"""On disk: the log, in which decisions become durable, and what can be made again from it.

- The log: `ledger` (batches on disk) with `proposals` (decisions in, callers woken), `opening` (from a file
  to a state), `broken` (why one can't be written).
- Beside it, derived: `checkpoint` (opening reads only what came after), with `archive` (what has ended) and
  `freeze` (a state as JSON).
- Beside it, not derived: `shelf` (attachments).
- For all sessions: `days` (what was spent today); `spent` (what one spent, from its log).

Formats: `dshd.log`.
"""
