"""For all tests: what whoever starts them may have taken away, and the programs under test need."""

from __future__ import annotations

import signal

# A shell without job control starts background jobs with SIGINT ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
