"""`glob` and `grep`: finding files by name and lines by expression, bounded in time and output.

The search itself is a process (`search_worker`), started through the spawner like any other tool process,
so a runaway expression ends with its time limit or an abort, and never holds up the daemon.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs

import dshd
from dshd.tools import text
from dshd.tools.containment import Target, check, missing, resolve
from dshd.tools.files import schema
from dshd.tools.globs import BadGlob, compile_globs, literal_prefix
from dshd.tools.policy import path_rules
from dshd.tools.threads import reading
from dshd.tools.tool import Args, ToolContext, ToolFailure, ToolOutput, clean, text_output

SECONDS = 20.0
GRACE = 5.0  # s after that until the process is ended
MOST_FILES = 200
MOST_MATCHES = 200
MOST_BYTES = 40_000  # of findings
MOST_EXPRESSION = 2000

ROOT = str(Path(dshd.__file__).parent.parent)
ARGV = [sys.executable, "-I", "-S", "-c"]
PROGRAM = "import sys; sys.path.append(sys.argv[1]); from dshd.tools.search_worker import main; main()"


@attrs.frozen(slots=True)
class Found:
    """What the worker wrote: rows, and notes; ``cut`` when it was ended before it was done."""

    rows: list[list[Any]]
    notes: list[str]
    cut: bool


class Glob:
    """Find files by name."""

    name: ClassVar[str] = "glob"
    description: ClassVar[str] = (
        "Find files whose path matches a pattern: * and ? within a name, ** over directories, {a,b} either."
        f" A pattern without / is looked for at any depth. Sorted, at most {MOST_FILES}."
    )
    schema: ClassVar[dict[str, Any]] = schema(
        ["pattern"],
        pattern={"type": "string", "description": "for example **/*.py or src/*.{c,h}"},
        path={"type": "string", "description": "directory to look in (default: the session's)"},
    )
    read_only: ClassVar[bool] = True

    def describe(self, args: Args) -> str:
        return f"glob: {args['pattern'][:60]}"

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        prefix, rest = literal_prefix(args["pattern"])
        _check_glob(rest)
        base = os.path.join(args.get("path") or ".", prefix)
        target = await reading(_directory, "glob", base, ctx)
        # a prefix takes the slash away, and with it the meaning "only here"
        pattern = f"./{rest}" if prefix else rest
        found = await search(target, ctx, glob=pattern, regex=None, most=MOST_FILES)
        paths = [relative(row[1], target) for row in found.rows]
        body = "\n".join(paths) or f"no file matches {args['pattern']}"
        return _output(body, found, _count(len(paths), "file", "files"))


class Grep:
    """Find lines by regular expression."""

    name: ClassVar[str] = "grep"
    description: ClassVar[str] = (
        "Search the text of files for a regular expression (Python's; (?i) ignores case), line by line."
        f" Gives path:line: text, at most {MOST_MATCHES} matches. Binary files are passed over."
    )
    schema: ClassVar[dict[str, Any]] = schema(
        ["pattern"],
        pattern={"type": "string", "description": "regular expression"},
        path={"type": "string", "description": "file or directory to search (default: the session's)"},
        glob={"type": "string", "description": "only files that match, for example *.py or src/**/*.ts"},
    )
    read_only: ClassVar[bool] = True

    def describe(self, args: Args) -> str:
        return f"grep: {args['pattern'][:60]}"

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        _check_regex(args["pattern"])
        wanted = args.get("glob") or ""
        if wanted:
            _check_glob(wanted)
        target = await reading(_existing, "grep", args.get("path") or ".", ctx)
        found = await search(target, ctx, glob=wanted, regex=args["pattern"], most=MOST_MATCHES)
        body = "\n".join(f"{relative(path, target)}:{line}: {shown}" for _, path, line, shown in found.rows)
        return _output(body or "no match", found, _count(len(found.rows), "match", "matches"))


def _output(body: str, found: Found, summary: str) -> ToolOutput:
    notes = [f"[{note}]" for note in found.notes]
    if found.cut:
        notes.append(f"[stopped after {SECONDS + GRACE:.0f} s: simplify or narrow the search]")
    return text_output("\n".join([clean(body), *notes]), summary=summary)


def _count(number: int, one: str, many: str) -> str:
    return f"1 {one}" if number == 1 else f"{number} {many}"


def _check_glob(pattern: str) -> None:
    try:
        compile_globs(pattern)
    except BadGlob as error:
        raise ToolFailure(f"the pattern {pattern!r} can't be used: {error}", code="INVALID_ARGS") from None


def _check_regex(pattern: str) -> None:
    if len(pattern) > MOST_EXPRESSION:
        raise ToolFailure(f"the expression is longer than {MOST_EXPRESSION} characters", code="INVALID_ARGS")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolFailure(f"the expression can't be used: {error}", code="INVALID_ARGS") from None


def _existing(tool: str, raw: str, ctx: ToolContext) -> Target:
    target = resolve(raw, ctx)
    check(tool, target, ctx)
    if not os.path.exists(target.path):
        raise missing(target, ctx)
    if str(target.path) in ("/proc", "/sys", "/dev"):
        raise ToolFailure(f"{target.path} is not searched", code="INVALID_ARGS")
    return target


def _directory(tool: str, raw: str, ctx: ToolContext) -> Target:
    target = _existing(tool, raw, ctx)
    if not os.path.isdir(target.path):
        raise ToolFailure(f"{target.named} is a file, not a directory", code="NOT_A_DIRECTORY")
    return target


def relative(path: str, target: Target) -> str:
    """A found path as the model may use it again: relative to the session's directory if below it."""
    base = f"{target.dir}/".replace("//", "/")
    return path.removeprefix(base)


async def search(target: Target, ctx: ToolContext, *, glob: str, regex: str | None, most: int) -> Found:
    """Run the worker. Cancellation: the spawner ends it."""
    places = await reading(_places, ctx)
    job = {
        "root": str(target.path),
        "glob": glob,
        "regex": regex,
        "hidden": places[0],
        "open": places[1],
        "rules": path_rules("glob" if regex is None else "grep", ctx, target.path),
        "dir": str(target.dir),
        "most": most,
        "bytes": MOST_BYTES,
        "seconds": SECONDS,
    }
    done = await ctx.spawner.run(
        [*ARGV, PROGRAM, ROOT],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        stdin=json.dumps(job).encode(),
        timeout=SECONDS + GRACE,
        head=4 * MOST_BYTES,
        tail=4096,
        label=ctx.session,
    )
    return _understood(done)


def _places(ctx: ToolContext) -> tuple[list[str], list[str]]:
    return _resolved(ctx.hidden), _resolved((ctx.spill_dir, *ctx.readable))


def _resolved(places: Sequence[Path]) -> list[str]:
    return sorted({os.path.realpath(place) for place in places})


def _understood(done: Any) -> Found:
    rows: list[list[Any]] = []
    other: list[str] = []
    for line in (done.head + done.tail).decode("utf-8", "replace").split("\n"):
        try:
            row = json.loads(line)
        except ValueError:
            other.append(line)
            continue
        if row[0] == "end":
            return Found(rows, row[1:], False)
        rows.append(row)
    if done.timed_out:
        return Found(rows, [], True)
    said = next((line for line in reversed(other) if line.strip()), "it ended without a word")
    raise ToolFailure(f"the search failed: {text.short_path(said, 300)}", code="SEARCH_FAILED")
