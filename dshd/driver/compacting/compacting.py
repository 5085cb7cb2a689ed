"""Compaction, done: what is decided in `prompt.compaction`, between a log and a model.

It is one bracket in the log, `compaction/start` to `compaction/end`, and inside it at most a few requests,
logged and hashed like any other. What changes the surface is written in one batch with the bracket's end
(what is only cut short, with its beginning); so whatever happens, the history is the one before or the one
after.

| when                             | cause     | if it fails                                       |
|----------------------------------|-----------|---------------------------------------------------|
| before a step, from 80 % of the  | threshold | the step goes on; tried again when much was added |
| window on                        |           |                                                   |
| the window is exceeded           | overflow  | the call's own error stands                       |
| a person asked                   | asked     | they are told                                     |

Whoever aborts cancels the scope around it; the bracket is closed by who closes that (`closing.close_turn`, or
the driver's maintenance). Messages that arrive meanwhile wait in the inbox, in order; the step that follows
takes those for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from dshd.driver import opening
from dshd.driver.requests import counting
from dshd.driver.requests.request import Prepared, emit_request, prepare
from dshd.driver.run import Run
from dshd.driver.waiting import room
from dshd.driver.wishes import Outcome
from dshd.model import retry
from dshd.model.blocks import Assembled
from dshd.model.errors import RETRIED, ModelError
from dshd.prompt import compaction as core
from dshd.prompt.compaction import Measure, Pruning, Refused
from dshd.prompt.tokens import estimate_message, estimate_request
from dshd.session.deciding.closing import close_compaction
from dshd.session.deciding.scratch import Scratch
from dshd.session.fold import compactions, spending
from dshd.session.fold.events import Message
from dshd.session.fold.state import State
from dshd.session.fold.surface import Entry
from dshd.session.fold.who import SYSTEM

FULL = "CONTEXT_WINDOW_EXCEEDED"
SURELY = ("asked", "overflow")  # causes: below the threshold, too, much has to go
LIKE = "SUMMARY_REFUSED"  # the code of a compaction's error that is no model's


# --- when ------------------------------------------------------------------------------------------


def due(s: Scratch, run: Run, claimed: Sequence[Message]) -> bool:
    """Whether the step that would open now has to wait for a compaction."""
    if run.wishes.waiting is not None:
        return True
    if run.call is None or run.call.window is None or run.system is None:
        return False
    said = sum(estimate_message({"content": m.content}) for m in claimed)
    _, tokens = run.history.ahead(run.state.surface, s.state.surface, run.attachments(s.state))
    return _too_large(run, _measure(run, s.state, (tokens,), said))


def _too_large(run: Run, measure: Measure) -> bool:
    return measure.over and measure.total >= run.compact_from


async def before_step(run: Run) -> None:
    """Compact if it is due or was asked for; then claim what came meanwhile, so that it goes out with the
    first request after it.

    Cancellation: at any point; the bracket stays open, for the turn's closing. Raises what the log does.
    """
    wish = run.wishes.take()
    cause = "asked" if wish is not None else "threshold"
    if wish is None and not _due_now(run):
        return
    outcome = Outcome(reason="aborted", turn=run.turn)
    try:
        outcome = await compact(run, cause, wish.by if wish is not None else None)
    finally:
        if wish is not None:
            run.wishes.settle(wish, outcome)
    run.claimed += await room.when_room(run, lambda s: _claim(s, run))


def _due_now(run: Run) -> bool:
    if run.call is None or run.call.window is None or run.work.stop_at_boundary:
        return False
    run.history.of(run.state.surface, run.attachments(run.state))
    said = sum(estimate_message({"content": m.content}) for m in run.claimed)
    return _too_large(run, _measure(run, run.state, (run.history.tokens,), said))


def _claim(s: Scratch, run: Run) -> tuple[Message, ...]:
    turn = s.state.turn
    if turn is None or turn.abort is not None or run.work.stop_at_boundary:
        return ()
    return opening.claim(s, first_step=False)


# --- how large -------------------------------------------------------------------------------------


def _measured(run: Run) -> Measure:
    """The conversation as the log has it, with what is claimed for the next step."""
    messages = run.history.of(run.state.surface, run.attachments(run.state))
    said = sum(estimate_message({"content": m.content}) for m in run.claimed)
    return _measure(run, run.state, [estimate_message(m) for m in messages], said)


def _measure(run: Run, state: State, sizes: Sequence[int], said: int) -> Measure:
    call = run.call
    assert call is not None
    system, tools = run.system.text if run.system else "", run.tools.specs()
    around = run.history.memo.once("around", (system, tools), lambda: estimate_request(system, (), tools))
    factor = compactions.correction(state.factors, call.context()).factor
    return Measure(sizes, around + said, call.window, call.max_tokens or 0, factor)


# --- one compaction --------------------------------------------------------------------------------


@attrs.define(eq=False)
class Job:
    """One compaction that runs. ``before``: tokens of the whole request; ``pruned``: results cut short."""

    run: Run
    cause: str
    measure: Measure
    before: int
    number: int = 0
    pruned: int = 0

    def outcome(self, reason: str, **more: Any) -> Outcome:
        return Outcome(
            reason=reason, number=self.number or None, turn=self.run.turn or None, before=self.before,
            window=self.measure.window, pruned=self.pruned, **more,
        )  # fmt: skip


async def compact(run: Run, cause: str, by: Mapping[str, Any] | None = None) -> Outcome:
    """One compaction, from the question whether there is anything to gain to its end in the log.

    Raises `DshError` (the log refused). Cancellation: while the model is asked, or for want of room; the
    bracket is open then. Durability: what the outcome says is on disk.
    """
    outcome = await _compact(run, cause, by)
    if outcome.reason == "done":
        run.compact_from = 0  # another conversation, of which nothing is known
    elif outcome.before is not None and outcome.window is not None:
        run.compact_from = outcome.before + round(core.WORTH * outcome.window)
    return outcome


async def _compact(run: Run, cause: str, by: Mapping[str, Any] | None) -> Outcome:
    measure = _measured(run)
    job = Job(run, cause, measure, measure.total)
    entries = list(run.state.surface)
    old = core.kept_from(measure.sizes, measure.keep(cause in SURELY))
    prunings = core.pruned(entries, old if cause != "overflow" else len(entries))
    if not prunings and _place(job, entries, measure.room()) is None:
        return job.outcome("nothing")
    run.says(f"compacting ({measure.total:,} tokens)")
    begun = await room.when_room(run, lambda s: _begin(s, job, prunings, by))
    if begun is None:
        return job.outcome("aborted")
    try:
        return begun if begun.reason == "done" else await _sum_up(job)
    except (ModelError, Refused) as error:
        said = error.to_json() if isinstance(error, ModelError) else {"code": LIKE, "message": str(error)}
        await room.when_room(run, lambda s: _fail(s, job, said))
        return job.outcome("failed", error=said)


def _place(job: Job, entries: Sequence[Entry], most: int | None) -> int | None:
    """Where to cut; None if there is nothing that would be worth it."""
    measure = job.measure
    at = core.cut(measure.sizes, core.balanced(entries), measure.keep(job.cause in SURELY), most)
    if at is None or (at == 1 and is_summary(entries[0])):
        return None
    freed = sum(measure.sizes[:at])
    worth = measure.worth(freed) if job.cause == "threshold" else freed >= core.LEAST
    return at if worth else None


def is_summary(entry: Entry) -> bool:
    return entry.type == "user/message" and (entry.data.get("source") or {}).get("via") == "compaction"


def _begin(s: Scratch, job: Job, prunings: Sequence[Pruning], by: Mapping[str, Any] | None) -> Outcome | None:
    """Open the bracket and cut old results short; None if an abort or a closing came first. ``done``: that
    was enough, and the bracket is closed; else the outcome so far."""
    if s.state.closed or _is_aborted(s, job.run):
        return None
    job.number, job.pruned = s.state.compactions + 1, len(prunings)
    data = {"compaction": job.number, **_where(job.run), "cause": job.cause, "before": job.before,
            "window": job.measure.window}  # fmt: skip
    s.emit("compaction/start", {**data, "by": dict(by)} if by is not None else data)
    saved = 0
    for pruning in prunings:
        seq = pruning.entry.seq
        s.emit("tool/result", dict(pruning.data), surface={"replace": [seq, seq]}, sources=[seq])
        saved += core.size_of(pruning.entry.data["content"]) - core.size_of(pruning.data["content"])
    after = job.before - job.measure.real(saved)
    return _end(s, job, after) if _is_enough(job, after) else job.outcome("begun")


def _is_enough(job: Job, after: int) -> bool:
    """Whether a request of ``after`` tokens can go out; not where estimates turned out to be wrong."""
    measure = job.measure
    known = job.cause == "threshold" or (job.cause == "overflow" and measure.full)
    return known and measure.window is not None and after < core.THRESHOLD * measure.window


def _is_aborted(s: Scratch, run: Run) -> bool:
    turn = s.state.turn
    return bool(run.turn) and (turn is None or turn.abort is not None)


def _where(run: Run) -> dict[str, Any]:
    return {"turn": run.turn or None}


def _end(s: Scratch, job: Job, after: int, hidden: int = 0) -> Outcome:
    s.emit(
        "compaction/end",
        {"compaction": job.number, **_where(job.run), "reason": "done", "before": job.before, "after": after,
         "hidden": hidden, "pruned": job.pruned},
    )  # fmt: skip
    return job.outcome("done", after=after, hidden=hidden)


def _fail(s: Scratch, job: Job, error: Mapping[str, Any]) -> None:
    if s.state.compaction is not None and s.state.compaction.number == job.number:
        close_compaction(s, "failed", usage=job.run.pay(), error=error)


# --- the summary -----------------------------------------------------------------------------------


async def _sum_up(job: Job) -> Outcome:
    """Ask for the summary, a few times at most, and let it stand for what it sums up."""
    run = job.run
    job.measure = _measured(run)
    entries, most = list(run.state.surface), job.measure.room()
    last: Exception = Refused("there is nothing old enough to be summed up")
    for attempt in range(1, core.ATTEMPTS + 1):
        at = _place(job, entries, most)
        if at is None:
            break
        try:
            content, text = await _one_summary(job, at, attempt)
        except ModelError as error:
            last = error
            if error.code == FULL:
                most = sum(job.measure.sizes[:at]) // 2
            elif attempt == core.ATTEMPTS or not await _wait(run, error, attempt):
                break
            continue
        kept = await room.when_room(run, lambda s: _commit(s, job, entries[:at], content, text))  # noqa: B023
        return kept if kept is not None else job.outcome("aborted")
    raise last


async def _one_summary(job: Job, at: int, attempt: int) -> tuple[list[dict[str, Any]], str]:
    """The blocks of the message, and the summary itself. Raises `ModelError` and `Refused`."""
    run = job.run
    prepared = _prepared(run, at)
    if prepared.problem is not None:
        raise prepared.problem
    more = {"compaction": job.number, "messages": at, "instruction": core.INSTRUCTION}
    if not await room.when_room(run, lambda s: emit_request(s, prepared, run.turn, run.step, attempt, more)):
        await run.stopped()
    answer = await _answer(run, prepared)
    text = core.summary_of(answer.content, answer.finish)
    content = core.framed(text)
    core.check_smaller(content, sum(job.measure.sizes[:at]))
    return content, text


def _prepared(run: Run, at: int) -> Prepared:
    """The request for a summary of the first ``at`` messages."""
    assert run.call is not None
    place = run.attachments(run.state)
    messages = [*run.history.of(run.state.surface, place)[:at], core.asking(core.INSTRUCTION)]
    system = run.system.text if run.system is not None else ""
    return prepare(
        run.call, system, messages, run.tools.specs(), memo=run.history.memo, place=place,
        correction=compactions.correction(run.state.factors, run.call.context()),
    )  # fmt: skip


async def _answer(run: Run, prepared: Prepared) -> Assembled:
    assembler = counting.assembler(prepared)

    async def emit(chunk: Any) -> None:
        assembler.feed(chunk)

    try:
        await prepared.call.adapter.stream(prepared.call, prepared.body, emit)
        counting.tell(assembler, prepared)
        return assembler.result()
    finally:
        run.owed = spending.add(run.owed, run.priced(assembler.usage))


async def _wait(run: Run, error: ModelError, attempt: int) -> bool:
    """Wait as long as a quick retry does; False if it would take longer, or can't help."""
    if error.code not in RETRIED:
        return False
    services = run.services
    patience = run.call.patience if run.call is not None else 0.0
    plan = retry.decide(attempt, error, now_ms=services.now(), patience_s=patience, rng=services.rng,
                        policy=run.call.retry if run.call is not None else None)  # fmt: skip
    if not isinstance(plan, retry.Quick):
        return False
    await trio.sleep(plan.delay_s)
    return True


def _commit(
    s: Scratch, job: Job, hidden: Sequence[Entry], content: list[dict[str, Any]], text: str
) -> Outcome | None:
    """Let the summary stand where the ``hidden`` entries stood; None if an abort came first."""
    run, measure = job.run, job.measure
    if _is_aborted(s, run) or s.state.compaction is None:
        return None
    said = {"compaction": job.number, **_where(run), "text": text, "model": run.call and run.call.route}
    owed = dict(run.pay())
    s.emit("compaction/summary", {**said, "usage": owed} if owed else said)
    where = {"turn": run.turn, "step": run.step} if run.turn else {}
    source = {**SYSTEM, "via": "compaction"}
    message = {"id": s.take_id(), "role": "user", "content": content, "source": source, "created": s.now,
               "wake": False, "verb": "inject", **where}  # fmt: skip
    seqs = [entry.seq for entry in hidden]
    s.emit("user/message", message, surface={"replace": [seqs[0], seqs[-1]]}, sources=seqs)
    sizes = core.size_of(content) + sum(measure.sizes[len(hidden) :])
    return _end(s, job, measure.real(measure.around + sizes), len(hidden))
