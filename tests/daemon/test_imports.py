"""What the programs have in memory before anybody asks them for something."""

from __future__ import annotations

import subprocess
import sys

PUT_OFF = (
    "cronsim", "zoneinfo", "jsonschema", "httpx", "mcp", "tarfile", "sqlite3",
    "dshd.doctor", "dshd.vet", "dshd.model.anthropic", "dshd.model.exchange", "dshd.model.openai",
    "dshd.model.rehearsal", "dshd.session.porting.packing", "dshd.session.registry.porter",
)  # fmt: skip


def imported_by(statement: str) -> set[str]:
    code = f"import sys, {statement}; print(*sys.modules, sep='\\n')"
    run = [sys.executable, "-c", code]
    return set(subprocess.run(run, check=True, capture_output=True, text=True, timeout=60).stdout.split())


def test_what_few_daemons_need_is_imported_by_the_first_that_asks_for_it() -> None:
    imported = imported_by("dshd.__main__, dshd.daemon")
    assert "dshd.session.registry.registry" in imported
    assert not imported.intersection(PUT_OFF)


def test_looking_at_sessions_without_a_daemon_imports_what_a_fold_needs_and_nothing_that_drives() -> None:
    imported = imported_by("dshctl.offline")
    assert "dshd.session.fold.folding" in imported
    driving = ("trio", "dshd.driver", "dshd.hooks", "dshd.tools", "dshd.session.owner")
    assert not imported.intersection(driving)
