"""What comes over the socket, and what goes back.

`address` is the socket's name, and looks after it. `listener` takes connections (`access`: who may do what),
`connection` runs one (`framing`, `jsonrpc`; `refusals`: how what can't be done reads), `methods` is the table
of what can be asked, `calls` what a handler gets, `handlers` the handlers by family. `feed` tells followers
what is new (`logfile` reads what is old, `encoding` holds each line's bytes once), `uploads` keeps texts that
come in pieces, `approvals` tells of what waits for an answer, `takeup` delivers what was spooled while there
was no daemon.
"""
