"""What there is: a pure fold over a log's events. Nothing else changes a session's state, and nothing here
knows a disk, a clock or Trio.

`events` is the vocabulary, `state` what it is folded to; `folding` does it, by the tables in `applied`. The
parts of a state, each with its own rules: `inbox` (queues), `surface` (what the model sees), `compactions`
(what makes that smaller), `receipts` (what becomes of a message), `turns`, `undo` (what can be taken back),
`spending` (what was used, with `counting`, what an event adds to it), `attachments` (long texts),
`schedules`, `jobs`, `subagents`, `approvals`, `who` (sources). `gap` folds what comes after a repair.

What all of it is made of: `layer` (big containers with cheap copies) and `values` (small ones that never
change).
"""
