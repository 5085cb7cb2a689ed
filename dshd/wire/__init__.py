"""What the two programs say to each other: names, numbers and shapes, and nothing that does IO.

The protocol is JSON-RPC 2.0, one object per line (see `control`). Here is what both ends must agree on:

- `terms`: words and numbers; `params`: what a class of parameters is made of;
- the parameters of every method, by family: `daemon`, `sessions`, `sending`, `turns`, `queue`, `schedules`,
  `jobs`, `agents`, `messages`, `approvals`, `logs`, `prompts`, `transfer`;
- `ids`: the forms of ids and names; `which`: how a session reference as typed becomes a session;
- `quantities`, `times`, `settings`: durations, amounts, moments and settings as they are typed; `spelling`:
  near words.

Parameters
    One class per method. A field's name is the flag's name with underscores; a field that is a
    Python keyword ends in ``_`` here and not on the wire. A field without a default is required.
    What is absent has its default, what is unknown is refused: an older daemon must never do half
    of what a newer client asked.

Light on purpose, for dshctl imports this for ``ping``, too: nothing but the standard library, of that only
what click loads anyway, and each module only when a name in it is first asked for. `HOLDS` says which name
is where, for Python, and the imports above it say it for type checkers; a test holds the two together. A new
family is a module, a line in each, and its name here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dshd.wire.agents import *
    from dshd.wire.approvals import *
    from dshd.wire.daemon import *
    from dshd.wire.ids import *
    from dshd.wire.jobs import *
    from dshd.wire.logs import *
    from dshd.wire.messages import *
    from dshd.wire.params import *
    from dshd.wire.prompts import *
    from dshd.wire.quantities import *
    from dshd.wire.queue import *
    from dshd.wire.schedules import *
    from dshd.wire.sending import *
    from dshd.wire.sessions import *
    from dshd.wire.settings import *
    from dshd.wire.spelling import *
    from dshd.wire.terms import *
    from dshd.wire.times import *
    from dshd.wire.transfer import *
    from dshd.wire.turns import *
    from dshd.wire.which import *

HOLDS: Final = {  # {module: the names in it}
    "terms": """
        PROTOCOL MAX_LINE MAX_TEXT MAX_INLINE MAX_PIECE MAX_LABEL MAX_REASON GONE Queue Verb Mode Ask Kind
        Disposition OnCrash WhenFull VERBS MODES
    """,
    "params": """
        Params check_labels check_reason check_variables is_variable REQUIRED wire_name Position InSession
        OfMessages
    """,
    "daemon": """
        HelloParams StatusParams ReloadParams StopParams DoctorParams ModelListParams ToolListParams
        UsageShowParams
    """,
    "sessions": """
        CreateParams ListParams FollowListParams ShowParams SetParams RenameParams CloseParams
        DeleteParams ReopenParams ForkParams FsckParams
    """,
    "schedules": """
        ScheduleAddParams ScheduleListParams OfSchedule ScheduleLogParams ScheduleRmParams
        SchedulePauseParams ScheduleResumeParams ScheduleRunParams
    """,
    "sending": "SendParams InterruptParams",
    "turns": "AbortParams WakeParams RetryParams CompactParams WaitParams",
    "queue": """
        QueueLsParams QueueShowParams QueueEditParams QueueFirstParams QueueLastParams
        QueuePromoteParams QueueDemoteParams QueueRmParams QueueClearParams QueueUndoParams
    """,
    "agents": "AgentListParams AgentStopParams",
    "jobs": "JobListParams OfJob JobOutputParams JobStopParams JobKeepParams",
    "messages": "MessageShowParams MessageWhyParams AnswerShowParams",
    "approvals": """
        Answer Scope ApprovalListParams ApprovalAnswerParams ApprovalForgetParams ApprovalFollowParams
    """,
    "logs": "LogReadParams LogFollowParams LogUnfollowParams",
    "prompts": "PromptShowParams",
    "transfer": "ExportParams ImportParams AttachmentPutParams",
    "ids": """
        ID_ALPHABET SESSION_ID MESSAGE_ID NAME_MAX SPOOLED PREFIX_MIN session_id is_session_id
        spool_uuid is_message session_of check_name name_for_directory numbered
    """,
    "which": "SessionRow refuse_if_unread resolve session_of_directory tilde",
    "spelling": "near did_you_mean",
    "quantities": "DIGITS parse_duration parse_money parse_count",
    "times": "parse_time",
    "settings": "SETTINGS NEEDED setting_name setting no_setting check_unset",
}
_HOME: Final = {name: module for module, names in HOLDS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
