"""One run of a hook: real processes."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from dshd.config import Hook
from dshd.hooks.runner import Place, environment_of, matches, name_of, run_hook
from dshd.spawn.client import Spawner, launch
from tests.spawn.helpers import NAMELESS, Tree

FOUND = {"event": "pre_step", "session": "s1234567", "name": "api", "dir": "/"}
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    spawner = Spawner(launch())
    yield spawner
    await spawner.aclose()


def hook(command: str | list[str], **more: Any) -> Hook:
    return Hook(event="pre_step", command=command, **more)


async def test_a_text_goes_to_the_shell_and_a_list_is_what_runs(spawner: Spawner, tmp_path: Path) -> None:
    place = Place(dir=str(tmp_path), daemon=PATH)
    script = tmp_path / "hook"
    script.write_text('#!/bin/sh\ncat >read; echo "$1" >&2; exit 2\n')
    script.chmod(0o700)
    with trio.fail_after(20):
        ran = await run_hook(spawner, hook([str(script), "a b"]), place, FOUND)
        assert (ran.answer.outcome, ran.answer.reason, ran.exit) == ("blocked", "a b", 2)
        assert json.loads((tmp_path / "read").read_bytes()) == FOUND
        shell = hook('pwd >&2; echo \'{"decision":"reject","reason":"\'$DSHD_SESSION_NAME\'"}\'')
        assert (await run_hook(spawner, shell, place, FOUND)).answer.reason == "api"


async def test_what_can_not_run_is_a_failure_that_names_it(spawner: Spawner, tmp_path: Path) -> None:
    place = Place(dir=str(tmp_path), daemon=PATH)
    with trio.fail_after(20):
        ran = await run_hook(spawner, hook(["no-such-hook"]), place, FOUND)
        assert ran.answer.outcome == "failed"
        assert "no-such-hook could not be started" in ran.answer.reason
        gone = await run_hook(spawner, hook("true"), Place(dir=str(tmp_path / "gone")), FOUND)
        assert "can't be entered" in gone.answer.reason


async def test_a_hook_that_hangs_is_ended_with_all_that_it_started(spawner: Spawner, tmp_path: Path) -> None:
    tree = Tree(spawner, tmp_path)
    hanging = hook("trap '' TERM; " + NAMELESS + " sleep 1000 & sleep 1000", timeout=0.5)
    place = Place(dir=str(tmp_path), session=tree.env)
    with trio.fail_after(20):
        ran = await run_hook(spawner, hanging, place, FOUND)
    assert ran.answer.reason == "it took longer than 0.5 s and was ended"
    assert not tree.alive()


async def test_a_cancelled_hook_leaves_nothing(spawner: Spawner, tmp_path: Path) -> None:
    tree = Tree(spawner, tmp_path)
    place = Place(dir=str(tmp_path), session=tree.env)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_hook, spawner, hook("sleep 1000 & sleep 1000"), place, FOUND)
            await tree.started(2)
            assert list(spawner.running.values()) == ["hook s1234567"]
            nursery.cancel_scope.cancel()
    assert not tree.alive()


async def test_what_it_prints_is_bounded(spawner: Spawner, tmp_path: Path) -> None:
    with trio.fail_after(20):
        ran = await run_hook(
            spawner, hook("yes | head -c 20000000"), Place(dir=str(tmp_path), daemon=PATH), FOUND
        )
    assert ran.answer.reason == "it answered more than 64 KiB"


def test_it_sees_no_key_and_of_the_secrets_only_what_it_names() -> None:
    place = Place(
        dir="/w",
        session={"LANG": "C", "DEPLOY_TOKEN": "1", "OTHER_TOKEN": "2", "MODEL_KEY": "3", "LD_PRELOAD": "x"},
        daemon={"HOME": "/h", "MODEL_KEY": "3"},
        keys=frozenset({"MODEL_KEY"}),
    )
    env = environment_of(hook("true", env=["DEPLOY_TOKEN", "MODEL_KEY"]), place, FOUND)
    assert env["DEPLOY_TOKEN"] == "1"
    assert (env["HOME"], env["LANG"], env["PWD"]) == ("/h", "C", "/w")
    assert env["CLAUDE_PROJECT_DIR"] == "/"
    assert not {"OTHER_TOKEN", "MODEL_KEY", "LD_PRELOAD"} & env.keys()


def test_the_environment_never_breaks_a_start() -> None:
    env = environment_of(
        hook("true"), Place(dir="/"), {"text": "a\0b\ud800" + "x" * 9000, "event": "attention"}
    )
    assert "\0" not in env["DSHD_TEXT"]
    os.fsencode(env["DSHD_TEXT"])


def test_names_and_matchers() -> None:
    assert name_of(hook(["/opt/hooks/check", "-v"])) == "check"
    assert name_of(hook("~/bin/check.sh --all; true")) == "check.sh"
    assert name_of(hook("true", name="no pushes")) == "no pushes"
    assert all(matches(hook("true", matcher=every), "bash") for every in (None, "", "*"))
    assert matches(hook("true", matcher="Edit|Bash"), "bash", "Bash")
    assert not matches(hook("true", matcher="Edit|Bas"), "bash", "Bash")
    assert matches(hook("true", matcher="^mcp_.*push"), "mcp_git_push")
