"""dshctl: the command a person, a cron line or an editor uses to talk to dshd.

Reading order: `cli` (argv to a command), `base` (what every command shares), `autostart`, `client`
and `connection` (who answers, what is asked of them, and lines on a socket; each imports only those
behind it), `text` (what is said), `follow` (waiting for an end), `output`, `sentences`, `fates`,
`ends` and `chat` (what is shown), `exits` (what the shell sees).

Start-up time is part of the product: nothing here imports attrs, httpx, trio or orjson, and a
command's module is imported only when that command is called.
"""
