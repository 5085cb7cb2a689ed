from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from dshd.spawn.client import Spawner, launch
from dshd.tools import search
from dshd.tools.grants import Grant
from dshd.tools.tool import Rule, ToolContext
from tests.tools.doubles import context, execute


@pytest.fixture
def tree(place: Path) -> Path:
    for name in (
        "src/a.py",
        "src/deep/b.py",
        "src/c.txt",
        ".git/x.py",
        "node_modules/m/x.py",
        ".github/ci.yml",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"# {name}\nneedle here\n")
    return place


async def lines(ctx: ToolContext, tool: str, **args: str) -> list[str]:
    with trio.fail_after(30):
        output = await execute(ctx, tool, **args)
    assert not output.is_error, output.text
    return output.text.split("\n")


async def test_glob_finds_files_sorted_and_passes_over_git_and_says_what_else_it_passed_over(
    tree: Path,
) -> None:
    assert await lines(context(tree), "glob", pattern="**/*.py") == [
        "src/a.py",
        "src/deep/b.py",
        "[not looked into: node_modules (name it in path to do so)]",
    ]


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"pattern": "src/*.py"}, ["src/a.py"]),
        ({"pattern": "src/**"}, ["src/a.py", "src/c.txt", "src/deep/b.py"]),
        ({"pattern": "*.py", "path": "src"}, ["src/a.py", "src/deep/b.py"]),
        ({"pattern": "src/**/*.{py,txt}"}, ["src/a.py", "src/c.txt", "src/deep/b.py"]),
        ({"pattern": ".github/*"}, [".github/ci.yml"]),
        ({"pattern": "node_modules/**/*.py"}, ["node_modules/m/x.py"]),
        ({"pattern": "{tree}/src/*.py"}, ["src/a.py"]),
        ({"pattern": "src/nothing*"}, ["no file matches src/nothing*"]),
    ],
)
async def test_what_glob_finds(tree: Path, args: dict[str, str], found: list[str]) -> None:
    given = {key: value.replace("{tree}", str(tree)) for key, value in args.items()}
    assert await lines(context(tree), "glob", **given) == found


async def test_grep_gives_path_line_and_text(tree: Path) -> None:
    assert await lines(context(tree), "grep", pattern="need.e", glob="*.py") == [
        "src/a.py:2: needle here",
        "src/deep/b.py:2: needle here",
        "[not looked into: node_modules (name it in path to do so)]",
    ]


async def test_grep_of_one_file(tree: Path) -> None:
    assert await lines(context(tree), "grep", pattern="^#", path="src/c.txt") == ["src/c.txt:1: # src/c.txt"]
    assert await lines(context(tree), "grep", pattern="absent", path="src/c.txt") == ["no match"]


async def test_a_pattern_that_begins_with_a_dash_is_a_pattern(tree: Path) -> None:
    (tree / "opts").write_text("--help me\n")
    assert await lines(context(tree), "grep", pattern="--help", path="opts") == ["opts:1: --help me"]


@pytest.mark.parametrize(
    ("tool", "args", "said"),
    [
        ("grep", {"pattern": "(unclosed"}, "can't be used"),
        ("grep", {"pattern": "x", "path": "absent"}, "no such file"),
        ("grep", {"pattern": "x", "glob": "a/../b"}, "can't be used"),
        ("grep", {"pattern": "x" * 3000}, "longer than"),
        ("grep", {"pattern": "x", "path": "/proc"}, "not searched"),
        ("glob", {"pattern": "x", "path": "src/a.py"}, "is a file"),
        ("glob", {"pattern": "srk/*.py"}, "Near: src"),
    ],
)
async def test_a_search_that_can_not_be_is_said(
    tree: Path, tool: str, args: dict[str, str], said: str
) -> None:
    output = await execute(context(tree), tool, **args)
    assert output.is_error
    assert said in output.text


async def test_a_line_without_end_and_a_binary_file_stay_small(place: Path) -> None:
    (place / "endless").write_bytes(b"x" * 20_000_000 + b"needle" + b"y" * 1_000_000)
    (place / "binary").write_bytes(b"\0" * 1000 + b"needle")
    found = await lines(context(place), "grep", pattern="needle")
    assert len(found) == 2
    assert len(found[0]) < 500
    assert "needle" in found[0]
    assert found[1] == "[passed over: binary files (1)]"


async def test_bytes_that_are_not_utf8_are_shown_and_marked(place: Path) -> None:
    (place / "a").write_bytes(b"caf\xe9 needle\n")
    assert await lines(context(place), "grep", pattern="needle") == [
        "a:1: caf\ufffd needle",
        "[some lines are not UTF-8: \ufffd stands for bytes that are not text]",
    ]


async def test_a_file_name_that_is_not_utf8_is_never_fatal(place: Path) -> None:
    (place / os.fsdecode(b"caf\xe9")).write_text("needle\n")
    assert await lines(context(place), "grep", pattern="needle") == ["caf\ufffd:1: needle"]
    assert await lines(context(place), "glob", pattern="c*") == ["caf\ufffd"]


