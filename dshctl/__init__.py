"""dshctl: the command a person, a cron line or an editor uses to talk to dshd.

Reading order: `cli` (argv to a command), `base` (what every command shares), `client` and
`autostart` (the socket and who answers on it), `text` (what is said), `follow` (waiting for an
end), `output`, `sentences` and `chat` (what is shown), `exits` (what the shell sees).

Start-up time is part of the product: nothing here imports attrs, httpx, trio or orjson, and a
command's module is imported only when that command is called.
"""
