"""What each event does to a state: tables of appliers, ``{event type: function(state, event)}``, one for what
the events concern.

`sessions` (settings, closing, imports, repairs), `messages` (the inbox), `turns`, `steps`, `compactions`,
`schedules`, `hooks`, `approvals`, `jobs`, `subagents`; `shared` is what several of them do. Each changes the
state in place; what can't have happened raises LookupError, TypeError, ValueError or AttributeError, and
`dshd.session.fold.folding` says where.
"""
