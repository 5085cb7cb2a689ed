"""All sessions of a state directory. `registry` is what others hold; each verb is in a module of its own.

- Which there are: `listing`, with `index` (views of those that aren't loaded), `unloaded` (how one is
  made) and `last_known` (where its log tells nothing); `naming` (who is called what).
- In memory: `loader`; `environment` (what their tools run with).
- Coming: `creating` (a new one, or what the same key stands for), with `making`; `porter` (forks, imports,
  exports).
- Going: `removing`, with `run_keys` (what a run's key stands for after it).
- By the clock: `scheduler`, with `scheduled_runs` (a new session each time).
- Subagents: `kin`.
- Who asks, and what answers allow everywhere: `approvals`.
- The process they live in: `host`; its start: `starting` (each session), `reserve` (of disk space).
- In the background: `jobs`, with `kept_jobs` (those that outlive the daemon).
- Between: `mending` (checked, repaired, reopened after a fault), with `requests` (each that was sent, made
  again from the log).

`desk` is one for all: `numbers` (ids that count up), `always` (what answers have allowed everywhere).
`bell` is rung for each session whose row in a list may be another. `hops` is where blocking work is done.
"""
