"""What a session's next request is made of, and how large each part is."""

from __future__ import annotations

from typing import Any

import attrs

from dshd.driver.history import History
from dshd.driver.requests.prompting import system_prompt
from dshd.model.adapter import PreparedCall
from dshd.model.errors import ModelError
from dshd.prompt.compaction import THRESHOLD
from dshd.prompt.tokens import estimate_tools
from dshd.session.fold import compactions
from dshd.session.owner.live import Live

Json = dict[str, Any]


async def show(session: Live) -> Json:
    """``prompt.show``: sections, tools, the conversation, and the window they share; tokens, about, corrected
    by what the provider reported. ``text`` is the system prompt. Raises `DshError` if the log can't be read.

    Nothing is written, and no model is asked.
    """
    await session.remember()
    services, state = session.around.services, session.state
    call = _call(session)
    window = call.window if call is not None else None
    prompt = await system_prompt(services, state, window)
    context = call.context() if call is not None else state.request_context
    real = compactions.correction(state.factors, context).apply
    history = History()
    history.of(state.surface)
    specs = services.servers.known(services.tools, session.id).specs()
    parts = {"system": prompt.tokens, "tools": estimate_tools(specs), "conversation": history.tokens}
    return {
        "type": "prompt",
        "exit": 0,
        "session": session.id,
        "name": session.name,
        "model": state.settings.get("model"),
        "window": window,
        "compacts_at": round(THRESHOLD * window) if window else None,
        "tokens": real(sum(parts.values())),
        "parts": {name: real(tokens) for name, tokens in parts.items()},
        "messages": len(state.surface),
        "compactions": state.compactions,
        "sections": [attrs.asdict(row) for row in prompt.report],
        "tools": [{"tool": spec.name, "tokens": estimate_tools((spec,))} for spec in specs],
        "text": prompt.text,
    }


def _call(session: Live) -> PreparedCall | None:
    """As it would be made now; a session whose model can't be called has a prompt all the same."""
    models = session.around.services.models
    try:
        call: PreparedCall = models.prepare_call(str(session.state.settings.get("model") or ""))
    except ModelError:
        return None
    return call
