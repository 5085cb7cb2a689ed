"""Commands that go on in the background: what `bash` hands over, and the tool `job`, which looks after them.

Who keeps jobs is the session's owner (`House`, in a call's context). A job is a command with the way to run
it (`Spec.work`): whoever has it runs that, and is told how it ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import attrs
import trio

from dshd import reasons
from dshd.spawn.client import Completed, Passage
from dshd.tools.files import schema
from dshd.tools.text import decoded, whole_start
from dshd.tools.threads import reading
from dshd.tools.tool import Args, ToolContext, ToolFailure, ToolOutput, text_output

SHOWN = 20_000  # bytes of a job's output that the model is shown: the end of it
NOTICED = 4_000  # the same of one that has ended, in the message that says so

Json = Mapping[str, Any]
Done = tuple[Completed, Sequence[Path]]  # how it ended, and what had to be undone
Work = Callable[[Passage], Awaitable[Done]]


@attrs.frozen(slots=True, kw_only=True)
class Spec:
    """``work`` runs the command to its end, or until it is cancelled, which ends it. ``file`` has its output,
    from the beginning, while it runs. ``after``: to be called at the end of one that was kept (of others
    ``work`` sees to it); what had to be undone."""

    call: str
    command: str
    dir: Path
    file: Path
    work: Work
    after: Callable[[], Awaitable[Sequence[Path]]]

    async def end(self) -> None:
        """It is not to be a job: what runs of it already is ended. Cancellation: shielded, and bounded."""
        with trio.CancelScope(shield=True) as scope:
            scope.cancel()
            await self.work(Passage())


class Leaving(Passage):
    """The passage of a call whose command may go on as a job: then ``spec`` is what that is made of."""

    spec: Spec | None = None


class House(Protocol):
    """The jobs of a session, as a tool sees them. What is answered of one: `session.shown.jobs.job`."""

    async def start(self, spec: Spec) -> str:
        """Have it run; its id. Raises `DshError` (no room for more, the turn is being stopped, the disk) and
        SpawnFailed. Durability: that it was started is on disk before it runs."""
        ...

    async def stop(self, id: str) -> Json:
        """End it, and all that it started; how it has ended. Raises `NotFound`, `Conflict`."""
        ...

    def rows(self) -> list[Json]:
        """All that run, and those that have ended lately, the oldest first."""
        ...

    def row(self, id: str) -> Json:
        """Raises `NotFound`."""
        ...

    def output(self, id: str) -> Path:
        """Where its output is."""
        ...


class Jobs:
    """Look after what runs in the background."""

    name: ClassVar[str] = "job"
    description: ClassVar[str] = (
        "Look after the commands that you have started with bash and background: list them, show the end of"
        " what one has printed so far (all of it is in a file that you are told), or stop one. When a job"
        " ends by itself you are told so with the next step: there is no need to wait for it or to ask again."
    )
    schema: ClassVar[dict[str, Any]] = schema(
        ["action"],
        action={"type": "string", "enum": ["list", "output", "stop"]},
        job={"type": "string", "pattern": "^j[0-9]+$", "description": "its id, for output and stop: j3"},
    )
    read_only: ClassVar[bool] = False

    def describe(self, args: Args) -> str:
        return f"job: {args.get('action', '')} {args.get('job') or ''}".rstrip()

    async def run(self, args: Args, ctx: ToolContext) -> ToolOutput:
        house: House | None = ctx.jobs
        if house is None:
            raise ToolFailure("there are no jobs here.")
        if args["action"] == "list":
            return listed(house.rows())
        if not args.get("job"):
            raise ToolFailure(f"{args['action']} needs the id of a job", code="INVALID_ARGS")
        if args["action"] == "stop":
            row = await house.stop(args["job"])
            return await told(house, row, f"{row['id']} is stopped")
        return await told(house, house.row(args["job"]), "")


def listed(rows: Sequence[Json]) -> ToolOutput:
    lines = [f"{row['id']}  {state(row)}: {row['command']}" for row in rows]
    running = sum(row["state"] == "running" for row in rows)
    return text_output("\n".join(lines) or "(no jobs)", summary=f"{running} running")


def state(row: Json) -> str:
    return "running" if row["state"] == "running" else f"ended, {reasons.job_end(row['end'])}"


async def told(house: House, row: Json, said: str) -> ToolOutput:
    """What it has printed, by its end, and how it is with it."""
    path = house.output(row["id"])
    text, size = await reading(end_of, path, SHOWN)
    notes = [said or f"{row['id']} {state(row)}"]
    if size > SHOWN:
        notes.insert(0, f"the last {SHOWN} of {size} bytes; all of it: {path}")
    body = text if text.endswith("\n") or not text else text + "\n"
    return text_output(body + "\n".join(f"[{note}]" for note in notes), summary=state(row))


def end_of(path: Path, most: int) -> tuple[str, int]:
    """The last ``most`` bytes of a file, as text, and its size; nothing, if it isn't there. Blocks."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            data = file.read(most)
    except OSError:
        return "", 0
    return decoded(whole_start(data) if size > most else data), size
