"""Where dshctl begins, as a command and as `python -m dshctl`.

Imports take most of a short command's time, so Ctrl-C finds them as often as not: it is caught before them.
"""

import os

SIGINT = 130  # as `exits.SIGINT`, which is not imported yet


def main() -> None:
    """The entry point of `dshctl`. Does not return."""
    try:
        from dshctl.cli import main as run

        run()
    except KeyboardInterrupt:
        os._exit(SIGINT)


if __name__ == "__main__":
    main()
