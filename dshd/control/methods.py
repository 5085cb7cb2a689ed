"""What can be asked: one table, method to parameters, handler and rights.

A handler (`handlers`) gets a `Call` and returns what is answered. It decides nothing about sessions: it
finds the session, asks it, and wraps the answer. Handlers that write find their session `in_order`, so
that requests sent one behind the other on a connection reach the session in that order; from there on
they run at the same time, and share a sync.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from dshd import wire
from dshd.control.access import AgentMay
from dshd.control.calls import Call, Handler, Offer
from dshd.control.handlers import (
    agents,
    approvals,
    daemon,
    fsck,
    jobs,
    logs,
    looking,
    messages,
    prompts,
    queue,
    saying,
    schedules,
    sessions,
    settings,
    stopping,
    transfer,
    waiting,
)
from dshd.control.takeup import message_of
from dshd.spool import is_alias
from dshd.strict import structure


@attrs.frozen(slots=True)
class Method:
    """``writes``: refused to readers, and carried through once begun, whatever becomes of the client.
    ``waits``: may take for ever, and costs nothing meanwhile. ``process``: about the daemon itself, and
    so answered to those who are one too many. ``offer`` does the same as ``handler`` without a task, where
    there is nothing to wait for but the disk (True); it must be as it was before where there is (False)."""

    params: type[wire.Params]
    handler: Handler
    writes: bool = False
    agent: AgentMay = "yes"
    waits: bool = False
    process: bool = False
    offer: Offer | None = None


_TABLE: Final = (
    Method(wire.HelloParams, daemon.greeting(lambda: METHODS), process=True),
    Method(wire.StatusParams, daemon.status, process=True),
    Method(wire.ReloadParams, daemon.reload, writes=True, agent="no", process=True),
    Method(wire.StopParams, daemon.stop, writes=True, agent="no", process=True),
    Method(wire.DoctorParams, daemon.doctor, waits=True),
    Method(wire.ModelListParams, daemon.models),
    Method(wire.ToolListParams, looking.tools),
    Method(wire.UsageShowParams, looking.usage, waits=True),
    Method(wire.CreateParams, sessions.create, writes=True, agent="no"),
    Method(wire.ListParams, sessions.ls),
    Method(wire.FollowListParams, sessions.follow_list),
    Method(wire.ShowParams, sessions.show),
    Method(wire.SetParams, settings.change, writes=True, agent="no"),
    Method(wire.RenameParams, sessions.rename, writes=True, agent="no"),
    Method(wire.CloseParams, sessions.close, writes=True, agent="no"),
    Method(wire.ReopenParams, sessions.reopen, writes=True, agent="no"),
    Method(wire.DeleteParams, sessions.delete, writes=True, agent="no"),
    Method(wire.ForkParams, sessions.fork, writes=True, agent="no"),
    Method(wire.PromptShowParams, prompts.show),
    Method(wire.ExportParams, transfer.export, waits=True),
    Method(wire.ImportParams, transfer.take, writes=True, agent="no"),
    Method(wire.FsckParams, fsck.fsck),
    Method(wire.SendParams, saying.send, writes=True, agent="own", offer=saying.offer),
    Method(wire.InterruptParams, saying.interrupt, writes=True, agent="no"),
    Method(wire.AbortParams, stopping.abort, writes=True, agent="no"),
    Method(wire.RetryParams, stopping.retry, writes=True, agent="no"),
    Method(wire.WakeParams, stopping.wake, writes=True, agent="no"),
    Method(wire.CompactParams, stopping.compact, writes=True, agent="no", waits=True),
    Method(wire.WaitParams, waiting.wait, waits=True),
    Method(wire.QueueLsParams, queue.ls),
    Method(wire.QueueShowParams, queue.show),
    Method(wire.QueueEditParams, queue.edit, writes=True, agent="no"),
    Method(wire.QueueFirstParams, queue.changing("first"), writes=True, agent="no"),
    Method(wire.QueueLastParams, queue.changing("last"), writes=True, agent="no"),
    Method(wire.QueuePromoteParams, queue.changing("promote"), writes=True, agent="no"),
    Method(wire.QueueDemoteParams, queue.changing("demote"), writes=True, agent="no"),
    Method(wire.QueueRmParams, queue.changing("rm"), writes=True, agent="no"),
    Method(wire.QueueClearParams, queue.clear, writes=True, agent="no"),
    Method(wire.QueueUndoParams, queue.undo, writes=True, agent="no"),
    Method(wire.ScheduleAddParams, schedules.add, writes=True, agent="no"),
    Method(wire.ScheduleListParams, schedules.ls),
    Method(wire.ScheduleLogParams, schedules.log),
    Method(wire.ScheduleRmParams, schedules.changing("rm"), writes=True, agent="no"),
    Method(wire.SchedulePauseParams, schedules.changing("pause"), writes=True, agent="no"),
    Method(wire.ScheduleResumeParams, schedules.changing("resume"), writes=True, agent="no"),
    Method(wire.ScheduleRunParams, schedules.run, writes=True, agent="no"),
    Method(wire.AgentListParams, agents.ls),
    Method(wire.AgentStopParams, agents.stop, writes=True, agent="no"),
    Method(wire.JobListParams, jobs.ls),
    Method(wire.JobOutputParams, jobs.output, waits=True),
    Method(wire.JobStopParams, jobs.stop, writes=True, agent="no"),
    Method(wire.JobKeepParams, jobs.keep, writes=True, agent="no"),
    Method(wire.AttachmentPutParams, saying.put, writes=True, agent="own"),
    Method(wire.MessageShowParams, messages.show),
    Method(wire.MessageWhyParams, messages.why),
    Method(wire.AnswerShowParams, messages.answer),
    Method(wire.ApprovalListParams, approvals.ls),
    Method(wire.ApprovalAnswerParams, approvals.answer, writes=True, agent="no"),
    Method(wire.ApprovalForgetParams, approvals.forget, writes=True, agent="no"),
    Method(wire.ApprovalFollowParams, approvals.follow),
    Method(wire.LogReadParams, logs.read, waits=True),
    Method(wire.LogFollowParams, logs.follow),
    Method(wire.LogUnfollowParams, logs.unfollow),
)


def _by_alias(method: Method) -> Method:
    """The same method for messages that are called ``spool:<uuid>``, too."""
    fields = [name for name in ("message", "messages") if name in method.params.fields]
    if not fields:
        return method
    field, handler = fields[0], method.handler

    async def handle(call: Call) -> Any:
        named = getattr(call.params, field)
        several = (named,) if isinstance(named, str) else named or ()
        if not any(map(is_alias, several)):
            return await handler(call)
        real = [await _real(call, message) for message in several]
        changed = call.params.replace(**{field: real[0] if isinstance(named, str) else tuple(real)})
        return await handler(attrs.evolve(call, params=changed))

    return attrs.evolve(method, handler=handle)


async def _real(call: Call, message: str) -> str:
    return await message_of(call.room.spool, call.room.gate, message) if is_alias(message) else message


METHODS: Final[dict[str, Method]] = {method.params.method: _by_alias(method) for method in _TABLE}

structure({}, wire.SendParams)  # has its code compiled now, and not while the first sender waits
