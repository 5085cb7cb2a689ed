"""Whether a request may be begun: the method it names, its parameters checked, and who asks."""

from __future__ import annotations

from typing import Any, Final

from dshd.control.access import Rights
from dshd.control.jsonrpc import Request, UnknownMethod
from dshd.control.methods import METHODS, Method
from dshd.errors import Full, Invalid, Unavailable
from dshd.strict import Wrong, dotted, structure
from dshd.wire import HelloParams, Params, did_you_mean

MOST_WAITS: Final = 1000  # waits, which cost next to nothing


def admitted(
    request: Request, rights: Rights | None, *, brief: bool, stopping: bool, waits: int
) -> tuple[Method, Params]:
    """The method and its checked parameters. Raises `Invalid`, `Denied`, `Unavailable`, `Full`.

    ``rights`` None: there was no hello yet. ``brief``: the client is one too many. ``stopping``: the
    daemon is. ``waits``: how many things this connection waits for.
    """
    method = METHODS.get(request.method)
    if method is None:
        raise UnknownMethod(f"no method {request.method!r}{did_you_mean(request.method, METHODS)}")
    if method.params is not HelloParams:
        if rights is None:
            raise Invalid("daemon.hello comes first", outcome="not-written")
        rights.check(request.method, method.writes, method.agent)
    if brief and not method.process:
        raise Unavailable("too many clients are connected.", outcome="not-written")
    if stopping:
        raise Unavailable("dshd is stopping.", outcome="not-written")
    params = _checked(request.params, method.params)
    if waits >= MOST_WAITS and may_wait(method, params):
        raise Full(f"this connection waits for {MOST_WAITS} things already.", outcome="not-written")
    return method, params


def may_wait(method: Method, params: Params) -> bool:
    """Whether it may take for ever."""
    return method.waits or getattr(params, "when_full", None) == "wait"


def _checked(params: dict[str, Any], kind: type[Params]) -> Params:
    try:
        found = structure(params, kind)
    except Wrong as wrong:
        raise Invalid(f"{wrong.what} @ $.{dotted(wrong.path)}", outcome="not-written") from None
    found.check()
    return found
