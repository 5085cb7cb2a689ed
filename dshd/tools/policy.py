"""May this call run? A decision over the mode, the places and the rules; sans-IO.

placeholder
"""

from __future__ import annotations

import attrs

from dshd.tools.tool import Args, Tool, ToolContext


@attrs.frozen(slots=True)
class Verdict:
    """``action`` is allow, ask or deny; ``reason`` says why, in words for the model."""

    action: str
    reason: str = ""

    @property
    def sentence(self) -> str:
        if self.action == "ask":
            return f"denied: nobody to ask ({self.reason})"
        return f"denied: {self.reason}"


def decide(tool: Tool, args: Args, ctx: ToolContext) -> Verdict:
    return Verdict("allow")
