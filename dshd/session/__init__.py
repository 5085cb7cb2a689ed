"""A session: a log that is folded to a state, decisions that add to it, and a life around both.

From the bottom:

- What there is: `events` (the vocabulary), `state` (the fold) with its parts `inbox`, `surface`,
  `receipts`, `turns`, `undo`, `spending` with `counting`, `attachments`, `who`; `layer` and `values`
  (what it is made of); `gap` (a fold over a repaired log).
- What may happen, decided on a `scratch`, without IO: `sending` with `agreeing` (the settings it asks
  for), `queueing`, `undoing`, `retrying`, `raising` (budgets), `closing` (of turns), `lifecycle` (of
  sessions), `copying` (under another id).
- What is shown: `views`, `why`, `parking` (does it wait for a person?).
- On disk: `ledger` (decisions in, batches on disk), `opening`, `checkpoint`, `freeze`, `archive`,
  `keeping`, `shelf` (attachments), `requests` (sent ones, made again), `sealed` (small files that can be
  made again).
- One session: `live` (its ledger and driver, kept going; `clock`, `broken`, `surroundings`), above it
  `saying`, `stopping`, `waiting`, `queue_commands`, and `session`, which is what others hold.
- All of them: `listing` (`index`), `loader` (`loading`), `naming`, `creating` (`making`, `run_keys`),
  `mending`, `removing`, `days` (what all spent today), `environment`, `hops`, and `registry`, which is
  what others hold.
- From elsewhere and to it: `porting` (fork, import, export), on disk `transfer`, as one file `packing`
  and `tar`.
"""
