"""A line for each route that was configured or would be used: its address, and whether there is a key.

A fault of the route that new sessions get, or of one that it falls back on, is a failure; of another one, a
warning. Nothing is asked of servers, and no command for a key is run.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from urllib.parse import urlsplit

from dshd.config import Config
from dshd.doctor.facts import Check, Level
from dshd.model.models import Models
from dshd.model.routes import Route, find
from dshd.model.transport import shown

ENDPOINTS = ("/chat/completions", "/completions", "/messages", "/models")
LOCAL = ("localhost", "127.0.0.1", "::1")


def checks(models: Models, config: Config) -> Iterator[Check]:
    """In the order of the config, the chosen one first."""
    chosen = models.likely()
    if chosen is None:
        yield from _none_chosen(models)
    used = _used(models, chosen)
    for name in dict.fromkeys([*used, *config.routes]):
        yield _check(models, config, name, used=name in used)


def _none_chosen(models: Models) -> Iterator[Check]:
    what = "none is set up; new sessions get a local Ollama's, if there is one"
    yield Check("model", "warn", what, "dshctl key deepseek")


def _used(models: Models, ref: str | None) -> list[str]:
    """Names of routes: the chosen one, and those that it falls back on."""
    if ref is None:
        return []
    route = find(ref, models.routes)
    return [ref.split("/")[0] if route is not None else ref, *(route.fallback if route is not None else ())]


def _check(models: Models, config: Config, name: str, *, used: bool) -> Check:
    worst: Level = "fail" if used else "warn"
    route = find(name, models.routes)
    if route is None:
        return Check(name, worst, "there is no such route", "dshctl models")
    allowed = config.policy.adapters
    if allowed is not None and route.adapter not in allowed:
        return Check(name, worst, f"the policy does not allow adapter {route.adapter}", "dshctl models")
    if route.adapter == "rehearsal":
        return Check(name, "ok", "the rehearsal model, no AI")
    wrong = bad_address(route.base_url)
    if wrong is not None:
        return Check(name, worst, f"base_url {wrong}", "man dshd-config, routes")
    return _key(models, route, worst)


def _key(models: Models, route: Route, worst: Level) -> Check:
    where = models.credentials(route).where()
    what = f"{route.model or 'the first model that it lists'}, {shown(route.base_url)}"
    if where is None and route.key_required:
        needs = route.api_key_env or route.api_key_file or "a key"
        return Check(route.name, worst, f"{needs} missing in the daemon", f"dshctl key {route.name}")
    if where is None:
        return Check(route.name, "ok", f"{what}, without a key")
    if _in_the_open(route.base_url):
        return Check(route.name, "warn", f"{what}: the key goes over the network unencrypted", "https://")
    loose = models.credentials(route).open_to_others()
    if loose is not None:
        what = f"{what}, key from {loose}, which others can read"
        return Check(route.name, "warn", what, f"chmod 600 {shlex.quote(loose)}")
    return Check(route.name, "ok", f"{what}, key from {where}")


def bad_address(url: str) -> str | None:
    """What is wrong with a base URL, None if it may be right."""
    if not url:
        return "is missing"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(char.isspace() for char in url):
        return "is no http:// or https:// address"
    if parts.query or parts.fragment:
        return "has a query or a fragment"
    ends = next((end for end in ENDPOINTS if parts.path.rstrip("/").endswith(end)), None)
    return f"goes too far: leave out {ends}" if ends else None


def _in_the_open(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in LOCAL
