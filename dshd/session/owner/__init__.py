"""One session, kept going while it is in memory: its ledger, its driver, and whoever asks something of it.

`session` is what others hold, a door to what is behind it: `saying` (messages), `stopping` (abort, wake,
retry), `waiting`, `maintaining` (compact), `prompting` (what the model is told),
`queue_commands`.

Below them is `live`: the ledger and the driver, started and stopped; with `clock` (what comes due), `keeping`
(checkpoints, and what leaves memory), `loading` (who holds it, and how long it stays), `surroundings` (what
it needs of the daemon), `board` (when the next schedule is due, of all sessions), `jobs` (what
goes on in the background), `agents` (sessions that work for it).
"""
