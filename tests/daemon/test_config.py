"""The config: what it means, what is wrong with it, and on which line."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dshd import config
from dshd.config import Config, Source, find_line, load, parse
from dshd.errors import NotConfigured
from dshd.paths import Places, find_places

WHOLE = """\
model = "fast"                       # default route

[routes.fast]
adapter = "openai"
base_url = "http://127.0.0.1:8080/v1"
model = "some-model"
api_key_env = "FAST_API_KEY"
context_window = 65536
max_tokens = 4096
fallback = ["slow"]
price = { input = 0.3, cached = 0.03, output = 1.2, currency = "USD" }

[routes.slow]
adapter = "openai"
api_key_command = ["pass", "slow"]
price = { input = 1, output = 2 }

[routes.rehearsal]
script = "/tmp/script"

[daemon]
path = "/opt/bin:/bin"
idle_exit = "1h"
shutdown_grace = 5
websocket = "[::1]:8765"
origins = ["http://localhost:5173"]

[driver]
max_running = 3

[inbox]
max_pending = 10

[sessions]
mode = "read-only"
ask = "deny"
net = true
keep_run = "7d"

[budget]
turn_steps = 50
turn_cost = 5.0

[tools]
bash_max = "10m"
sandbox = "none"
fetch = true

[approval]
expires = "1h30m"

[notify]
command = ["notify-send", "dshd"]

[recovery]
continue_interrupted = true

[[rules]]
action = "deny"
tool = "bash"
command = "rm *"

[[rules]]
action = "allow"

[[hooks]]
event = "turn_end"
command = "date"
on_failure = "block"
timeout = "3s"

[plugins.rate_limit]
per_minute = 20

