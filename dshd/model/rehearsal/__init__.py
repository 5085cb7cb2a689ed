"""The rehearsal model: embedded, no key, no network, no AI. It says so itself.

It is there to see dshd work without a model: it does what the request's lines say, one line a step, with
real tool calls, repeats every steer and inject it was given, and answers *every* text, at least with what
it can do. Everything is derived from the request's messages alone, so the same log always gets the same
answers, and a retry or a restart goes on where the work stood.

How: the history is played from the start. Each message said to the agent puts *items* on a list (a line
of work, or something to repeat back); each earlier assistant message took items off it, exactly as `moves`
takes them now. What is left says what to do next. A message that opens a turn replaces the work that was
left of the turn before, as an abort leaves it.

With ``script = FILE`` it plays a script instead: a JSON list (or one object per line) of answers, number N
for a history with N assistant messages. An answer is ``{"text", "reasoning", "tools": [{"name",
"arguments"}], "wait": s, "error": {"code", "message"}, "finish", "usage"}``, all optional; ``chunks`` cuts
the text into so many pieces.

- `items`: lines to items, and the history played; `moves`: what to do now;
- `script`: the same from a script; `adapter`: either of them as chunks.
"""

from dshd.model.rehearsal.adapter import Rehearsal as Rehearsal
