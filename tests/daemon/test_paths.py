"""Where things are, in every environment a program may be started in, and what passes on of it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd import paths
from dshd.errors import Invalid, NotConfigured
from dshd.paths import daemon_environment, find_places, parse_env_file, private_directory, session_environment

NOBODY = 4_000_000_000  # a uid that no passwd knows


def never(path: str, uid: int, **how: int) -> bool:
    return False


def always(path: str, uid: int, **how: int) -> bool:
    return True


def test_a_desktop_has_its_places_where_xdg_says() -> None:
    places = find_places({"HOME": "/home/me", "XDG_RUNTIME_DIR": "/run/user/1000"}, uid=1000, private=always)
    assert places.config == "/home/me/.config/dshd/config.toml"
    assert places.state == "/home/me/.local/state/dshd"
    assert places.sockets == ("/run/user/1000/dshd/dshd.sock", "/home/me/.local/state/dshd/run/dshd.sock")
    assert places.system_config == "/etc/xdg/dshd/config.toml"
    assert places.lock == "/home/me/.local/state/dshd/lock"
    assert places.env_file == "/home/me/.config/dshd/env"


def test_xdg_variables_move_them_and_relative_ones_are_ignored() -> None:
    environ = {"HOME": "/home/me", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "s"}
    places = find_places(environ, uid=1000, private=never)
    assert (places.config, places.state) == ("/c/dshd/config.toml", "/home/me/.local/state/dshd")


def test_one_directory_holds_all_and_single_settings_win_over_it() -> None:
    places = find_places({"DSHD_HOME": "/d"}, uid=NOBODY, private=never)
    assert (places.config, places.state, places.socket) == ("/d/config.toml", "/d/state", "/d/run/dshd.sock")
    environ = {"DSHD_HOME": "/d", "DSHD_CONFIG": "/c.toml", "DSHD_STATE_DIR": "/s", "DSHD_SOCKET": "/x.sock"}
    places = find_places(environ, uid=NOBODY)
    assert (places.config, places.state, places.sockets) == ("/c.toml", "/s", ("/x.sock",))
    places = find_places(environ, uid=NOBODY, config="/other.toml", socket="/other.sock")
    assert (places.config, places.sockets) == ("/other.toml", ("/other.sock",))


def test_a_relative_setting_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_places({"DSHD_HOME": "d"}).state == str(tmp_path / "d" / "state")


def test_cron_finds_the_socket_of_the_login_session() -> None:
    login = find_places({"HOME": "/h", "XDG_RUNTIME_DIR": "/run/user/1000"}, uid=1000, private=always)
    assert find_places({"HOME": "/h"}, uid=1000, private=always).sockets == login.sockets


def test_without_a_runtime_directory_the_socket_is_in_the_state_and_never_in_a_shared_place() -> None:
    places = find_places({"HOME": "/h", "XDG_RUNTIME_DIR": "/tmp"}, uid=1000, private=never)
    assert places.sockets == ("/h/.local/state/dshd/run/dshd.sock",)


def test_whoever_looks_where_the_daemon_is_not_looks_at_its_link_last() -> None:
    cron = find_places({"HOME": "/h"}, uid=1000, private=never)
    desktop = find_places({"HOME": "/h"}, uid=1000, private=always)
    assert desktop.sockets[-1] == cron.socket == cron.socket_link


def test_without_home_the_password_file_is_asked_and_without_that_it_is_said() -> None:
    assert find_places({}, private=never).state.endswith("/.local/state/dshd")
    with pytest.raises(NotConfigured, match="DSHD_HOME"):
        find_places({}, uid=NOBODY, private=never)


def test_a_directory_is_private_only_if_it_is_ours_and_closed(tmp_path: Path) -> None:
    uid, place = os.getuid(), tmp_path / "d"
    place.mkdir(mode=0o700)
    assert private_directory(str(place), uid)
    assert not private_directory(str(place), uid + 1)
    place.chmod(0o755)
    assert not private_directory(str(place), uid)
    assert private_directory(str(place), uid, loosest=0o755)
    place.chmod(0o777)
    assert not private_directory(str(place), uid, loosest=0o755)
    link = tmp_path / "l"
    link.symlink_to(place)
    assert not private_directory(str(link), uid, loosest=0o777)
    assert not private_directory(str(tmp_path / "absent"), uid)


# ---------------------------------------------------------------- whose socket


def test_what_is_said_goes_to_our_own_daemon_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
        sock.listen()
        paths.connect(path, 1).close()
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        with pytest.raises(NotConfigured, match="not you"):
            paths.connect(path, 1)


def test_a_socket_that_nobody_listens_at_refuses(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        paths.connect(str(tmp_path / ("d" * 150)), 1)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
    with pytest.raises(ConnectionRefusedError):
        paths.connect(str(tmp_path / "s"), 1)


# ---------------------------------------------------------------- environments

LOGIN = {
    "HOME": "/home/me", "USER": "me", "LANG": "de_DE.UTF-8", "LC_TIME": "C", "TZ": "Europe/Berlin",
    "XDG_RUNTIME_DIR": "/run/user/1000", "DSHD_HOME": "/d", "PATH": "/home/me/bin:/bin", "TERM": "xterm",
    "GIT_DIR": "/repo/.git", "GIT_INDEX_FILE": "x", "AWS_SECRET_ACCESS_KEY": "s", "OPENAI_API_KEY": "k",
    "FAST_API_KEY": "f", "SSH_AUTH_SOCK": "/a", "VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/conda",
    "CONDA_TOKEN": "t", "EDITOR": "vi", "LD_PRELOAD": "/evil.so", "PYTHONPATH": "/evil",
}  # fmt: skip


def test_the_daemon_keeps_what_is_listed_and_the_keys_that_routes_name() -> None:
    kept = daemon_environment(LOGIN, keys=["FAST_API_KEY"])
    assert set(kept) == {
        "HOME", "USER", "LANG", "LC_TIME", "TZ", "XDG_RUNTIME_DIR", "DSHD_HOME", "PATH", "OPENAI_API_KEY",
        "FAST_API_KEY",
    }  # fmt: skip
    assert kept["PATH"] == paths.DEFAULT_PATH


def test_its_path_and_its_lines_come_from_the_config() -> None:
    kept = daemon_environment(
        LOGIN, path="/opt/bin", lines={"HTTPS_PROXY": "p", "GIT_SSH": "x", "PATH": "/last"}
    )
    assert kept["PATH"] == "/last"
    assert kept["HTTPS_PROXY"] == "p"
    assert "GIT_SSH" not in kept
    assert daemon_environment(LOGIN, path="/opt/bin")["PATH"] == "/opt/bin"


@given(st.dictionaries(st.sampled_from([*LOGIN, "GIT_X"]), st.text(max_size=3)))
def test_cleaning_twice_is_cleaning_once(environ: dict[str, str]) -> None:
    once = daemon_environment(environ)
    assert daemon_environment(once) == once


def test_a_session_takes_what_its_tools_need_and_no_secret() -> None:
    assert set(session_environment(LOGIN)) == {
        "PATH", "LANG", "LC_TIME", "TZ", "SSH_AUTH_SOCK", "VIRTUAL_ENV", "CONDA_PREFIX", "EDITOR",
    }  # fmt: skip


def test_a_named_variable_is_taken_secret_or_not() -> None:
    taken = session_environment(LOGIN, ["FAST_API_KEY", "X=1=2", "Y="])
    assert (taken["FAST_API_KEY"], taken["X"], taken["Y"]) == ("f", "1=2", "")
    with pytest.raises(Invalid, match="NOPE is not set"):
        session_environment(LOGIN, ["NOPE"])


def test_secrets_are_known_by_their_names() -> None:
    names = ("API_KEY", "db_password", "GITHUB_TOKEN", "my_secret_x", "PASSWD", "HOME", "PATH")
    secret = set(filter(paths.looks_secret, names))
    assert secret == {"API_KEY", "db_password", "GITHUB_TOKEN", "my_secret_x", "PASSWD"}


def test_an_env_file_is_read_line_by_line() -> None:
    text = "# keys\n\nA=1\nexport B='two words'\nC=\"x=y\"\n D=\n"
    assert parse_env_file(text, "env") == {"A": "1", "B": "two words", "C": "x=y", "D": ""}


def test_a_bad_line_is_named_by_number_and_never_shown() -> None:
    with pytest.raises(NotConfigured) as caught:
        parse_env_file("A=1\nsk-verysecret\n", "env")
    assert str(caught.value).startswith("env:2:")
    assert "verysecret" not in str(caught.value)
