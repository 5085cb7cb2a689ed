"""What a daemon has in memory before anybody asks it for something."""

from __future__ import annotations

import subprocess
import sys

PUT_OFF = (
    "cronsim", "zoneinfo", "jsonschema", "httpx", "mcp", "tarfile", "sqlite3",
    "dshd.doctor", "dshd.vet", "dshd.model.anthropic", "dshd.model.exchange", "dshd.model.openai",
    "dshd.model.rehearsal", "dshd.session.porting.packing", "dshd.session.registry.porter",
)  # fmt: skip


def test_what_few_daemons_need_is_imported_by_the_first_that_asks_for_it() -> None:
    code = "import sys, dshd.__main__, dshd.daemon; print(*sys.modules, sep='\\n')"
    run = [sys.executable, "-c", code]
    imported = subprocess.run(run, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    assert "dshd.session.registry.registry" in imported
    assert not set(PUT_OFF).intersection(imported)