[mcp.files]
url = "http://127.0.0.1:1/"
"""


def user(text: str) -> Config:
    return parse(Source("config.toml", text))


def refusal(text: str, system: str | None = None) -> str:
    with pytest.raises(NotConfigured) as caught:
        parse(Source("config.toml", text), Source("/etc/xdg/dshd/config.toml", system) if system else None)
    assert caught.value.exit_status == 9
    return str(caught.value)


def test_nothing_is_a_config() -> None:
    found = parse(None)
    assert found == Config()
    assert found.daemon.shutdown_grace == 10
    assert found.model.patience == 6 * 3600
    assert found.budget.turn_steps == 200
    assert found.sessions.mode == "workspace"


def test_every_section_is_read() -> None:
    found = user(WHOLE)
    assert found.model.default == "fast"
    fast = found.routes["fast"]
    assert (fast.max_tokens, fast.fallback, fast.price and fast.price.output) == (4096, ["slow"], 1.2)
    assert found.routes["slow"].api_key_command == ["pass", "slow"]
    assert found.routes["rehearsal"].given() == {"script": "/tmp/script"}
    assert (found.daemon.idle_exit, found.daemon.shutdown_grace) == (3600.0, 5.0)
    assert (found.daemon.websocket, found.daemon.origins) == (("::1", 8765), ["http://localhost:5173"])
    assert found.approval.expires == 5400.0
    assert [rule.action for rule in found.rules] == ["deny", "allow"]
    assert found.hooks[0].timeout == 3.0
    assert found.plugins == {"rate_limit": {"per_minute": 20}}
    assert found.key_variables() == ("FAST_API_KEY",)


def test_the_default_route_may_stand_in_its_section() -> None:
    found = user('[model]\ndefault = "openai"\npatience = 0\n')
    assert (found.model.default, found.model.patience) == ("openai", 0.0)
    assert "a value or a table, not both" in refusal('tools = "x"\n[tools]\nfetch = true\n')


def test_the_default_route_and_the_table_of_its_name_stand_in_one_file() -> None:
    both = user('# a\nmodel = "openai"   # mine\n\n[ model ]\npatience = "1s"\n')
    assert (both.model.default, both.model.patience) == ("openai", 1.0)
    assert user('"model" = "openai"\n[model]\n').model.default == "openai"
    assert refusal('model = "openai"\n[model]\npatienc = 0\n').startswith("config.toml:3: model.patienc: ")
    assert "model.default" in refusal("model = 5\n[model]\npatience = 0\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[routes.fast]\nadapter = 'openai'\n\n\n\n\nmax_token = 1",
         "config.toml:7: routes.fast.max_token: unknown key; did you mean max_tokens?"),
        ("\n[driver]\n[bud", "config.toml:3: Expected ']' at the end of a table declaration"),
        ("\nmodel = 'x\n", "config.toml:2: Expected"),
        ('a = """\n\n', "config.toml:1: Unterminated string"),
        (f"a = {'9' * 5000}", "config.toml: Exceeds the limit"),
        (f"a = {'[' * 100_000}", "config.toml: maximum recursion depth"),
        ("modle = 'x'", "config.toml:1: modle: unknown key; did you mean model?"),
        ("[deamon]", "config.toml:1: deamon: unknown key; did you mean daemon?"),
        ("[sessions]\nnet = 'on'", "config.toml:2: sessions.net: expected a boolean, got a string"),
        ("[daemon]\nwebsocket = '0.0.0.0:80'", "config.toml:2: daemon.websocket: must be on this machine"),
        ("[daemon]\nwebsocket = 'localhost:80'", "config.toml:2: daemon.websocket: expected an address"),
        ("[daemon]\nwebsocket = '127.0.0.1:0'", "config.toml:2: daemon.websocket: the port is a number from"),
        ("[daemon]\nwebsocket = 8765", "config.toml:2: daemon.websocket: expected an address and a port"),
        ("[daemon]\norigins = ['*']", "config.toml:2: daemon.origins[0]: expected an origin"),
        ("[driver]\nmax_running = 0", "config.toml:2: driver.max_running: must be more than 0"),
        ("[budget]\nturn_cost = -1", "config.toml:2: budget.turn_cost: must not be negative"),
        ("[budget]\nturn_cost = nan", "config.toml:2: budget.turn_cost: expected a finite number"),
        ("[tools]\nbash_max = '1 h'", 'config.toml:2: tools.bash_max: "1 h" is not a duration; '),
        (f"[tools]\nbash_max = 1{'0' * 400}", "config.toml:2: tools.bash_max: expected a duration, like"),
        ("[tools]\nbash_max = true", "config.toml:2: tools.bash_max: expected a duration, like 90s or 1h30m"),
        ("model = 5", "config.toml:1: model: expected the name of a route"),
        ("model = 'fats'\n[routes.fast]\nadapter='openai'",
         'config.toml:1: model: no route "fats"; did you mean fast?'),
        ("[routes.fast]\nbase_url = 'x'", "config.toml:1: routes.fast.adapter: missing"),
        ("[routes.fast]\nadapter = 'opnai'",
         "config.toml:2: routes.fast.adapter: expected openai or anthropic or rehearsal, got 'opnai'"),
        ("[routes.fast]\nadapter='openai'\nfallback = [\n  'slow',\n]",
         'config.toml:3: routes.fast.fallback[0]: no route "slow"'),
        ("[routes.fast]\nadapter='openai'\nprice = { input = 1 }",
         "config.toml:3: routes.fast.price.output: missing"),
        ("[[rules]]\naction = 'allow'\n[[rules]]\naction = 'maybe'",
         "config.toml:4: rules[1].action: expected allow or ask or deny, got 'maybe'"),
        ("[[hooks]]\nevent = 'turn_end'\ncommand = []", "config.toml:3: hooks[0].command: must not be empty"),
        ("[mcp.x]", "config.toml:1: mcp.x: needs either command or url"),
        ('[mcp.x]\nurl = "ftp://x"', "config.toml:2: mcp.x.url: expected an address that begins with http://"),
        ("[policy]\nmax_mode = 'full'", "config.toml:1: policy: only the system's file may hold it"),
        ("a = \n", "config.toml:1: Invalid value"),
        ("[x]\n[x]\n", "config.toml:2: Cannot declare ('x',) twice"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(text: str, says: str) -> None:
    assert refusal(text).startswith(says)


def test_a_cost_limit_needs_prices() -> None:
    route = "[routes.fast]\nadapter = 'openai'\n"
    assert refusal(f"{route}[budget]\nday_cost = 1") == (
        'config.toml:4: budget.day_cost: a cost limit needs prices, and route "fast" has none'
    )
    assert user(f"{route}price = {{ input = 1, output = 1 }}\n[budget]\nday_cost = 1").budget.day_cost == 1.0
    assert user("[routes.rehearsal]\nscript = 'x'\n[budget]\nday_cost = 1").budget.day_cost == 1.0
    assert 'route "openai" has none' in refusal("model = 'openai'\n[budget]\nday_cost = 1")


def test_servers_without_the_package_for_them_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert Config().warnings() == []
    assert user("[mcp.x]\nurl = 'http://x'\n").warnings() == [
        "[mcp] is set, and the package for it is not installed: pip install 'dshd[mcp]'"
    ]


# ---------------------------------------------------------------- two files

SYSTEM = """\
[policy]
max_mode = "workspace"
adapters = ["openai", "rehearsal"]

[routes.company]
adapter = "openai"
base_url = "http://llm/"
max_tokens = 100

[[rules]]
action = "deny"
"""


def both(text: str, system: str = SYSTEM) -> Config:
    return parse(Source("config.toml", text), Source("/etc/xdg/dshd/config.toml", system))


def test_the_users_file_lies_over_the_systems() -> None:
    found = both("model = 'company'\n[routes.company]\nmax_tokens = 5\n[[rules]]\naction = 'allow'")
    assert (found.routes["company"].base_url, found.routes["company"].max_tokens) == ("http://llm/", 5)
    assert [rule.action for rule in found.rules] == ["deny", "allow"]
    assert found.policy.max_mode == "workspace"


def test_the_policy_limits_modes_and_adapters() -> None:
    found = both("")
    assert [found.within_policy(mode) for mode in ("read-only", "workspace", "full")] == [
        "read-only", "workspace", "workspace",
    ]  # fmt: skip
    assert refusal("[routes.x]\nadapter = 'anthropic'", SYSTEM) == (
        "config.toml:2: routes.x.adapter: the policy allows only openai, rehearsal"
    )


def test_an_error_names_the_file_that_it_is_in() -> None:
    assert refusal("model = 'company'", "[polcy]").startswith("/etc/xdg/dshd/config.toml:1: polcy:")
    assert refusal("[driver]\nmax_running = 'x'", SYSTEM).startswith("config.toml:2: driver.max_running:")


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("model",), 1),
        (("routes", "fast", "max_tokens"), 9),
        (("routes", "fast", "price", "input"), 11),
        (("routes", "slow"), 13),
        (("rules", 1, "action"), 64),
        (("rules", 1), 63),
        (("nowhere",), None),
    ],
)
def test_a_path_is_found_in_the_text(path: tuple[Any, ...], line: int | None) -> None:
    assert find_line(WHOLE, path) == line


