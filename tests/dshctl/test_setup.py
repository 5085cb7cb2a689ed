"""`dshctl setup`: what it puts where, what it leaves alone, and that it can be taken away again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dshctl import installing, pages
from dshd.paths import find_places
from tests.dshctl.conftest import Dshctl

FOUND = ("man/man1/dshctl.1", "systemd/user/dshd.service", *pages.LOOKED_FOR.values())


@pytest.fixture
def share(dshctl: Dshctl) -> Path:
    return dshctl.home / ".local" / "share"


def everything(share: Path) -> dict[str, bytes]:
    return {str(p.relative_to(share)): p.read_bytes() for p in share.rglob("*") if not p.is_dir()}


def test_pages_completions_and_units_are_where_they_are_looked_for(dshctl: Dshctl, share: Path) -> None:
    ran = dshctl("setup")
    assert ran.code == 0
    assert set(FOUND) <= set(everything(share))
    assert (share / "man/man1/dshctl.1").is_symlink()
    assert "systemctl --user enable --now dshd.socket dshd.service" in ran.out
    assert "ok    pages" in dshctl("doctor").out


def test_twice_is_like_once(dshctl: Dshctl, share: Path) -> None:
    dshctl("setup")
    before, stats = everything(share), [p.lstat().st_mtime_ns for p in sorted(share.rglob("*"))]
    ran = dshctl("setup", "--json")
    assert (ran.last["made"], ran.last["foreign"]) == ([], [])
    assert everything(share) == before
    assert [p.lstat().st_mtime_ns for p in sorted(share.rglob("*"))] == stats


def test_it_takes_away_what_it_put_there_and_nothing_else(dshctl: Dshctl, share: Path) -> None:
    dshctl("setup")
    (share / "man/man1/other.1").write_text("x")
    assert dshctl("setup", "--remove").code == 0
    assert everything(share) == {"man/man1/other.1": b"x"}
    assert dshctl("setup", "--remove").code == 0


def test_what_is_not_ours_is_left_alone_and_named(dshctl: Dshctl, share: Path) -> None:
    unit, page = share / "systemd/user/dshd.service", share / "man/man1/dshctl.1"
    for path in (unit, page):
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    ran = dshctl("setup", "--json")
    assert (ran.code, sorted(ran.last["foreign"])) == (5, sorted([str(page), str(unit)]))
    dshctl("setup", "--remove")
    assert (unit.read_text(), page.read_text()) == ("mine", "mine")


def test_links_that_lead_nowhere_are_told_and_made_again(dshctl: Dshctl, share: Path) -> None:
    page = share / "man/man1/dshctl.1"
    page.parent.mkdir(parents=True)
    page.symlink_to("/no/such/man/dshctl.1")
    assert "warn  pages" in dshctl("doctor").out
    assert dshctl("setup").code == 0
    assert page.exists()


def unit(name: str, **environ: str) -> list[str]:
    installer = installing.Installer(environ, find_places({"HOME": "/h", **environ}))
    (given,) = [each for each in pages.units() if each.target.endswith(f"/{name}")]
    return installer.unit(pages.read(given.source)).split("\n")


def test_units_have_the_absolute_path_of_this_dshd() -> None:
    (start,) = [line for line in unit("dshd.service") if line.startswith("ExecStart=")]
    program = start.partition("=")[2].strip('"')
    assert os.path.isabs(program)
    assert os.access(program, os.X_OK)
    (run,) = [line for line in unit("dshd-nightly.service") if line.startswith("ExecStart=")]
    assert "dshctl" in run
    assert run.endswith('run -C %h --key nightly:{date} --mode read-only "What changed since yesterday?"')


def test_units_keep_to_the_places_that_are_set() -> None:
    plain, moved = unit("dshd.socket"), unit("dshd.socket", DSHD_HOME="/odd place/50%")
    assert "ListenStream=%t/dshd/dshd.sock" in plain
    assert "ListenStream=/odd place/50%%/run/dshd.sock" in moved
    assert 'Environment="DSHD_HOME=/odd place/50%%"' in unit("dshd.service", DSHD_HOME="/odd place/50%")
    assert not [line for line in unit("dshd.service") if line.startswith("Environment=")]


def test_systemd_finds_no_fault_in_what_is_written(dshctl: Dshctl, share: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    dshctl("setup")
    units = sorted((share / "systemd/user").iterdir())
    done = subprocess.run(
        ["systemd-analyze", "--user", "--man=no", "verify", *units],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(dshctl.home)},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_home_there_is_no_place_for_it(dshctl: Dshctl) -> None:
    assert dshctl("setup", HOME="").code == 9
