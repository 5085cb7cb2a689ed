"""`dshctl acp`: an agent for editors."""

from __future__ import annotations

from dshctl.base import Cli, command


@command(
    "acp",
    short_help="An agent for editors.",
    examples=["dshctl acp      (as the command of an external agent in the editor's settings)"],
)
def COMMAND(cli: Cli) -> int:
    """Speak the Agent Client Protocol on standard input and output, for the editor that started this."""
    from dshctl.acp.agent import Agent
    from dshctl.attaching.screen import Woken

    with Woken() as woken:
        return Agent(cli, woken).run()
