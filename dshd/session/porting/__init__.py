"""From elsewhere and to it: the files of an export, an import, a fork. No other session is looked at here;
that is the registry's (`registry.porter`).

`transfer` makes directories of sessions that come, and decides their last batch; `copying` renames a log's
events for another id. `packing` is a session as one file, `tar` the form of that, strictly.
"""
