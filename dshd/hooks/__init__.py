"""The user's own programs, run at fixed points: JSON in, an exit status and perhaps JSON out.

`payload` says what a hook reads, `answers` what its answer means (both sans-IO), `runner` runs one,
`commands` finds those of an event, `gates` lets each stand in a chain like a plugin, `ends` tells those that
hear of a turn's end. `attention` is for what needs a person: one notice for one cause, never waited for;
`causes` finds the causes in a session's events.

`programs` finds those that have none.

The format is that of existing agents' command hooks, and ours besides; dshd-hooks(7) has both. A hook is
taken from the user's config and the system's, never from a directory that somebody works in. It runs outside
the sandbox, in the session's directory, with the session's environment, without keys and without the
session's secrets but those it asks for; below the spawner's supervisor, so that nothing of it outlives it.
What connects from below it is taken for a tool of that session.
"""
