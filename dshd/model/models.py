"""The room's front: routes in, prepared calls out. Holds the one HTTP client of the daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import attrs

from dshd.errors import NotConfigured
from dshd.model.adapter import Adapter, PreparedCall
from dshd.model.credentials import Credentials
from dshd.model.discovery import first_model, ollama_with_tools
from dshd.model.errors import ModelError
from dshd.model.http import Http
from dshd.model.profiles import Profile, profile_for
from dshd.model.request import ModelRequest
from dshd.model.routes import Ask, Choice, Route, choose_route, find, moved, rehearsal_or_nothing, table_of
from dshd.model.transport import place, shown


def _openai(http: Http) -> Adapter:
    from dshd.model.openai import OpenAI

    return OpenAI(http)


def _anthropic(http: Http) -> Adapter:
    from dshd.model.anthropic import Anthropic

    return Anthropic(http)


def _rehearsal(http: Http) -> Adapter:
    from dshd.model.rehearsal import Rehearsal

    return Rehearsal()


ADAPTERS: Final[Mapping[str, Callable[[Http], Adapter]]] = {
    "rehearsal": _rehearsal, "openai": _openai, "anthropic": _anthropic,
}  # fmt: skip


class Models:
    """``routes``: the config's ``[routes]`` (name to table); ``default``: its ``model``.

    ``env`` is the daemon's environment, looked at anew for each call (a reload changes it in place);
    ``config_dir`` holds stored keys; ``idle_timeout`` and ``patience`` in s. Making one imports no HTTP
    library and opens nothing.
    """

    def __init__(
        self,
        routes: Mapping[str, object] | None = None,
        *,
        default: str | None = None,
        env: Mapping[str, str] | None = None,
        config_dir: Path | None = None,
        idle_timeout: float = 300.0,
        patience: float = 6 * 3600.0,
    ) -> None:
        self._env: Mapping[str, str] = {} if env is None else env
        self._config_dir = config_dir
        self._http = Http()
        self._adapters: dict[str, Adapter] = {}
        self.configure(routes, default=default, idle_timeout=idle_timeout, patience=patience)

    def configure(
        self,
        routes: Mapping[str, object] | None,
        *,
        default: str | None = None,
        idle_timeout: float = 300.0,
        patience: float = 6 * 3600.0,
    ) -> None:
        """Take a reloaded config. Calls that are prepared already keep what they have.

        Raises `NotConfigured` and changes nothing if a route's ``profile`` has a flag that doesn't exist.
        """
        table = table_of(routes)
        for route in table.values():
            _check_profile(route)
        self._table, self.default = table, default
        self._idle_timeout, self._patience = idle_timeout, patience

    @property
    def routes(self) -> dict[str, Route]:
        """All routes by name, where the environment puts them now."""
        return {name: moved(route, self._env) for name, route in self._table.items()}

    def prepare_call(self, ref: str, *, patience: float | None = None) -> PreparedCall:
        """Pins everything one call needs. `ModelError` ``NO_ADAPTER`` or ``MISSING_CREDENTIAL``.

        ``ref`` is a session's model: ``ROUTE`` or ``ROUTE/MODEL``.
        """
        route = find(ref, self.routes)
        if route is None:
            raise ModelError("NO_ADAPTER", f'there is no route "{ref}"', hint="dshctl models")
        adapter = self._adapter(route.adapter)
        if adapter is None:
            raise ModelError("NO_ADAPTER", f'route "{ref}": there is no adapter {route.adapter!r}')
        if not route.model:
            raise ModelError("NO_ADAPTER", f'route "{ref}" names no model', hint=f"--model {ref}/MODEL")
        credentials = self.credentials(route)
        credentials.check()
        return PreparedCall(
            route=ref,
            adapter=adapter,
            model=route.model,
            base_url=route.base_url,
            max_tokens=route.max_tokens,
            window=route.context_window,
            profile=profile_for(route.model, route.profile),
            credentials=credentials,
            idle_timeout=self._idle_timeout,
            patience=self._patience if patience is None else patience,
            fallback=route.fallback,
            price=route.price,
            script=route.script,
        )

    def _adapter(self, name: str) -> Adapter | None:
        """Made, and its module imported, when it is first used: a daemon mostly has one."""
        if name not in self._adapters and name in ADAPTERS:
            self._adapters[name] = ADAPTERS[name](self._http)
        return self._adapters.get(name)

    async def choose(self, explicit: str | None, *, client_is_terminal: bool) -> Choice:
        """Which model a new session gets, and why. Raises `NotConfigured`. Asks servers if it must."""
        choice = choose_route(explicit, self.default, self.routes, has_key=self.has_key)
        if isinstance(choice, Choice):
            return choice
        if choice == Ask("ollama"):
            return await self._ollama(bool(explicit or self.default), client_is_terminal)
        return await self._first_of(self.routes[choice.what])

    def likely(self) -> str | None:
        """The reference that new sessions get, as far as that can be said without asking a server; the route,
        where only its server knows the model. None: a local Ollama's, if there is one."""
        if self.default is not None:
            return self.default
        choice = choose_route(None, None, self.routes, has_key=self.has_key)
        if isinstance(choice, Choice):
            return choice.ref
        return choice.what if choice != Ask("ollama") else None

    def meant(self, ref: str, model: str) -> str:
        """What ``ref`` is in a session that has ``model``: a route without a model of its own is whichever
        of its models was chosen for that session."""
        route = self.routes.get(ref)
        return model if route is not None and not route.model and model.startswith(f"{ref}/") else ref

    async def _ollama(self, named: bool, client_is_terminal: bool) -> Choice:
        base_url = self.routes["ollama"].base_url
        found = await ollama_with_tools(self._http, base_url)
        if found is not None:
            return Choice(f"ollama/{found}", "a local Ollama has it, and it can call tools")
        if named:
            raise NotConfigured(f"no Ollama at {place(base_url)} has a model that can call tools")
        return rehearsal_or_nothing(client_is_terminal)

    async def _first_of(self, route: Route) -> Choice:
        try:
            name = await first_model(self._http, route, self.credentials(route))
        except ModelError as error:
            raise NotConfigured(f'route "{route.name}" names no model, and {error}') from error
        return Choice(f"{route.name}/{name}", f"the first that {shown(route.base_url)} lists")

    def adapter_name(self, ref: str) -> str | None:
        """The adapter that a session's model reference leads to; None if there is no such route."""
        route = find(ref, self.routes)
        return route.adapter if route is not None else None

    def has_key(self, route: Route) -> bool:
        """Whether a call on ``route`` could have a key."""
        return self.credentials(route).present()

    def key_files(self) -> list[Path]:
        """The files that routes name as where their keys are."""
        return [path for route in self.routes.values() if (path := self.credentials(route).path)]

    def credentials(self, route: Route) -> Credentials:
        """Where the key of ``route`` comes from."""
        return Credentials(
            route=route.name,
            env_name=route.api_key_env,
            file=route.api_key_file,
            command=route.api_key_command,
            stored=self._config_dir / "keys" / route.name if self._config_dir else None,
            required=route.key_required,
            env=self._env,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a route, for ``dshctl models``; no secret in it."""
        return [self._row(route) for route in self.routes.values()]

    def _row(self, route: Route) -> dict[str, Any]:
        return {
            "type": "model",
            "route": route.name,
            "adapter": route.adapter,
            "model": route.model or None,
            "base_url": shown(route.base_url) or None,
            "key": self.has_key(route),
            "key_required": route.key_required,
            "window": route.context_window,
            "max_tokens": route.max_tokens,
            "price": dict(route.price) if route.price else None,
            "default": route.name == self.default,
        }

    def rebuild(self, context: Mapping[str, Any], encoder: str, request: ModelRequest) -> bytes | None:
        """The bytes that were sent for a logged request, made again; None if another encoder made them.

        ``context`` is what `PreparedCall.context` gave, as logged; ``encoder`` as logged.
        """
        adapter = self._adapter(context["adapter"])
        if adapter is None or adapter.encoder != encoder:
            return None
        call = PreparedCall(
            route=context["route"],
            adapter=adapter,
            model=context["model"],
            window=context["window"],
            max_tokens=context["max_tokens"],
            profile=Profile(**context["profile"]),
        )
        return adapter.encode(call, request)

    async def aclose(self) -> None:
        """Closes all connections; calls in flight fail with ``ABORTED``. See `Http.aclose`."""
        await self._http.aclose()


def _check_profile(route: Route) -> None:
    known = {field.name for field in attrs.fields(Profile)}
    wrong = next((flag for flag in route.profile or {} if flag not in known), None)
    if wrong is not None:
        close = ", ".join(get_close_matches(wrong, known, 1))
        raise NotConfigured(
            f"routes.{route.name}.profile.{wrong}: unknown key"
            + (f"; did you mean {close}?" if close else ""),
            hint="dshctl config check",
        )
