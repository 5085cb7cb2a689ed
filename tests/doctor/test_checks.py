"""From facts to lines: what is well, what a person may want otherwise, what keeps work from being done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from dshd.config import Config, Source, parse
from dshd.doctor import routes
from dshd.doctor.checks import examine, exit_of
from dshd.doctor.facts import Check, Facts, Folder, Running, Socket, Zone
from dshd.doctor.looking import file_system, folder, missing, socket, zone
from dshd.model.models import Models
from dshd.paths import find_places
from dshd.tools.sandbox import Found, detect_here

KEY = "sk-secret-0123456789"
PLACES = find_places({"DSHD_HOME": "/home/you/.dshd", "HOME": "/home/you"})


def models_of(config: Config, **env: str) -> Models:
    return Models(config.routes, default=config.model.default, env=env)


def facts(text: str = "", env: dict[str, str] | None = None, **changes: Any) -> Facts:
    config = parse(Source("config.toml", text))
    base = Facts(
        places=PLACES,
        home="/home/you",
        now=1_796_040_000_000,
        running=Running(version="1.2.0", pid=4121),
        config=config,
        models=models_of(config, **(env or {})),
        problem=None,
        written=True,
        state=Folder(path=PLACES.state, system="ext4", free=41 * 10**9),
        socket=Socket(path=PLACES.socket, there=True),
        zone=Zone(name="Europe/Berlin", offset="+01:00"),
        sandbox=Found("/usr/bin/bwrap", "", 5, True),
        sessions=[],
        spool={"waiting": 0, "refused": 0, "problem": None, "dir": "/s"},
    )
    return attrs.evolve(base, **changes)


def lines(name: str, *args: Any, **changes: Any) -> list[Check]:
    return [check for check in examine(facts(*args, **changes)) if check.check == name]


def line(name: str, *args: Any, **changes: Any) -> Check:
    (found,) = lines(name, *args, **changes)
    return found


def test_all_is_well() -> None:
    found = examine(
        facts('model = "fast"\n[routes.fast]\nadapter = "openai"\nbase_url = "http://127.0.0.1"\nmodel = "m"')
    )
    assert {check.level for check in found} == {"ok"}
    assert exit_of(found) == 0
    assert [check.check for check in found] == [
        "daemon", "config", "state", "socket", "sandbox", "fast", "sessions", "clock",
    ]  # fmt: skip
    assert all(check.fix is None for check in found)


def test_one_failure_is_enough_to_fail_and_warnings_are_not() -> None:
    warn, fail = Check("a", "warn", "x"), Check("b", "fail", "x")
    assert (exit_of([]), exit_of([warn]), exit_of([warn, fail])) == (0, 0, 1)


def test_every_line_that_is_not_well_says_what_to_type() -> None:
    bad = facts(
        '[routes.a]\nadapter = "openai"\nbase_url = "x"\n[tools]\nsandbox = "none"',
        running=None,
        state=Folder(path="/s", mine=False),
        sessions=[{"state": "damaged", "name": "a"}],
        spool={"waiting": 1, "refused": 1, "problem": None, "dir": "/s"},
        zone=Zone(name="Nowhere", offset="+00:00", known=False),
    )
    for check in examine(bad):
        assert (check.level == "ok") == (check.fix is None), check


@pytest.mark.parametrize(
    ("running", "level", "fix"),
    [
        (None, "warn", "dshctl daemon start"),
        (Running(version="1", pid=1, ends="no-unit"), "warn", "dshctl setup"),
        (Running(version="1", pid=1, ends="no-linger"), "warn", "loginctl enable-linger"),
        (Running(version="1", pid=1), "ok", None),
    ],
)
def test_a_daemon_that_may_not_last_is_told(running: Running | None, level: str, fix: str | None) -> None:
    check = line("daemon", running=running)
    assert (check.level, check.fix) == (level, fix)


@pytest.mark.parametrize(
    ("changes", "level", "word"),
    [
        ({"there": False}, "ok", "made at the first start"),
        ({"mine": False}, "fail", "somebody else"),
        ({"writable": False}, "fail", "can't be written"),
        ({"mode": 0o755}, "fail", "chmod 700"),
        ({"free": 1000}, "fail", "full"),
        ({"files": 0}, "fail", "full"),
        ({"files": 3}, "warn", "3 files"),
        ({"free": 500 << 20}, "warn", "little"),
        ({"system": "nfs4"}, "warn", "network"),
        ({"system": "fuse.sshfs"}, "warn", "network"),
        ({"system": "tmpfs"}, "warn", "reboot"),
    ],
)
def test_the_state_directory_and_its_disk(changes: dict[str, Any], level: str, word: str) -> None:
    check = line("state", state=Folder(**{"path": "/s", "system": "ext4", "free": 10**12, **changes}))
    assert check.level == level
    assert word in f"{check.what} {check.fix}"


WHY = "Permission denied"


@pytest.mark.parametrize(
    ("wish", "found", "level", "word"),
    [
        ("auto", Found("/usr/bin/bwrap", "", 0, False), "ok", "bubblewrap"),
        ("auto", Found(None, WHY, 5, True), "warn", WHY),
        ("auto", Found(None, WHY, 5, False), "warn", "UDP"),
        ("auto", Found(None, WHY, 0, False), "fail", WHY),
        ("landlock", Found("/usr/bin/bwrap", "", 5, True), "ok", "Landlock"),
        ("landlock", Found("/usr/bin/bwrap", "", 0, True), "fail", "no Landlock"),
        ("bwrap", Found(None, WHY, 5, True), "fail", WHY),
        ("none", Found("/usr/bin/bwrap", "", 5, True), "warn", "not confined"),
    ],
)
def test_the_sandbox_which_and_why(wish: str, found: Found, level: str, word: str) -> None:
    check = line("sandbox", f'[tools]\nsandbox = "{wish}"', sandbox=found)
    assert (check.level, word in check.what) == (level, True), check


# -- models

ROUTE = (
    '[routes.fast]\nadapter = "openai"\nbase_url = "https://h/v1"\nmodel = "m"\napi_key_env = "FAST_KEY"\n'
)


def test_a_key_is_said_to_be_there_and_never_shown(tmp_path: Path) -> None:
    there = facts(ROUTE, {"FAST_KEY": KEY})
    assert "key from FAST_KEY" in next(c for c in examine(there) if c.check == "fast").what
    assert KEY not in str([check.to_json() for check in examine(there)])
    (tmp_path / "k").write_text(KEY)
    by_file = ROUTE.replace("api_key_env", "api_key_file").replace("FAST_KEY", str(tmp_path / "k"))
    (tmp_path / "k").chmod(0o600)
    assert f"key from {tmp_path / 'k'}" in line("fast", by_file).what
    (tmp_path / "k").chmod(0o640)
    loose = line("fast", by_file)
    assert (loose.level, loose.fix) == ("warn", f"chmod 600 {tmp_path / 'k'}")


def test_a_missing_key_fails_where_it_is_needed_and_warns_elsewhere() -> None:
    chosen = line("fast", f'model = "fast"\n{ROUTE}')
    assert chosen == Check("fast", "fail", "FAST_KEY missing in the daemon", "dshctl key fast")
    assert line("fast", ROUTE).level == "warn"
    slow = 'model = "slow"\n[routes.slow]\nadapter = "openai"\nbase_url = "http://127.0.0.1"\nmodel = "m"\n'
    slow += 'fallback = ["fast"]\n'
    assert line("fast", slow + ROUTE).level == "fail"


def test_built_in_routes_are_shown_when_they_are_used() -> None:
    assert line("model").fix == "dshctl key deepseek"
    assert line("deepseek", env={"DEEPSEEK_API_KEY": KEY}).level == "ok"
    assert lines("anthropic", env={"DEEPSEEK_API_KEY": KEY}) == []
    assert line("anthropic", 'model = "anthropic"').what.startswith("ANTHROPIC_API_KEY missing")
    for ref in ("anthropic/claude-x", "anthropic"):
        assert line("anthropic", models=Models({}, default=ref)).fix == "dshctl key anthropic"
    assert line("nosuch", models=Models({}, default="nosuch")).level == "fail"


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://h/v1", None),
        ("http://127.0.0.1:8080/v1/", None),
        ("http://[::1]:80/v1", None),
        ("", "missing"),
        ("h/v1", "no http"),
        ("ftp://h/v1", "no http"),
        ("http:///v1", "no http"),
        ("http://h:99999/v1", "no http"),
        ("http://h:x/v1", "no http"),
        ("http://a b/v1", "no http"),
        ("http://[::1/v1", "no http"),
        ("https://h/v1/chat/completions", "leave out /chat/completions"),
        ("https://h/v1/messages/", "leave out /messages"),
        ("https://h/v1?key=x", "query"),
    ],
)
def test_an_address_is_looked_at_without_asking_it(url: str, word: str | None) -> None:
    found = routes.bad_address(url)
    assert found is None if word is None else word in (found or "")


def test_a_password_in_an_address_is_not_shown() -> None:
    text = ROUTE.replace("https://h", "https://me:pass@word@h")
    found = facts(text, {"FAST_KEY": KEY})
    assert "https://h/v1" in next(check for check in examine(found) if check.check == "fast").what
    assert found.models is not None
    assert "pass" not in str([examine(found), found.models.rows()])


def test_a_key_in_the_open_is_told() -> None:
    text = ROUTE.replace("https://h", "http://h")
    assert line("fast", text, {"FAST_KEY": KEY}).level == "warn"
    assert line("fast", text.replace("//h", "//localhost"), {"FAST_KEY": KEY}).level == "ok"


def test_the_policy_counts() -> None:
    text = 'model = "fast"\n' + ROUTE
    config = attrs.evolve(
        parse(Source("c", text)), policy=attrs.evolve(Config().policy, adapters=["rehearsal"])
    )
    (check,) = routes.checks(models_of(config, FAST_KEY=KEY), config)
    assert (check.level, "policy" in check.what) == ("fail", True)


# -- the rest


def test_a_config_that_is_wrong_or_changed_is_told() -> None:
    wrong = facts(config=None, models=None, problem="config.toml:7: routes.fast.max_token: unknown key")
    (check,) = [check for check in examine(wrong) if check.check == "config"]
    assert (check.level, check.fix) == ("fail", "dshctl config check")
    assert "goes on with what it has read" in check.what
    assert line("config", running=Running(version="1", pid=1, behind=True)).fix == "dshctl daemon reload"
    assert "defaults" in line("config", written=False).what


def test_sessions_that_need_a_person_are_counted_with_what_to_type() -> None:
    damaged: list[dict[str, Any]] = [{"state": "damaged", "name": "a b"}, {"state": "closed", "name": "c"}]
    assert line("sessions", sessions=damaged) == Check(
        "sessions", "fail", "1 open, 1 damaged, 0 parked", "dshctl fsck --repair 'a b'"
    )
    assert line("sessions", sessions=[{"state": "faulted", "name": "f"}]).fix == "dshctl reopen f"
    parked = line("sessions", sessions=[{"state": "parked", "name": "p", "parked": {"by": "abort"}}])
    assert (parked.level, parked.what) == ("ok", "1 open, 0 damaged, 1 parked")


def test_a_clock_that_went_back_and_a_zone_that_is_none_are_told() -> None:
    later = [{"state": "idle", "active_at": 1_796_040_000_000 + 3_600_000}]
    assert "behind" in line("clock", sessions=later).what
    assert line("clock", zone=Zone(name="Foo/Bar", offset="+00:00", known=False)).level == "warn"


def test_a_socket_that_is_gone_or_open_to_others_fails() -> None:
    assert line("socket", socket=Socket(path="/r/s", there=False)).level == "fail"
    assert line("socket", socket=Socket(path="/r/s", there=True, mode=0o666)).fix == "chmod 600 /r/s"
    assert lines("socket", socket=Socket(path="/r/s", there=False), running=None) == []


# -- looking


def test_a_directory_and_its_disk_are_looked_at(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    found = folder(str(tmp_path))
    assert (found.there, found.mine, found.mode, found.writable) == (True, True, 0o750, True)
    assert found.free > 0
    assert found.system == file_system(str(tmp_path)) != "unknown"
    assert not folder(str(tmp_path / "no")).there
    assert file_system("/proc") == "proc"


def test_a_file_where_the_socket_should_be_is_none(tmp_path: Path) -> None:
    (tmp_path / "s").touch()
    assert not socket(str(tmp_path / "s")).there
    assert not socket(str(tmp_path / "t")).there


@pytest.mark.parametrize(
    ("tz", "name", "known"),
    [
        ("UTC", "UTC", True),
        (":UTC", "UTC", True),
        ("Foo/Bar", "Foo/Bar", False),
        ("CET-1CEST", "CET-1CEST", True),
    ],
)
def test_a_zone_by_its_name(tz: str, name: str, known: bool) -> None:
    assert (zone({"TZ": tz}).name, zone({"TZ": tz}).known) == (name, known)
    assert zone({}).name


def test_programs_of_hooks_that_are_not_there_are_told(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    (tmp_path / "there").chmod(0o755)
    hooks = [
        ["there"],
        ["gone", "x"],
        f"{tmp_path}/there x",
        "/no/such y",
        "test -e /no/such",
        "X=1 /no/such",
    ]
    text = "".join(f'[[hooks]]\nevent = "pre_step"\ncommand = {hook!r}\n' for hook in hooks)
    config = parse(Source("c", f'{text}[notify]\ncommand = ["notify-nobody"]\n'))
    found = list(missing(config, str(tmp_path)))
    assert found == ["pre_step hook: gone", "pre_step hook: /no/such", "[notify]: notify-nobody"]
    assert [check.level for check in lines("hooks", missing=found)] == ["warn"] * 3


def test_a_sandbox_is_tried_without_a_daemon() -> None:
    found = detect_here()
    assert found.bwrap is not None or found.why
