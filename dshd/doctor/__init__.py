"""Is all well here? What `dshctl doctor` says, asked of the daemon or, where none runs, of the files.

`facts` are what has been looked at, gathered by `looking` (which blocks); `checks` makes lines of them and
does no IO; `routes` does so for models and their keys, of which it says where they come from and never what
they are.
"""
