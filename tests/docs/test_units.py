"""The systemd user units: that systemd takes them, and what they must never say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

UNITS = sorted((ROOT / "systemd").iterdir())
PROGRAMS = Path(sys.executable).parent


def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    for unit in UNITS:
        installed = unit.read_text().replace("ExecStart=dsh", f"ExecStart={PROGRAMS}/dsh")
        (tmp_path / unit.name).write_text(installed)
    done = subprocess.run(
        ["systemd-analyze", "--user", "--man=no", "verify", *(tmp_path / unit.name for unit in UNITS)],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_service_leaves_the_activated_socket_alone() -> None:
    settings = (ROOT / "systemd" / "dshd.service").read_text().splitlines()
    assert not [line for line in settings if line.startswith("RuntimeDirectory=")]
    assert "Type=notify" in settings
