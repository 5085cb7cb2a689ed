"""Routes, and which one a new session gets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from dshd.errors import NotConfigured
from dshd.model.credentials import store_key
from dshd.model.errors import ModelError
from dshd.model.models import Models
from dshd.model.routes import BUILT_IN, Choice, env_names, find, ollama_url, route_of, table_of
from tests.model.server import Server, answer

NO_OLLAMA = {"OLLAMA_HOST": "127.0.0.1:1"}


async def choose(
    explicit: str | None = None, *, terminal: bool = False, default: str | None = None,
    routes: dict[str, object] | None = None, config_dir: Path | None = None, **env: str,
) -> Choice:  # fmt: skip
    models = Models(routes, default=default, env={**NO_OLLAMA, **env}, config_dir=config_dir)
    try:
        with trio.fail_after(10):
            return await models.choose(explicit, client_is_terminal=terminal)
    finally:
        await models.aclose()


MINE: dict[str, object] = {"mine": {"adapter": "openai", "base_url": "http://x/v1", "model": "m"}}


async def test_what_is_said_comes_before_what_is_configured_before_keys() -> None:
    said = await choose("rehearsal", default="mine", routes=MINE, DEEPSEEK_API_KEY="k")
    assert said == Choice("rehearsal", "--model")
    assert (await choose(default="mine", routes=MINE, DEEPSEEK_API_KEY="k")) == Choice("mine", "config")


async def test_the_first_built_in_route_with_a_key_is_taken(tmp_path: Path) -> None:
    assert (await choose(OPENAI_API_KEY="k", ANTHROPIC_API_KEY="k")).ref == "anthropic"
    store_key(tmp_path, "deepseek", "sk-stored")
    got = await choose(config_dir=tmp_path, OPENAI_API_KEY="k", ANTHROPIC_API_KEY="k")
    assert got.ref == "deepseek"
    assert "key" in got.why


@pytest.mark.parametrize("name", ["mine", "ollama"])
async def test_a_rehearsal_by_another_name_needs_neither_a_model_nor_a_server(name: str) -> None:
    routes: dict[str, object] = {name: {"adapter": "rehearsal", "script": "s"}}
    assert await choose(name, routes=routes) == Choice(name, "--model")
    assert await choose(default=name, routes=routes) == Choice(name, "config")
    call = Models(routes).prepare_call(name)
    assert (call.rehearsal, call.route, call.model, call.script) == (True, name, "rehearsal", "s")


async def test_a_key_that_is_blank_is_none() -> None:
    with pytest.raises(NotConfigured):
        await choose(DEEPSEEK_API_KEY="  ")


async def test_without_anything_a_terminal_gets_the_rehearsal_and_others_a_refusal() -> None:
    assert (await choose(terminal=True)).ref == "rehearsal"
    assert await choose("rehearsal") == await choose(terminal=True)  # where nothing is set up: that is said
    assert (await choose("rehearsal", DEEPSEEK_API_KEY="k")).why == "--model"
    with pytest.raises(NotConfigured) as caught:
        await choose()
    assert caught.value.exit_status == 9
    assert "rehearsal" in caught.value.hint


async def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    with pytest.raises(NotConfigured, match=r'no model "fsat".*mine'):
        await choose("fsat", routes=MINE)


async def test_an_address_alone_selects_openai_without_a_key_with_the_first_of_its_models(
    server: Server,
) -> None:
    server.plays.append(answer(200, b'{"object":"list","data":[{"id":"org/first"},{"id":"second"}]}'))
    got = await choose(OPENAI_BASE_URL=server.url)
    assert got.ref == "openai/org/first"
    assert server.requests[0].path == "/v1/models"
    call = Models(env={"OPENAI_BASE_URL": server.url}).prepare_call(got.ref)
    assert (call.model, call.base_url, call.window) == ("org/first", server.url, None)


async def test_an_address_that_lists_nothing_says_so(server: Server) -> None:
    server.plays.append(answer(200, b'{"data":[]}'))
    with pytest.raises(NotConfigured, match="lists no model"):
        await choose(OPENAI_BASE_URL=server.url)


async def test_a_local_ollama_is_asked_for_the_newest_model_that_can_call_tools(server: Server) -> None:
    server.plays.extend(
        [
            answer(
                200,
                b'{"models":[{"name":"old","modified_at":"2026-01"},{"name":"new","modified_at":"2026-02"}]}',
            ),
            answer(200, b'{"capabilities":["completion"]}'),
            answer(200, b'{"capabilities":["completion","tools"]}'),
        ]
    )
    got = await choose(OLLAMA_HOST=server.url.removesuffix("/v1"))
    assert got.ref == "ollama/old"
    assert [request.path for request in server.requests] == ["/api/tags", "/api/show", "/api/show"]


async def test_an_ollama_without_such_a_model_is_none(server: Server) -> None:
    server.plays.append(answer(200, b'{"models":[]}'))
    assert (await choose(terminal=True, OLLAMA_HOST=server.url.removesuffix("/v1"))).ref == "rehearsal"


async def test_an_ollama_that_was_asked_for_and_has_no_such_model_is_told(server: Server) -> None:
    server.plays.append(answer(200, b'{"models":[]}'))
    with pytest.raises(NotConfigured, match="can call tools"):
        await choose("ollama", terminal=True, OLLAMA_HOST=server.url.removesuffix("/v1"))
    assert (await choose("ollama/any")).ref == "ollama/any"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:9", "http://127.0.0.1:9/v1"),
        ("https://box:1/", "https://box:1/v1"),
        ("[::1]", "http://[::1]:11434/v1"),
        ("[::1]:5", "http://[::1]:5/v1"),
    ],
)
def test_ollamas_address_may_leave_things_out(host: str, url: str) -> None:
    assert ollama_url(host) == url


def test_a_configured_table_changes_single_fields_of_a_built_in_route() -> None:
    got = route_of("deepseek", {"model": "deepseek-v4-pro"})
    assert (got.model, got.base_url, got.key_required) == (
        "deepseek-v4-pro",
        BUILT_IN["deepseek"].base_url,
        True,
    )


def test_a_route_needs_a_key_if_it_names_one_and_a_moved_one_does_not() -> None:
    assert route_of("x", {"adapter": "openai", "api_key_env": "K"}).key_required
    assert not route_of("x", {"adapter": "openai"}).key_required
    assert not route_of("openai", {"base_url": "http://x"}).key_required
    assert route_of("openai", {"base_url": "http://x", "api_key_file": "f"}).key_required


def test_a_configured_address_wins_over_the_variable() -> None:
    env = {"OPENAI_BASE_URL": "http://env/v1"}
    assert (
        Models({"openai": {"base_url": "http://config"}}, env=env).routes["openai"].base_url
        == "http://config"
    )
    assert Models({}, env=env).routes["openai"].base_url == "http://env/v1"
    assert Models({"openai": {"model": "m"}}, env=env).routes["openai"].model == "m"


def test_the_environment_is_looked_at_when_it_is_needed() -> None:
    env: dict[str, str] = {}
    models = Models(env=env)
    env.update(OPENAI_BASE_URL="http://env/v1", DEEPSEEK_API_KEY="k")
    assert models.routes["openai"].base_url == "http://env/v1"
    assert models.prepare_call("deepseek").credentials.present()


def test_the_variables_that_routes_read_are_known() -> None:
    routes = table_of({"x": {"adapter": "openai", "api_key_env": "X_KEY"}})
    assert env_names(routes) == {
        "X_KEY", "DEEPSEEK_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST",
    }  # fmt: skip


def test_a_reference_may_name_another_model_of_a_route() -> None:
    routes = table_of({})
    found = find("ollama/qwen3:8b", routes)
    assert found is not None
    assert (found.name, found.model) == ("ollama", "qwen3:8b")
    assert find("nothing/x", routes) is None
    assert find("ollama/", routes) is None


@pytest.mark.parametrize(
    ("ref", "table", "code"),
    [
        ("nope", {}, "NO_ADAPTER"),
        ("x", {"adapter": "nosuch", "model": "m"}, "NO_ADAPTER"),
        ("x", {"adapter": "openai"}, "NO_ADAPTER"),
        ("x", {"adapter": "openai", "model": "m", "api_key_env": "X_KEY"}, "MISSING_CREDENTIAL"),
        ("deepseek", {}, "MISSING_CREDENTIAL"),
    ],
)
def test_a_call_that_cannot_be_made_is_refused_when_it_is_prepared(
    ref: str, table: dict[str, Any], code: str
) -> None:
    with pytest.raises(ModelError) as caught:
        Models({"x": table}).prepare_call(ref)
    assert caught.value.code == code


def test_a_missing_key_is_told_with_the_command_that_stores_one() -> None:
    with pytest.raises(ModelError, match='route "x" needs X_KEY') as caught:
        Models({"x": {"adapter": "openai", "model": "m", "api_key_env": "X_KEY"}}).prepare_call("x")
    assert caught.value.hint == "dshctl key x"


def test_a_wrong_flag_is_refused_with_the_nearest_known_one_and_a_reload_keeps_the_old_routes() -> None:
    models = Models(MINE)
    with pytest.raises(NotConfigured, match=r"routes\.y\.profile\.reasoning_bakc.*reasoning_back"):
        models.configure({"y": {"adapter": "openai", "profile": {"reasoning_bakc": "always"}}})
    assert "mine" in models.routes


def test_a_call_keeps_what_it_was_prepared_with() -> None:
    models = Models(MINE)
    call = models.prepare_call("mine")
    models.configure({"mine": {"adapter": "openai", "base_url": "http://y", "model": "n"}}, patience=1.0)
    assert (call.base_url, call.model, call.patience) == ("http://x/v1", "m", 6 * 3600.0)
    assert models.prepare_call("mine").model == "n"


def test_rows_have_no_secret_in_them() -> None:
    rows = Models(MINE, env={"DEEPSEEK_API_KEY": "sk-secret"}).rows()
    assert "sk-secret" not in repr(rows)
    assert {row["route"]: row["key"] for row in rows}["deepseek"]


def test_the_daemon_starts_without_an_http_library() -> None:
    code = "import sys, dshd.model.models as m; m.Models(); print([n for n in sys.modules if 'http' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "httpx" not in done.stdout
    assert "httpcore" not in done.stdout