async def test_more_than_fits_is_cut_and_said(place: Path) -> None:
    (place / "a").write_text("needle\n" * 1000)
    found = await lines(context(place), "grep", pattern="needle")
    assert len(found) == search.MOST_MATCHES + 1
    assert found[-1] == "[there are more: narrow the search]"


async def test_an_expression_that_never_ends_is_stopped_and_what_was_found_is_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.5)
    (place / "a").write_text("aab\n")
    (place / "b").write_text("a" * 60 + "!\n")
    found = await lines(context(place), "grep", pattern="(a+)+(b|$)")
    assert found[0] == "a:1: aab"
    assert "stopped after 0.5 s" in found[1]


async def test_links_are_not_followed_and_hidden_places_not_entered(place: Path) -> None:
    state = place.parent / "state"
    (state / "key").write_text("needle\n")
    (place / "out").symlink_to(state)
    (place / "key").symlink_to(state / "key")
    os.mkfifo(place / "pipe")
    assert await lines(context(place), "grep", pattern="needle") == ["no match"]
    # from above, too
    assert await lines(context(place), "grep", pattern="needle", path="..") == ["no match"]
    assert await lines(context(place), "glob", pattern="key", path="..") == ["key"]
    for tool in ("grep", "glob"):
        output = await execute(context(place), tool, pattern="needle", path="../state")
        assert output.error == "DENIED"


async def test_a_rule_keeps_a_file_from_searches_too(tree: Path) -> None:
    rules = (Rule("deny", path="src/**/*"), Rule("allow", path="*.txt"), Rule("deny", tool="read"))
    ctx = context(tree, rules=rules)
    kept = "[passed over: files that a rule keeps from this tool (2)]"
    assert await lines(ctx, "grep", pattern="needle", glob="src/**") == ["src/c.txt:2: needle here", kept]
    assert await lines(ctx, "glob", pattern="src/**") == ["src/c.txt", kept]
    ctx = context(tree, rules=(Rule("deny", path="src/**"),))
    assert (await execute(ctx, "grep", pattern="needle", path="src")).error == "DENIED"


async def test_who_has_allowed_a_search_sees_what_a_rule_asks_about_in_it_and_nothing_that_is_denied(
    tree: Path,
) -> None:
    rules = (Rule("ask", tool="grep", path="src/**"), Rule("deny", path="*.py"))
    place = str((tree / "src").resolve())
    allowed = context(tree, rules=rules, grants=(Grant(tool="grep", path=place),))
    kept = "[passed over: files that a rule keeps from this tool (2)]"
    assert await lines(allowed, "grep", pattern="needle", path="src") == ["src/c.txt:2: needle here", kept]
    for grants in ((), (Grant(tool="grep", path=str(tree.resolve())),), (Grant(tool="glob", path=place),)):
        ctx = context(tree, rules=rules, grants=grants)
        assert (await execute(ctx, "grep", pattern="needle", path="src")).error == "DENIED"


async def test_spilled_output_may_be_searched(ctx: ToolContext) -> None:
    ctx.spill_dir.mkdir(parents=True)
    (ctx.spill_dir / "out").write_text("needle\n")
    found = await lines(ctx, "grep", pattern="needle", path=str(ctx.spill_dir))
    assert found == [f"{ctx.spill_dir}/out:1: needle"]


async def test_cancelling_a_search_does_not_wait_for_it(place: Path) -> None:
    (place / "b").write_text("a" * 60 + "!\n")
    with trio.fail_after(10), trio.move_on_after(0.3) as scope:
        await execute(context(place), "grep", pattern="(a+)+$")
    assert scope.cancelled_caught


# -- with the daemon's own spawner


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    spawner = Spawner(launch())
    yield spawner
    await spawner.aclose()


def searchers() -> list[int]:
    """Processes of searches that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if b"search_worker" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


async def test_a_search_is_a_process_of_the_spawner_and_ends_with_its_call(
    tree: Path, spawner: Spawner
) -> None:
    ctx = context(tree, spawner=spawner)
    assert (await lines(ctx, "grep", pattern="needle", path="src/c.txt")) == ["src/c.txt:2: needle here"]
    before = set(searchers())
    (tree / "b").write_text("a" * 60 + "!\n")
    with trio.fail_after(20), trio.move_on_after(1) as abort:
        await execute(ctx, "grep", pattern="(a+)+$")
    assert abort.cancelled_caught
    assert set(searchers()) <= before


async def test_the_daemon_goes_on_while_an_expression_runs_away(
    tree: Path, spawner: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS", 1.0)
    (tree / "b").write_text("a" * 60 + "!\n")
    beats = 0
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:

            async def beat() -> None:
                nonlocal beats
                while True:
                    await trio.sleep(0.02)
                    beats += 1

            nursery.start_soon(beat)
            await execute(context(tree, spawner=spawner), "grep", pattern="(a+)+$")
            nursery.cancel_scope.cancel()
    assert beats > 20
