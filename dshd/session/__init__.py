"""A session: a log that is folded to a state, decisions that add to it, and a life around both.

From the bottom:

- What there is: `events` (the vocabulary), `state` (the fold) with its parts `inbox`, `surface`,
  `receipts`, `turns`, `undo`, `attachments`, `who`; `layer` and `values` (what it is made of); `gap` (a fold
  over a repaired log).
- What may happen, decided on a `scratch`, without IO: `sending`, `queueing`, `undoing`, `retrying`,
  `closing` (of turns), `lifecycle` (of sessions).
- What is shown: `views`, `why`.
- On disk: `ledger` (decisions in, batches on disk), `opening`, `checkpoint`, `freeze`, `archive`, `keeping`,
  `shelf` (attachments), `requests` (sent ones, made again).
- One session: `live` (its ledger and driver, kept going; `clock`, `broken`, `surroundings`), above it
  `saying`, `stopping`, `waiting`, `queue_commands`, and `session`, which is what others hold.
- All of them: `listing` (`index`), `loader` (`loading`), `naming`, `making`, `mending`, `environment`,
  `hops`, and `registry`, which is what others hold.
"""
