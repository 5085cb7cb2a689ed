"""The system prompt of a session, from what the world around says; the same for a turn and for who asks."""

from __future__ import annotations

from pathlib import Path

from dshd.driver.port import Services
from dshd.prompt.assembly import GUIDANCE, PromptContext, SystemPrompt, assemble
from dshd.session.fold.state import State


async def system_prompt(services: Services, state: State, window: int | None) -> SystemPrompt:
    """Read and put together anew; ``window`` in tokens. Cancellation: while files are read."""
    directory = Path(str(state.settings.get("dir") or "/"))
    found = await services.outside.instructions(directory)
    notes = await services.outside.notes(directory)
    guidance = [(name, GUIDANCE[name]) for name in services.tools.names if name in GUIDANCE]
    return assemble(
        PromptContext(
            tools=guidance, instructions=found, window=window, persona=notes.persona, memory=notes.memory,
            answer=state.settings.get("schema"),
        )
    )
