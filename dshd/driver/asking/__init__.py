"""Asking the model: attempt after attempt, until there is an answer.

`asking` goes from route to route, and waits where none has an answer; `chunks` is what streams, written down;
`overflow` makes the conversation smaller where the model says that it is too large, and asks once more;
`hurry` cuts a step short for a ``steer --now``, with what it had streamed, and `cutting` its tool calls.
"""
