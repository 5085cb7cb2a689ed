"""Servers of tools that the config names (``[mcp.NAME]``), over the Model Context Protocol.

A session has its own connection to each: `servers` keeps them, `link` is one, from its start to its end. A
server that is a command is started like one of `bash`'s, in the session's sandbox, and spoken to over
`pipes`. What a server lists becomes tools (`remote`, named by `names`), and what a call gives an output
(`results`).

The protocol is the package ``mcp``'s, an extra that is imported when the first server is wanted.
"""
