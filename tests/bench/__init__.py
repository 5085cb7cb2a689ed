"""What the daemon can do, in numbers: ``python -m tests.bench``. See `tests.bench.__main__`."""
