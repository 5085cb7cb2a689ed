"""Prompts: what the next request is made of."""

from __future__ import annotations

from dshd.wire.params import InSession


class PromptShowParams(InSession, method="prompt.show"):
    """Sections, tools, the conversation, and the window they share."""
