"""`python -m dshctl` is dshctl."""

from dshctl.cli import main

main()
