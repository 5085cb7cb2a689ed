"""What is shown: pure functions of a state, in the protocol's shapes.

`views` are sessions, messages and receipts; `ends`, how those end; `questions`, what a person is asked;
`scheduled`, `jobs` and `agents`, their rows; `origins`, whose word settings are; `usage`, what was spent.
`activities` is what a session does just now, `parking` whether it waits for a person, `holding` whether a
held message does, and `why` what a message waits for.
"""
