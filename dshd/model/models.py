"""The room's front: routes in, prepared calls out. Holds the one HTTP client of the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dshd.model.adapter import Adapter, PreparedCall
from dshd.model.credentials import Credentials
from dshd.model.errors import ModelError
from dshd.model.profiles import profile_for
from dshd.model.rehearsal import Rehearsal
from dshd.model.routes import BUILT_IN, Route


class Models:
    """``routes`` are the configured ones, over the built-in ones. ``env`` is the daemon's environment.

    ``config_dir`` is where stored keys are; ``idle_timeout`` and ``patience`` in s.
    """

    def __init__(
        self,
        routes: Mapping[str, Route] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        config_dir: Path | None = None,
        idle_timeout: float = 300.0,
        patience: float = 6 * 3600.0,
    ) -> None:
        self.routes: dict[str, Route] = {**BUILT_IN, **(routes or {})}
        self._env = env or {}
        self._config_dir = config_dir
        self._idle_timeout = idle_timeout
        self._patience = patience
        self._adapters: dict[str, Adapter] = {"rehearsal": Rehearsal()}

    def prepare_call(self, route: str, *, patience: float | None = None) -> PreparedCall:
        """Pins everything one call needs. `ModelError` ``NO_ADAPTER`` or ``MISSING_CREDENTIAL``."""
        found = self.routes.get(route)
        if found is None:
            raise ModelError("NO_ADAPTER", f'there is no route "{route}"', hint="dshctl models")
        adapter = self._adapters.get(found.adapter)
        if adapter is None:
            raise ModelError(
                "NO_ADAPTER", f'route "{route}" wants adapter {found.adapter!r}, which is not here'
            )
        credentials = self.credentials(found)
        credentials.check()
        return PreparedCall(
            route=route,
            adapter=adapter,
            model=found.model,
            base_url=found.base_url,
            max_tokens=found.max_tokens,
            window=found.context_window,
            profile=profile_for(found.model, found.profile),
            credentials=credentials,
            idle_timeout=self._idle_timeout,
            patience=self._patience if patience is None else patience,
            fallback=tuple(found.fallback),
            price=found.price,
            script=found.script,
        )

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

    async def aclose(self) -> None:
        """Closes the HTTP client; calls in flight fail."""
