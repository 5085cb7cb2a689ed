"""`dshctl acp`: a session of the daemon as an agent in an editor that speaks the Agent Client Protocol.

`peer` (lines to and from the editor; no IO of its own), `translating` (what is asked, and how a turn ended,
in the other side's words; no IO), `updates` (events of a log as ``session/update``; no IO), `threads` (one
session, as the editor knows it), `agent` (the loop, and what each request of the editor's becomes).

What holds everywhere: standard output carries the protocol and nothing else. The work is the daemon's: an
editor that goes away stops nothing, and what it has said is said once, whatever becomes of a connection.
"""
