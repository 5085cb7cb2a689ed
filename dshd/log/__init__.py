"""The session log: one append-only file per session, and the only truth about it."""
