"""dshctl: the command a person, a cron line or an editor uses to talk to dshd.

In reading order:

- `cli`: argv to a command; `words`: what is typed for something else; `base`: what every command of
  `commands` shares;
- `autostart`, `client`, `unreached`, `connection`: who answers, what is asked of them, why nobody answers,
  and lines on a socket; each imports only those behind it;
- `text`, `keys`: what is said; `occasion`, `zone`: when; `options`: what may be typed with it; `settling`:
  which session is meant, and what is made if there is none;
- `sending`, `spooling`: how it goes out; `follow`: waiting for an end; `approvals`: asking who waits;
- `attaching`: a terminal on a session; `piping`: lines for programs; `acp`: an agent for editors;
- `offline`: views from the files; `pages`: the files that come along; `installing`: put where they are looked
  for; `completing`: what Tab gives;
- `streams`, `output`, `sentences`, `queues`, `fates`, `ends`, `chat`, `excerpts`, `times`: what is shown;
  `broken`: the warning beside it; `exits`: what the shell sees.

Start-up time is part of the product: nothing here imports attrs, httpx, trio or orjson, and a
command's module is imported only when that command is called.
"""
