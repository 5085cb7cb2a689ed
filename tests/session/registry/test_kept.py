"""What is kept as JSON is as large as it looks."""

from __future__ import annotations

import tracemalloc

import orjson

from dshd.kept import written


def test_what_is_kept_holds_no_more_memory_than_it_has_bytes() -> None:
    values = [{"n": n, "text": "x" * 300} for n in range(100)]
    tracemalloc.start()
    try:
        kept = [written(value) for value in values]
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept == [orjson.dumps(value) for value in values]
    assert held < 100 * 500
