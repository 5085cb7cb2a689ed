"""One run of one hook: its process, its time limit, its bounded output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from dshd.config import Hook
from dshd.hooks.answers import LONGEST_ANSWER, Answer, Ended, answer_of
from dshd.hooks.payload import FOREIGN, written
from dshd.paths import looks_secret
from dshd.spawn.client import Completed, Spawner, SpawnFailed
from dshd.tools.bash import environment

LABEL: Final = "hook "  # before the session's id, in the spawner's labels
_EXACT: Final = re.compile(r"[A-Za-z0-9_|]+")


@attrs.frozen(slots=True, kw_only=True)
class Place:
    """Where hooks run. ``daemon``: what all of them get; ``session``: the session's environment, secrets
    and all; ``keys``: names of variables that no hook sees."""

    dir: str
    session: Mapping[str, str] = attrs.field(factory=dict)
    daemon: Mapping[str, str] = attrs.field(factory=dict)
    keys: frozenset[str] = frozenset()


@attrs.frozen(slots=True)
class Run:
    """What came of it. ``ms``: how long it took; ``exit``: its status, None if it has none."""

    answer: Answer
    exit: int | None = None
    ms: int = 0


async def run_hook(spawner: Spawner, hook: Hook, place: Place, found: Mapping[str, Any]) -> Run:
    """Run it, give it the object, and read its answer. Raises nothing but Cancelled.

    Cancellation: the process and all it started are ended first.
    """
    session = str(found.get("session") or "")
    try:
        done = await spawner.run(
            argv(hook.command),
            cwd=place.dir,
            env=environment_of(hook, place, found),
            stdin=written(found),
            timeout=hook.timeout,
            head=LONGEST_ANSWER,
            tail=0,
            merge=False,
            label=LABEL + session,
        )
    except SpawnFailed as error:
        return Run(answer_of(Ended(failure=str(error)), ""))
    return Run(
        answer_of(_ended(done, hook.timeout), FOREIGN[hook.event]),
        done.returncode,
        round(done.duration_s * 1000),
    )


def _ended(done: Completed, limit: float) -> Ended:
    if done.timed_out:
        return Ended(failure=f"it took longer than {limit:g} s and was ended")
    if done.returncode is None:
        return Ended(failure=f"it was ended by signal {done.signal}")
    return Ended(exit=done.returncode, stdout=done.head, stderr=done.stderr, cut=done.total > len(done.head))


def argv(command: str | list[str]) -> list[str]:
    """A list is what is run; a text goes to the shell."""
    return ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)


def name_of(hook: Hook) -> str:
    """What people know it by: its name, or that of its program."""
    if hook.name is not None:
        return hook.name
    words = hook.command.split() if isinstance(hook.command, str) else hook.command
    return (words[0].rpartition("/")[2] or words[0])[:64] if words else hook.event


def environment_of(hook: Hook, place: Place, found: Mapping[str, Any]) -> dict[str, str]:
    """The session's environment, without its secrets but those that the hook names; never a key."""
    session = {k: v for k, v in place.session.items() if not looks_secret(k) or k in hook.env}
    env = environment(session, place.daemon, place.keys)
    said = {"DSHD_EVENT": "event", "DSHD_SESSION": "session", "DSHD_SESSION_NAME": "name",
            "DSHD_KIND": "kind", "DSHD_TEXT": "text"}  # fmt: skip
    env |= {name: _plain(found[member]) for name, member in said.items() if found.get(member)}
    return {**env, "PWD": place.dir, "CLAUDE_PROJECT_DIR": str(found.get("dir") or place.dir)}


def _plain(value: Any) -> str:
    return str(value).replace("\0", "\ufffd")[:4096].encode("utf-8", "replace").decode()


def matches(hook: Hook, *subjects: str) -> bool:
    """Whether it is about one of these: a plain pattern names them, any other is searched for in them."""
    pattern = hook.matcher
    if pattern in (None, "", "*"):
        return True
    assert pattern is not None
    if _EXACT.fullmatch(pattern):
        return not set(pattern.split("|")).isdisjoint(subjects)
    return any(re.search(pattern, subject) for subject in subjects)
