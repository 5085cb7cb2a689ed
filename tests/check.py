"""Everything that must hold before a change lands, in one command: ``python -m tests.check``.

The same by hand and in CI. The quick checks run first and all of them, so that one run shows everything;
beside them the simulator plays for a minute. pytest runs last, so that its closing line is the last line
printed. What needs a program that this machine lacks is left out loudly. Exit 0 only if nothing failed.

    python -m tests.check              everything
    python -m tests.check --lint       without the tests
    python -m tests.check tests/log    the checks, and these tests (arguments go to pytest)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = ("dshd", "dshctl", "tests")
PLAYED_S = 60.0  # by the simulator, from the first seed on: what fails here fails again
# What ruff has as well, what is a matter of taste, and rules about other libraries. It takes its time, so
# that it sees the programs' asynchronous files only.
ASYNC_NOT = ("9", "100", "106", "114", "121", "122", "123", "124", "127", "300")


def python(module: str, *args: str) -> list[str]:
    return [sys.executable, "-m", module, *args]


def checks() -> dict[str, list[str]]:
    """{name: argv}; the first word of an argv is a program that may be missing."""
    pages = sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("man/*.[1-8]"))
    return {
        "ruff": python("ruff", "check", *CODE),
        "flake8-async": python("flake8", *async_options(), *asynchronous_files()),
        "mypy": python("mypy"),
        "import-linter": [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        "mandoc": ["mandoc", "-T", "lint", "-W", "warning", *pages],
    }


def async_options() -> list[str]:
    return ["--isolated", "--select=ASYNC", f"--disable={','.join(f'ASYNC{code}' for code in ASYNC_NOT)}"]


def asynchronous_files() -> list[str]:
    files = [path for room in ("dshd", "dshctl") for path in sorted((ROOT / room).rglob("*.py"))]
    return [str(path.relative_to(ROOT)) for path in files if "async def" in path.read_text()]


def run_check(name: str, argv: Sequence[str]) -> bool:
    """Run one; its output is shown only if it fails."""
    if shutil.which(argv[0]) is None:
        say(f"SKIPPED  {name}: {argv[0]} is not installed here")
        return True
    started = time.monotonic()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    say(f"{'ok' if done.returncode == 0 else 'FAILED':8} {name}  {time.monotonic() - started:.1f} s")
    if done.returncode:
        say((done.stdout + done.stderr).rstrip())
    return done.returncode == 0


@contextlib.contextmanager
def simulator(wanted: bool, failed: list[str]) -> Iterator[None]:
    """It plays while the quick checks run: they don't fill the machine, and time enough is what it needs."""
    if not wanted:
        yield
        return
    argv = python("tests.sim", "--minutes", f"{PLAYED_S / 60:g}", "--jobs", "1")
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as played:
        yield
        told = played.communicate()[0].rstrip()
    say(f"{'ok' if played.returncode == 0 else 'FAILED':8} simulator  {told}")
    if played.returncode:
        failed.append("simulator")


def run_tests(args: Iterable[str]) -> bool:
    return subprocess.run(python("pytest", *args), stdin=subprocess.DEVNULL, check=False).returncode == 0


def say(line: str) -> None:
    print(line, flush=True)


def main(args: list[str]) -> int:
    os.chdir(ROOT)
    failed: list[str] = []
    with simulator(not args, failed):
        failed += [name for name, argv in checks().items() if not run_check(name, argv)]
    if failed:
        say(f"FAILED: {', '.join(failed)}")
    if not args:
        os.environ.setdefault("DSHD_SIM_SECONDS", "2")  # it has played
    tested = args == ["--lint"] or run_tests(args)
    return 0 if tested and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
