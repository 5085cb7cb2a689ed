"""What the daemon makes of its config, without its process."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
import trio

from dshd import config
from dshd.config import Source
from dshd.daemon import guard
from dshd.errors import Conflict, NotConfigured
from dshd.log.lock import StateLock
from dshd.model.errors import ModelError
from dshd.paths import Places
from dshd.settings import Daemon, Setup
from dshd.spawn import SpawnerHandle
from dshd.systemd import Manager


def daemon(tmp_path: Path, user: str = "", system: str = "") -> Daemon:
    places = Places(str(tmp_path / "config.toml"), str(tmp_path / "etc.toml"), str(tmp_path / "s"), ("/x",))
    Path(places.config).write_text(user)
    Path(places.system_config).write_text(system)
    found = config.parse(Source("config.toml", user), Source("etc.toml", system))
    ours, theirs = socket.socketpair()
    ours.close()
    theirs.close()
    return Daemon(
        Setup(config=found, places=places, environ={"HOME": "/h", "FAST_KEY": "k", "OTHER": "x"},
              manager=Manager(), handle=SpawnerHandle(0, ours))
    )  # fmt: skip


FAST = '[routes.fast]\nadapter = "openai"\nbase_url = "http://x/"\nmodel = "m"\napi_key_env = "FAST_KEY"\n'


async def test_the_policy_holds_for_built_in_routes_too(tmp_path: Path) -> None:
    found = daemon(tmp_path, FAST, "[policy]\nadapters = ['openai']\n")
    assert (await found.models.choose("fast", client_is_terminal=False)).ref == "fast"
    assert found.models.prepare_call("fast").model == "m"
    with pytest.raises(NotConfigured, match="does not allow"):
        await found.models.choose("rehearsal", client_is_terminal=True)
    with pytest.raises(ModelError, match="does not allow"):
        found.models.prepare_call("rehearsal")


async def test_a_reload_changes_everything_or_nothing(tmp_path: Path) -> None:
    found = daemon(tmp_path)
    assert "FAST_KEY" not in found.environ
    (tmp_path / "config.toml").write_text(
        FAST + "[[rules]]\naction = 'deny'\n[plugins.rate_limit]\nper_minute = 1\n"
    )
    await found.reload()
    assert found.environ["FAST_KEY"] == "k"
    assert "OTHER" not in found.environ
    assert (len(found.rules), len(found.plugins)) == (1, 1)
    before = found.config
    for bad in ("[plugins.nothing]\n", FAST + "profile = { nothing = 1 }\n", "x"):
        (tmp_path / "config.toml").write_text(bad)
        with pytest.raises(NotConfigured):
            await found.reload()
        assert found.config is before
        assert (len(found.rules), len(found.plugins)) == (1, 1)
        assert found.models.prepare_call("fast").model == "m"
        assert found.environ["FAST_KEY"] == "k"


async def test_what_is_set_in_vain_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    daemon(tmp_path, "[mcp.x]\ncommand = ['no-such-program']\n")
    assert "mcp.x.command runs no-such-program, and there is no such program" in caplog.text


async def test_the_lock_is_watched_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = trio.Event()
    monkeypatch.setattr("dshd.daemon.GUARD_S", 0.001)
    monkeypatch.setattr("dshd.daemon.log.warning", lambda *_: seen.set())
    with contextlib.closing(StateLock(tmp_path)) as lock, trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            lock.path.unlink()
            nursery.start_soon(guard, lock)
            await seen.wait()
            nursery.cancel_scope.cancel()
        assert lock.path.exists()


async def test_a_daemon_whose_state_is_somebody_elses_now_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dshd.daemon.GUARD_S", 0.001)
    state = tmp_path / "state"
    state.mkdir()
    with contextlib.closing(StateLock(state)) as lock, trio.fail_after(10):
        state.rename(tmp_path / "away")
        state.mkdir()
        with pytest.raises(Conflict, match="moved, removed or replaced"):
            await guard(lock)
    assert list(state.iterdir()) == []


async def test_a_reload_names_what_is_set_in_vain(tmp_path: Path) -> None:
    found = daemon(tmp_path)
    (tmp_path / "config.toml").write_text("[mcp.x]\ncommand = ['no-such-program']\n")
    answer = await found.reload()
    assert answer["warnings"] == ["mcp.x.command runs no-such-program, and there is no such program"]
