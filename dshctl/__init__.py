"""dshctl: the command a person, a cron line or an editor uses to talk to dshd.

Reading order: `cli` (argv to a command; `words`: what is typed for something else), `base` (what every
command of `commands` shares), `autostart`, `client` and `connection` (who answers, what is asked of them,
and lines on a socket; each imports only those behind it), `text` and `keys` (what is said), `occasion` and
`zone` (when), `sending` and `spooling` (how it goes out), `follow` (waiting for an end), `approvals`
(asking who waits), `attaching` (a terminal on a session), `piping` (lines for programs), `offline` (views
from the files), `pages` (the files that come along; `installing`: put where they are looked for),
`completing` (what Tab gives), `output`, `sentences`, `fates`, `ends`, `chat` and `times` (what is shown),
`exits` (what the shell sees).

Start-up time is part of the product: nothing here imports attrs, httpx, trio or orjson, and a
command's module is imported only when that command is called.
"""
