"""Making a session: its first event, its first message, and its directory on disk, all at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from dshd import wire
from dshd.config import Config, Sessions
from dshd.driver.plugged import shape
from dshd.driver.port import Services
from dshd.errors import Invalid, NotConfigured, NotFound
from dshd.log.store import ATTACHMENTS, Store
from dshd.model.routes import Choice
from dshd.session.deciding import budget, sending
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import attachments, events
from dshd.session.fold.events import VERSION, file_name
from dshd.session.fold.state import TOLD_APART, State
from dshd.session.fold.who import Peer
from dshd.session.registry import environment
from dshd.session.registry.hops import Hops
from dshd.session.registry.naming import name_of

Json = dict[str, Any]

NOT_MADE: Final = "s0000000"  # the id of a session that is only thought of


class Maker:
    def __init__(self, store: Store, hops: Hops, services: Services) -> None:
        self._store = store
        self._hops = hops
        self._services = services

    async def make(
        self, id: str, p: wire.CreateParams, rows: Iterable[wire.SessionRow], choice: Choice, peer: Peer,
        more: Mapping[str, Any] | None = None,
    ) -> Json | None:  # fmt: skip
        """Its first message's receipt. ``rows``: the sessions that there are; ``more``: of its header.

        Durability: on return the session's directory, its log and the message are on disk.
        Raises `Invalid`, `NotFound` (no such directory), `Conflict` (the name is taken), `NotConfigured` (a
        limit in money on a model without a price).
        """
        taken = [row.name for row in rows if row.name and row.state != "closed"]
        header = {"version": VERSION, "id": id, **await self._header(p, taken, choice), **(more or {})}
        s = Scratch(State(), self._services.now(), -1)
        s.emit("session/header", events.header(header))
        receipt, attached = _first_message(s, p, peer)
        files = environment.file(environment.parted(p.env)[1])
        files |= {f"{ATTACHMENTS}/{name}": content for name, content in attached.items()}

        def write() -> None:
            if receipt is not None:
                self._store.mark(id)
            self._store.create(id, b"".join(s.lines), files)

        await self._hops.write(write)
        return receipt and {**receipt, "created": True, "turn": 1}

    async def check(self, p: wire.CreateParams, choice: Choice) -> None:
        """Raises what `make` would, but for the name."""
        await self._header(p, [], choice)

    def fingerprint(self, p: wire.CreateParams, peer: Peer) -> str | None:
        """Of what its first message says (`state.fingerprint`); None if it has none, or no key."""
        s = Scratch(State(), self._services.now(), -1)
        s.emit("session/header", {"version": VERSION, "id": NOT_MADE})
        _first_message(s, p, peer)
        keyed = s.state.keys.get(p.key) if p.key is not None else None
        return keyed.fingerprint if keyed is not None else None

    async def _header(self, p: wire.CreateParams, taken: list[str], choice: Choice) -> Json:
        config = self._services.config()
        if not os.path.isabs(p.dir):
            raise Invalid("expected an absolute path @ $.dir")
        if not await self._hops.read(lambda: os.path.isdir(p.dir)):
            raise NotFound(f"no directory {p.dir}", hint="dshctl new -C DIR")
        if p.schema is not None and (wrong := await self._hops.read(partial(shape.problem, p.schema))):
            raise Invalid(f"the schema can't be used: {wrong} @ $.schema", outcome="not-written")
        limits = {name: getattr(p, name) for name in ("max_cost", "max_steps", "max_time", "max_tokens")}
        if (problem := budget.unpriced(limits, config, choice.ref)) is not None:
            raise NotConfigured(f"{problem}.", hint="man dshd-config", outcome="not-written")
        wide = self._is_wide(p.dir)
        mode = p.mode or ("read-only" if wide else config.sessions.mode)
        return {
            "name": name_of(p, taken),
            "created": self._services.now(),
            "dir": p.dir,
            "model": choice.ref,
            "model_why": choice.why,
            "adapter": self._services.models.adapter_name(choice.ref),
            "mode": config.within_policy(mode),
            "parent": None,
            "seed": None,
            "origin": "run" if p.run else "user",
            "depth": 0,
            "ask": p.ask or config.sessions.ask or ("wait" if p.terminal else "deny"),
            "net": config.sessions.net if p.net is None else p.net,
            "implicit": p.implicit,
            "run": p.run,
            "patience": p.patience,
            "origins": _origins(p, config, wide),
            **limits,
            "env": environment.parted(p.env)[0],
            "key": p.key,
            "schema": p.schema,
        }

    def _is_wide(self, dir: str) -> bool:
        """Whether a directory holds so much that only reading is safe: /, $HOME or above it."""
        home = os.path.realpath(str(self._services.home or "/"))
        real = os.path.realpath(dir)
        return real == "/" or home == real or home.startswith(real.rstrip("/") + "/")


def _origins(p: wire.CreateParams, config: Config, wide: bool) -> Json:
    """Whose word the settings are, but for those that are nobody's: see `shown.origins`."""
    said = {name for name in TOLD_APART if getattr(p, name) is not None}
    given, plain = config.sessions, Sessions()
    ours = {name for name in ("mode", "net", "ask") if getattr(given, name) != getattr(plain, name)}
    origins = {**dict.fromkeys(ours, "config"), **({"mode": "directory"} if wide else {})}
    origins |= {**dict.fromkeys(said, "session"), **({"model": "--model"} if p.model is not None else {})}
    asked = p.mode or ("read-only" if wide else config.sessions.mode)
    return {**origins, **({"mode": "policy"} if config.within_policy(asked) != asked else {})}


def _first_message(s: Scratch, p: wire.CreateParams, peer: Peer) -> tuple[Json | None, dict[str, bytes]]:
    """Its receipt, and the attachments that go with it, by file name."""
    if p.text is None and p.content is None:
        return None, {}
    content = attachments.content_of(p.text, p.content)
    send = sending.followup(content.blocks, peer.source(p.as_), p.key)
    return sending.decide(s, send, 1), {file_name(sha): raw for sha, raw in content.files.items()}
