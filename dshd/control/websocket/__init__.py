"""The same over WebSocket, for clients that have no Unix sockets: off unless the config says where.

In the order in which a client meets them: `serving` (accepts, and has it all), `loopback` (which process is
at the other end), `door` (whether it is let in; no IO), `token` (what it must know), `channel` (one
message, one line, to a connection as any other).

What a Unix socket gives for nothing has to be made here. The kernel does not say who connects: the uid
stands in its table of connections, and the process is found by the socket that it holds; if any that may
hold it is below one of our tools, the client is an agent, as on the socket. Web pages may connect to
loopback as anybody: so a token that only the owner can read is needed, and a page's origin must be one that
the config names.
"""
