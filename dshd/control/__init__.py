"""What comes over the socket, and what goes back.

`listener` takes connections (`access`: who may do what), `connection` runs one (`framing`, `jsonrpc`),
`methods` is the table of what can be asked, `calls` what a handler gets, `handlers` the handlers by family.
`feed` tells followers what is new (`logfile` reads what is old), `uploads` keeps texts that come in pieces,
`takeup` delivers what was spooled while there was no daemon.
"""
