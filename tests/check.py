"""Everything that must hold before a change lands, in one command: ``python -m tests.check``.

The same by hand and in CI. The quick checks, the simulator for a minute, and the tests a folder at a time
are done side by side, as many as there are processors (see `tests.jobs`); one line tells how each went, what
failed is shown whole, and pytest's counts together are the last line. What needs a program that this machine
lacks is left out loudly. Exit 0 only if nothing failed.

    python -m tests.check              everything
    python -m tests.check --jobs 1     one after the other
    python -m tests.check --long       everything, and more of what is made up: hours
    python -m tests.check --lint       without the tests
    python -m tests.check tests/log    the checks, and these tests (arguments go to pytest)
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.jobs import Job, Result, counted, run

ROOT = Path(__file__).resolve().parent.parent
CODE = ("dshd", "dshctl", "tests")
PLAYED_S = 60.0  # by the simulator, from the first seed on: what fails here fails again
LONG_S = 3600.0  # with --long
LIMIT_S = 780.0  # for one job; a machine that ends the whole after a quarter of an hour would show nothing
LONG_LIMIT_S = 6 * 3600.0
# Folders that take long go first, so that at the end no processor is left alone with one.
LONG_ONES = ("e2e", "session", "dshctl", "sim", "tools", "spawn", "log")
# What ruff has as well, what is a matter of taste, and rules about other libraries. It takes its time, so
# that it sees the programs' asynchronous files only.
ASYNC_NOT = ("9", "100", "106", "114", "121", "122", "123", "124", "127", "300")


def python(module: str, *args: str) -> list[str]:
    return [sys.executable, "-m", module, *args]


def checks() -> list[Job]:
    pages = sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("man/*.[1-8]"))
    return [
        Job("flake8-async", python("flake8", "--jobs=1", *async_options(), *asynchronous_files())),
        Job("mypy", python("mypy")),
        Job("ruff", python("ruff", "check", *CODE)),
        Job("import-linter", [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]),
        Job("mandoc", ["mandoc", "-T", "lint", "-W", "warning", *pages]),
    ]


def async_options() -> list[str]:
    return ["--isolated", "--select=ASYNC", f"--disable={','.join(f'ASYNC{code}' for code in ASYNC_NOT)}"]


def asynchronous_files() -> list[str]:
    files = [path for room in ("dshd", "dshctl") for path in sorted((ROOT / room).rglob("*.py"))]
    return [str(path.relative_to(ROOT)) for path in files if "async def" in path.read_text()]


def simulator(seconds: float) -> Job:
    return Job("simulator", python("tests.sim", "--minutes", f"{seconds / 60:g}", "--jobs", "1"), tells=True)


def folders() -> list[str]:
    """All that hold tests, the long ones first."""
    found = {path.parent.name for path in ROOT.glob("tests/*/test_*.py")}
    return [*(name for name in LONG_ONES if name in found), *sorted(found.difference(LONG_ONES))]


def tests() -> list[Job]:
    """A folder each. A test that hangs says where after two minutes; none of ours takes a tenth of them."""
    options = ("-p", "no:cacheprovider", "-o", "faulthandler_timeout=120")
    names = [f"tests/{folder}" for folder in folders()]
    return [Job(name, python("pytest", name, *options), tells=True) for name in names]


def told(result: Result) -> bool:
    """Print how it went, all of it if it went wrong. Whether it went well."""
    word = "SKIPPED" if result.missing else "ok" if result.good else "FAILED"
    say(f"{word:8} {result.name}  {result.told}")
    if not result.good:
        say(result.output.rstrip())
    return result.good


def everything(processors: int, *, long: bool) -> int:
    started = time.monotonic()
    if long:
        os.environ["DSHD_LONG"] = "1"
    os.environ.setdefault("DSHD_SIM_SECONDS", "2")  # it plays beside the tests
    jobs = [simulator(LONG_S if long else PLAYED_S), *checks(), *tests()]
    results = list(run(jobs, processors, told, LONG_LIMIT_S if long else LIMIT_S))
    failed = [result.name for result in results if not result.good]
    if failed:
        say(f"FAILED: {', '.join(failed)}")
    tested = counted(result.told for result in results if result.name.startswith("tests/"))
    say(f"{tested} in {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def checked(args: Sequence[str]) -> int:
    """The checks, and then pytest with these arguments, on the terminal."""
    failed = [result.name for result in run(checks(), 1, told, LIMIT_S) if not result.good]
    if failed:
        say(f"FAILED: {', '.join(failed)}")
    argv = [] if list(args) == ["--lint"] else python("pytest", *args)
    tested = not argv or subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode == 0
    return 0 if tested and not failed else 1


def say(line: str) -> None:
    print(line, flush=True)


def main(args: list[str]) -> int:
    os.chdir(ROOT)
    match args:
        case [] | ["--long"]:
            return everything(os.cpu_count() or 1, long=bool(args))
        case ["--jobs", number] if number.isdigit() and int(number):
            return everything(int(number), long=False)
    return checked(args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
