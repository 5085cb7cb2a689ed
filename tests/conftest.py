"""For all tests: what whoever starts them may have taken away, and the programs under test need."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

from tests.amount import examples

# A shell without job control starts background jobs with SIGINT ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing on a machine that does something else besides.
settings.register_profile(
    "ours", max_examples=examples(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ours")
