def report(bug, most): return 0
