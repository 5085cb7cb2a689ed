"""Standard output as a process has it: who reads it may leave at any instant."""

from __future__ import annotations

import subprocess
import sys

_SHOWS = """
import sys, time
from dshctl import streams
watch = streams._end_with_reader
streams._end_with_reader = lambda fd: (time.sleep(0.5), watch(fd))  # it begins late
out = streams.stream(sys.stdout)
out.end_with_reader()
out.silence()  # as after a write that nobody read
time.sleep(20)
sys.exit(1)
"""


def test_who_only_shows_ends_also_if_a_write_has_found_that_its_reader_is_gone() -> None:
    shows = subprocess.Popen([sys.executable, "-c", _SHOWS], stdout=subprocess.PIPE)
    assert shows.stdout is not None
    shows.stdout.close()
    assert shows.wait(15) == 0
