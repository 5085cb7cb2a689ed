"""Why a session can't be driven."""

from __future__ import annotations

from typing import Any

import attrs

from dshd.errors import DshError


@attrs.frozen(slots=True)
class Broken:
    """``word`` is damaged, faulted or unsupported. Such a session can be looked at; every change is
    refused with the sentence that names the way out."""

    word: str
    error: DshError

    def told(self) -> dict[str, Any]:
        """``{kind, message, hint}``: a sentence, and what helps, or None."""
        return {"kind": self.word, "message": self.error.message, "hint": self.error.hint or None}

    def refusal(self) -> DshError:
        """For a request that comes now. What broke the session may have been half written; this is
        not written at all."""
        error = self.error
        return type(error)(error.message, hint=error.hint, outcome="not-written", data=error.data)
