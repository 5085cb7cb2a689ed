"""dshd: a workstation daemon that runs LLM agent sessions in the background.

The rooms, in the order in which a message meets them:

- `daemon`: the life of the process (`__main__` before it; `settings`, `vet`: the config as it holds now, and
  as a start would take it; `doctor`: is all well; `logs`, `systemd`: what the process says, and to whom);
- `control`: from a socket to a request, and back to whoever follows; `spool`: what was said to none;
- `session`: the log folded to a state, decisions in batches, receipts;
- `driver`: turns and steps: phases, gates, ends;
- `prompt`, `model`, `tools`: what a step is made of; `plugins`, `hooks`: who has a word in it;
- `spawn`: process trees that end when told to;
- `log`: lines, and when they are on the disk.

Below all of them, and light, for dshctl imports some: `wire` (what the two programs say to each other),
`errors`, `paths`, `config`, `memory` (what a person wants remembered), `budgets` (the table of limits),
`reasons` (why a message waits, in words), `plural`, `strict` (foreign data, strictly),
`nesting` (and how deep it may be), `small` (files that
may be anything, in bounds), `order` (one after the other), `kept` (JSON in memory).

What holds everywhere: decide, write, sync, fold, and only then tell or act. import-linter keeps the layers.
"""

__version__ = "0.1.0"
