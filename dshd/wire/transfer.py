"""What comes and goes in pieces: long texts, and sessions as files."""

from __future__ import annotations

from dshd.wire.params import InSession, Params, check_variables


class ExportParams(InSession, method="session.export"):
    """The file as ``export.piece`` notifications (``data``: base64), in order, then the answer."""


class ImportParams(Params, method="session.import"):
    """``upload``: the file, as it was put by `AttachmentPutParams`. ``as_new``: under a new id.
    ``repair``: also if its log is damaged. ``env`` as in `CreateParams`; without secrets."""

    upload: str
    as_new: bool = False
    repair: bool = False
    env: dict[str, str] = {}  # noqa: RUF012 - never changed

    def check(self) -> None:
        check_variables(self.env)


class AttachmentPutParams(Params, method="attachment.put"):
    """A piece of a long text, at most `MAX_PIECE` characters; ``upload`` None begins a new one.

    What was put belongs to this connection, and is gone with it or when a send has taken it. ``data``
    instead of ``text``: a piece of a file for `ImportParams`, base64.
    """

    text: str | None = None
    upload: str | None = None
    data: str | None = None
