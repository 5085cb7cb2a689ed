"""What comes over the socket, and what goes back.

`address` is the socket's name, and looks after it. `listener` takes connections (`access`: who may do what),
`connection` runs one: `life` is the table of its states, `stream` its socket, `answering` leads from a line
(`framing`, `jsonrpc`) to its answer (`admission`: whether it may be begun; `refusals`: how what can't be done
reads), `outbox` gives to the client what it takes, `lasting` is what ends with it. `methods` is the table of
what can be asked, `calls` what a handler gets, `handlers` the handlers by family. `feed` tells followers what
is new (`logfile` reads what is old, `encoding` holds each line's bytes once), `uploads` keeps texts that come
in pieces, `approvals` tells of what waits for an answer, `listed` of sessions whose
rows are others, `takeup` delivers what was spooled while there was
no daemon; `websocket` is another way in.
"""
