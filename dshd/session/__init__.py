"""A session: a log that is folded to a state, decisions that add to it, and a life around both.

The rooms, from the bottom; a lower one never imports a higher one:

- `fold`: what there is: the vocabulary of the log, and the state that it is folded to;
- `shown`: what of it programs and people get to see;
- `deciding`: what may happen: decisions on a scratch, without IO;
- `disk`: the log and what is derived from it, in files; decisions go in, batches come to be durable;
- (here stands `dshd.driver`, which runs a session's turns)
- `owner`: one session, kept going; `owner.session` is what others hold;
- `porting`: what comes from elsewhere and goes there: an export, an import, a fork, as files;
- `registry`: all of them; `registry.registry` is what others hold.

A request's way is downwards: `registry` finds the session, `owner` puts a decision (`deciding`) to the
ledger (`disk`), and when that is durable, the `fold` has it and a view (`shown`) answers.
"""
