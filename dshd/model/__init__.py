"""The model room: one call of a language model, from a neutral request to the blocks of its answer.

In reading order:

- `request` and `chunks`: what goes in and what comes out, in dshd's own words;
- `grown`: what is longer with each step;
- `errors`: the failure codes, all that policy looks at; `failures`: how a provider's refusal becomes one;
- `checker`: makes any history one that providers take;
- `blocks`: chunks into the blocks of a message, as two tables; `believed`: what of its usage can be;
- `adapter`: what an adapter is, and what one call is pinned to;
- `openai_request`, `openai`: the chat-completions dialect, out and in;
- `anthropic_request`, `anthropic`: the messages dialect, likewise;
- `answers`, `receiver`, `pieces`, `sse`, `http`: what both stand on;
- `transport`: requests, responses, failures; `exchange`: one of each, by httpx;
- `rehearsal`: the embedded model that is no AI;
- `profiles`: quirks, by the model's name; `routes`, `discovery`: which model; `credentials`: keys;
- `retry`: when to try again;
- `models`: the room's front.

Only `exchange` (httpx), `credentials` and `rehearsal` (waiting) do IO; everything else is sans-IO.
"""
