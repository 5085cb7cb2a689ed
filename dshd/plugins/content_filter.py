"""`[plugins.content_filter] deny = [regex, ...]`: messages whose text matches one are rejected.

Only the messages that match are; what was claimed with them goes on. Python's expressions, searched
anywhere in the text; `(?i)` ignores case. What another plugin adds has no id yet and is not looked at.
"""

from __future__ import annotations

import re
from typing import Any

from dshd.plugins import PreStep, Reject, text_of
from dshd.plugins.config import only, wrong


class ContentFilter:
    name = "content_filter"

    def __init__(self, config: dict[str, Any]) -> None:
        only(self.name, config, ["deny"])
        deny = config.get("deny")
        if not isinstance(deny, list) or not all(isinstance(one, str) for one in deny):
            raise wrong(self.name, "deny", "a list of regular expressions")
        self.deny = [self._compiled(n, one) for n, one in enumerate(deny)]

    def _compiled(self, n: int, pattern: str) -> re.Pattern[str]:
        try:
            return re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise wrong(self.name, f"deny[{n}]", f"a regular expression ({error})") from None

    async def pre_step(self, proposal: PreStep) -> PreStep | Reject:
        claimed = [message for message in proposal.messages if message.get("id")]
        hits = [(message["id"], hit) for message in claimed if (hit := self._hit(text_of(message)))]
        if not hits:
            return proposal
        patterns = ", ".join(dict.fromkeys(f"/{hit}/" for _, hit in hits))
        return Reject(f"the text matches {patterns}", tuple(id for id, _ in hits))

    def _hit(self, text: str) -> str | None:
        return next((rule.pattern for rule in self.deny if rule.search(text)), None)
