"""Asking servers which models they have. Used when a session is created, never during a turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dshd.model.credentials import Credentials
from dshd.model.errors import ModelError
from dshd.model.http import Http
from dshd.model.routes import Route

PATIENCE = 2.0  # s for each question; a local server that is there answers at once
REMOTE_PATIENCE = 15.0


async def first_model(http: Http, route: Route, credentials: Credentials) -> str:
    """The first of the ``/models`` of ``route``. Raises `ModelError`."""
    url, headers = _question(route, await credentials.key())
    names = list(model_names(await http.get_json(url, headers=headers, timeout=REMOTE_PATIENCE)))
    if not names:
        raise ModelError("INVALID_REQUEST", f"{url} lists no model")
    return names[0]


def _question(route: Route, key: str | None) -> tuple[str, dict[str, str]]:
    """Where the models are listed, and the headers to ask with."""
    if route.adapter == "anthropic":
        from dshd.model import anthropic

        return anthropic.address(route.base_url, "models"), anthropic.key_headers(key)
    return route.base_url.rstrip("/") + "/models", {"authorization": f"Bearer {key}"} if key else {}


def model_names(answer: Any) -> Iterator[str]:
    """The ids in an answer of ``/models``."""
    rows = answer.get("data") or answer.get("models") if isinstance(answer, dict) else answer
    for row in rows if isinstance(rows, list) else []:
        name = row.get("id") or row.get("name") if isinstance(row, dict) else row
        if isinstance(name, str) and name:
            yield name


async def ollama_with_tools(http: Http, base_url: str) -> str | None:
    """The newest model of a local Ollama that can call tools; None if there is no such thing."""
    root = base_url.rstrip("/").removesuffix("/v1")
    try:
        listing = await http.get_json(f"{root}/api/tags", headers={}, timeout=PATIENCE)
        for name in newest_first(listing):
            shown = await http.post_json(f"{root}/api/show", {"model": name}, timeout=PATIENCE)
            if isinstance(shown, dict) and "tools" in (shown.get("capabilities") or []):
                return name
    except ModelError:
        return None
    return None


def newest_first(listing: Any) -> list[str]:
    """Names in an answer of Ollama's ``/api/tags``, the one changed last first."""
    rows = listing.get("models") if isinstance(listing, dict) else None
    models = [row for row in rows or [] if isinstance(row, dict) and isinstance(row.get("name"), str)]
    models.sort(key=lambda row: str(row.get("modified_at", "")), reverse=True)
    return [row["name"] for row in models]
