"""API keys: where they come from, and that nothing prints them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import trio

from dshd.model.credentials import Credentials, read_key, remove_key, store_key
from dshd.model.errors import ModelError

SECRET = "sk-very-secret"


def test_a_stored_key_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        path = store_key(tmp_path / "config", "fast", f" {SECRET}\n")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_key(tmp_path / "config", "fast") == SECRET
    assert os.listdir(path.parent) == ["fast"]


def test_a_key_is_replaced_whole_and_forgotten(tmp_path: Path) -> None:
    store_key(tmp_path, "fast", "old")
    store_key(tmp_path, "fast", SECRET)
    assert read_key(tmp_path, "fast") == SECRET
    assert remove_key(tmp_path, "fast")
    assert not remove_key(tmp_path, "fast")
    assert read_key(tmp_path, "fast") is None


@pytest.mark.parametrize("key", ["", "  ", "two words", "umläut", "new\nline", "nul\0"])
def test_what_is_no_key_is_not_stored_nor_repeated(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII") as caught:
        store_key(tmp_path, "fast", key)
    assert not key.strip() or key not in str(caught.value)
    assert read_key(tmp_path, "fast") is None


@pytest.mark.parametrize("route", ["", "..", "a/b", "../x", "a b", "x" * 65])
def test_a_route_is_one_file_name(tmp_path: Path, route: str) -> None:
    with pytest.raises(ValueError, match="no key can be stored"):
        store_key(tmp_path, route, SECRET)


async def test_a_key_file_that_is_a_pipe_is_none_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = Credentials("r", file=str(tmp_path / "pipe"), required=True)
    with trio.fail_after(5), pytest.raises(ModelError, match="needs"):
        await pipe.key()


async def test_the_order_is_file_then_variable_then_store(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-file\n")
    stored = store_key(tmp_path, "r", "from-store")
    sources: dict[str, Any] = {"env_name": "K", "env": {"K": "from-env"}, "stored": stored}
    assert await Credentials("r", file=str(tmp_path / "key"), **sources).key() == "from-file"
    assert await Credentials("r", file=str(tmp_path / "none"), **sources).key() == "from-env"
    assert await Credentials("r", **{**sources, "env": {"K": ""}}).key() == "from-store"


async def test_a_key_is_read_anew_for_each_call(tmp_path: Path) -> None:
    credentials = Credentials("r", stored=store_key(tmp_path, "r", "one"))
    assert await credentials.key() == "one"
    store_key(tmp_path, "r", "two")
    assert await credentials.key() == "two"


async def test_a_command_is_run_for_each_call(tmp_path: Path) -> None:
    assert await Credentials("r", command=("printf", "%s\\n%s", SECRET, "more")).key() == SECRET
    assert await Credentials("r", command=f"echo {SECRET}").key() == SECRET


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo no such entry >&2; exit 3", "no such entry"),
        ("exit 3", "exit 3"),
        (("/no/such/program",), "No such file"),
    ],
)
async def test_a_command_that_fails_is_told_by_its_stderr(command: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        await Credentials("r", command=command).key()
    assert caught.value.code == "MISSING_CREDENTIAL"


async def test_a_keyless_route_has_no_key_and_one_that_needs_it_fails() -> None:
    assert await Credentials("r", env_name="K").key() is None
    with pytest.raises(ModelError, match="needs K"):
        await Credentials("r", env_name="K", required=True).key()


async def test_a_key_that_cannot_be_one_is_refused_and_not_repeated() -> None:
    with pytest.raises(ModelError) as caught:
        await Credentials("r", env_name="K", env={"K": f"{SECRET}\u20ac"}).key()
    assert SECRET not in repr(caught.value)


def test_credentials_do_not_print_the_environment() -> None:
    assert SECRET not in repr(Credentials("r", env_name="K", env={"K": SECRET}))


async def test_of_a_command_that_takes_too_long_nothing_is_left(tmp_path: Path) -> None:
    child = tmp_path / "child"
    command = f"sleep 60 & echo $! > {child}; sleep 60; echo"
    with trio.move_on_after(60) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Credentials("r", command=command).key)
            while not (child.exists() and child.read_text().strip()):  # noqa: ASYNC110 - another process writes it
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught
    with trio.fail_after(10):
        while _lives(int(child.read_text())):  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