def test_quoted_and_dotted_keys_are_found_too() -> None:
    text = 'routes."a.b".adapter = "openai"\n[ routes . "c d" ]\n"max_tokens" = 5\n'
    assert find_line(text, ("routes", "a.b", "adapter")) == 1
    assert find_line(text, ("routes", "c d", "max_tokens")) == 3


# ---------------------------------------------------------------- files


def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "config.toml"), str(tmp_path / "etc.toml"), str(tmp_path / "state"), ("/x",))


def test_missing_files_are_empty_ones_unless_named(tmp_path: Path) -> None:
    assert load(places(tmp_path)) == Config()
    with pytest.raises(NotConfigured, match=rf"no config file {tmp_path}/config\.toml"):
        load(places(tmp_path)._replace(config_named=True))
    (tmp_path / "etc.toml").write_text("[driver]\nmax_running = 2\n")
    assert load(places(tmp_path)).driver.max_running == 2


@pytest.mark.parametrize(
    ("environ", "option", "named"),
    [
        ({}, None, False),
        ({"DSHD_CONFIG": "/x"}, None, True),
        ({"DSHD_CONFIG": ""}, None, False),
        ({}, "x", True),
    ],
)
def test_a_config_is_named_by_option_or_environment(
    environ: dict[str, str], option: str | None, named: bool
) -> None:
    assert find_places({"DSHD_HOME": "/h", **environ}, config=option).config_named is named


def test_an_error_has_the_whole_path_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("\n[driver]\nmax_runnin = 2\n")
    with pytest.raises(NotConfigured) as caught:
        load(places(tmp_path))
    assert caught.value.message.startswith(f"{tmp_path}/config.toml:3: driver.max_runnin: unknown key")


def test_a_file_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(NotConfigured, match="can't read"):
        load(places(tmp_path))


def test_a_pipe_or_a_file_without_end_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    os.mkfifo(config)
    with pytest.raises(NotConfigured, match="it is no regular file"):
        load(places(tmp_path))
    for content in ("/dev/zero", "/dev/null"):
        config.unlink()
        config.symlink_to(content)
        if content == "/dev/null":
            assert load(places(tmp_path)) == Config()
        else:
            with pytest.raises(NotConfigured, match="it is larger than 1 MiB"):
                load(places(tmp_path))


def test_a_file_that_is_not_utf8_is_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"# fine\n# f\xfcr\n")
    with pytest.raises(NotConfigured, match=r"config\.toml:2: not UTF-8"):
        load(places(tmp_path))


def test_the_locale_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda do_setlocale=True: "ascii")
    (tmp_path / "config.toml").write_text("[routes.'für']\nadapter = 'openai'\n", encoding="utf-8")
    assert "für" in load(places(tmp_path)).routes


def test_the_env_file_adds_to_the_environment_and_must_be_private(tmp_path: Path) -> None:
    env = tmp_path / "env"
    env.write_text("HTTPS_PROXY=http://proxy\n")
    env.chmod(0o600)
    found = config.environment(Config(), places(tmp_path), {"HOME": "/h", "GIT_DIR": "x"})
    assert (found["HTTPS_PROXY"], found["HOME"]) == ("http://proxy", "/h")
    assert "GIT_DIR" not in found
    env.chmod(0o640)
    with pytest.raises(NotConfigured) as caught:
        config.environment(Config(), places(tmp_path), os.environ)
    assert caught.value.hint == f"chmod 600 {env}"


def test_an_event_that_other_agents_call_so_is_named_by_ours() -> None:
    for theirs, said in (("PreToolUse", "here it is pre_tool"), ("pre_tol", "did you mean pre_tool?")):
        with pytest.raises(NotConfigured, match=re.escape(said)):
            user(f"[[hooks]]\nevent = '{theirs}'\ncommand = 'x'")


def test_a_hook_that_is_to_block_where_nothing_can_be_is_told_of() -> None:
    (warning,) = user("[[hooks]]\nevent = 'turn_end'\ncommand = 'x'\non_failure = 'block'").warnings()
    assert warning == "hooks[0].on_failure is block, and turn_end has nothing to block"


def test_a_hook_has_a_time_limit() -> None:
    with pytest.raises(NotConfigured, match=r"timeout: must be more than 0"):
        user("[[hooks]]\nevent = 'turn_end'\ncommand = 'x'\ntimeout = 0")
