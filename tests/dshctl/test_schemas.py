"""Every object of `--json` against the schema that is shipped for its type."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
from referencing.jsonschema import DRAFT202012

import dshctl as package
from dshctl.output import FACTS, error_item
from dshd.errors import Invalid
from dshd.session.porting import tar
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import RECEIPT, RESULT, SESSION, Fake, Refuse, message

Json = dict[str, Any]
TOP = Path(package.__file__).parents[1]
TAR = tar.header("s4h8w2c1/log.jsonl", 0, 0) + tar.END
WITH_EXIT = ("receipt", "retrying", "result", "woken", "fsck")  # of each message, session, log
SCHEMAS = {
    path.stem: json.loads(path.read_text())
    for path in (Path(package.__file__).parent / "schema").glob("*.json")
}
REGISTRY: Any = referencing.Registry().with_resources(
    (f"{name}.json", DRAFT202012.create_resource(schema)) for name, schema in SCHEMAS.items()
)


def check(value: Json) -> None:
    assert value["type"] in SCHEMAS, f"no schema for {value['type']}"
    jsonschema.Draft202012Validator(SCHEMAS[value["type"]], registry=REGISTRY).validate(value)


STATUS: Json = {
    "type": "status", "version": "1.2.0", "pid": 4121, "started_at": 0, "supervisor": None,
    "today": {"tokens": 1_900_000, "cost": 2.31, "currency": "USD"}, "sessions": [SESSION], "closed": 2,
    "closed_bytes": 88,
    "spool": {"waiting": 0, "refused": 0, "problem": None, "dir": "/home/you/.local/state/dshd/spool"},
    "scheduled": {"count": 0, "next": None, "refused": []},
}  # fmt: skip
ABORTED: Json = {
    "type": "aborted", "exit": 0, "session": "s4h8w2c1", "name": "api", "turn": 12,
    "doing": "bash: make test",
    "outcome": "aborted", "started_at": 0, "ended_at": 2_460_000, "cleared": [],
    "parked": {"by": "abort", "what": None, "at": 0, "count": 2}, "survivors": [], "agents": [], "jobs": [],
    "goes_on": [],
}  # fmt: skip
WOKEN: Json = {
    "type": "woken", "exit": 0, "session": "s4h8w2c1", "name": "api", "runs": True, "tries": False,
    "turn": 13, "pending": {"next-turn": 2, "next-step": 0, "held": 0}, "released": [],
    "unparked": {"by": "abort", "what": None, "at": 0, "count": 2},
}  # fmt: skip
FSCK: Json = {
    "type": "fsck", "session": "s4h8w2c1", "name": "api", "ok": True, "events": 413, "bytes": 412690,
    "problem": None, "hint": None, "exit": 0,
    "requests": {"compared": 12, "different": 0, "first": None, "not_comparable": 1},
}  # fmt: skip
RETRYING: Json = {
    "type": "retrying", "exit": 0, "session": "s4h8w2c1", "name": "api", "message": "s4h8w2c1.17",
    "retry_of": 12, "outcome": "error", "turn": 13, "attempts": [12], "seq": 431, "reopened": False,
    "parked": {"by": "error", "what": "no", "at": 0, "count": 0}, "warning": None,
}  # fmt: skip
COMPACTED: Json = {
    "type": "compacted", "exit": 0, "session": "s4h8w2c1", "name": "api", "outcome": "done", "compaction": 1,
    "turn": None, "before": 118_000, "after": 9_000, "window": 131_072, "hidden": 212, "pruned": 3,
    "error": None,
}  # fmt: skip
PROMPT: Json = {
    "type": "prompt", "exit": 0, "session": "s4h8w2c1", "name": "api", "model": "fast", "window": 65536,
    "compacts_at": 52429, "tokens": 41_000, "messages": 212, "compactions": 1,
    "parts": {"system": 9_100, "tools": 1_900, "conversation": 30_000},
    "sections": [
        {"section": "identity", "tokens": 95, "was": 95, "rule": "whole", "order": 0, "priority": 100,
         "budget": 1000, "why": None},
        {"section": "/home/you/src/api/AGENTS.md", "tokens": 8000, "was": 12_000, "rule": "head",
         "order": 200, "priority": 50, "budget": 8000, "why": "budget"},
    ],
    "tools": [{"tool": "bash", "tokens": 900}, {"tool": "read", "tokens": 1000}], "text": "You are an agent",
}  # fmt: skip
MODEL: Json = {
    "type": "model", "route": "fast", "adapter": "openai", "model": "m", "base_url": None, "key": True,
    "key_required": True, "window": 65536, "max_tokens": None, "price": None, "default": True,
}  # fmt: skip
FORKED: Json = {
    "type": "forked", "exit": 0, "session": "s4h8w2c2", "name": "api-2", "dir": "/home/you/src/api",
    "parent": "s4h8w2c1", "parent_name": "api", "seq": 389, "turn": 11, "runs": 12,
}  # fmt: skip
EXPORTED: Json = {
    "type": "exported", "exit": 0, "session": "s4h8w2c1", "name": "api", "bytes": 5, "damage": None,
}  # fmt: skip
IMPORTED: Json = {
    "type": "imported", "exit": 0, "session": "s4h8w2c1", "name": "api", "dir": "/home/you/src/api",
    "dir_exists": True, "original": "s4h8w2c1", "original_name": "api", "closed": False, "turn": 12,
    "pending": 3, "mode": "workspace", "repaired": False, "lost": 0,
}  # fmt: skip
UNDONE: Json = {
    "type": "undone", "exit": 0, "session": "s4h8w2c1", "name": "api", "cause": "clear", "at": 0, "by": {},
    "messages": [message()],
}  # fmt: skip
WOULD: Json = {
    "type": "would", "exit": 0, "would": "join-turn", "session": "s4h8w2c1", "name": "api", "turn": 12,
    "message": None, "state": None, "queue": "next-step", "position": 1, "due_at": None, "expires_at": None,
    "redirected": False, "created": False, "reopened": False, "released": 0, "superseded": [], "error": None,
}  # fmt: skip
QUEUE: Json = {"type": "queue", "session": SESSION, "messages": [message(17), message(18, verb="inject")]}
WHY: Json = {
    "type": "why", "message": "s4h8w2c1.17", "session": "s4h8w2c1", "state": "pending",
    "sentence": "It is next.", "hint": None, "name": "api", "reason": "next", "label": None, "at": None,
    "until_at": None, "expires_at": None, "by": None, "what": None, "detail": None, "turn": None,
    "outcome": None, "doing": None, "since_at": None, "ahead": 0,
}  # fmt: skip
USAGE: Json = {
    "type": "usage", "by": "day", "what": "2026-11-30", "session": None, "calls": 12, "input": 1000,
    "cached": 0, "output": 20, "reasoning": 0, "tokens": 1020, "cost": 0.21, "currency": "USD", "earlier": {},
}  # fmt: skip
TOOL: Json = {
    "type": "tool", "name": "bash", "does": "Run a command.", "read_only": False, "action": "allow",
    "by": "mode workspace", "unless": ["rule 1: deny command \"x\""],
}  # fmt: skip
CHECK: Json = {"type": "check", "check": "sandbox", "level": "warn", "what": "x", "fix": "man dshd, SANDBOX"}
FIRING: Json = {
    "type": "firing", "schedule": "c1", "due_at": 0, "at": 0, "late_ms": 0, "message": "s4h8w2c1.17",
    "session": None, "outcome": "completed", "state": None, "skipped": None, "detail": None, "code": None,
    "missed": 0, "by": None,
}  # fmt: skip
SCHEDULE: Json = {
    "type": "schedule", "id": "c1", "session": "s4h8w2c1", "name": "api", "dir": "/home/you/src/api",
    "run": None, "kind": "cron", "when": "0 2 * * *", "zone": "Europe/Berlin", "state": "active",
    "next_at": 90_000_000, "nexts_at": [90_000_000], "overlap": "skip", "catch_up": True, "text": "triage",
    "created_at": 0, "by": {}, "paused": None, "last": FIRING, "firings": None, "warning": None,
}  # fmt: skip
APPROVAL: Json = {
    "type": "approval", "id": "a3", "session": "s4h8w2c1", "name": "docs", "works_for": [],
    "dir": "/home/you/src/docs",
    "turn": 5, "step": 2, "call": "t5_2_1", "tool": "bash", "what": "rm -rf build/",
    "command": "rm -rf build/", "path": None, "host": None, "arguments": "{}", "why": "clean build",
    "rule": "the rule says ask", "asked_at": 0, "expires_at": 86_400_000, "answer": None, "scope": None,
    "reason": None, "by": None, "answered_at": None,
}  # fmt: skip
ALLOWED: Json = {
    "type": "allowed", "id": "a2", "session": None, "name": None, "scope": "always", "tool": "bash",
    "dir": "/home/you/src/docs", "command": "make html", "path": None, "host": None, "arguments": None,
    "by": {"kind": "user"}, "allowed_at": 0,
}  # fmt: skip
JOB: Json = {
    "type": "job", "id": "j3", "session": "s4h8w2c1", "name": "api", "turn": 1, "step": 1, "command": "make",
    "dir": "/home/you/src/api", "state": "running", "kept": False, "pid": None, "started_at": 0,
    "ended_at": None, "end": None,
}  # fmt: skip
PIECE: Json = {
    "type": "job-output", "id": "j3", "offset": 0, "next": 3, "size": 3, "text": "cc\n", "state": "running",
    "end": None, "path": "/spill/job-x.out",
}  # fmt: skip
AGENT: Json = {
    "type": "agent", "id": "s5h8w2c1", "session": "s4h8w2c1", "name": "api", "turn": 1, "prompt": "look",
    "context": "fresh", "state": "running", "step": 2, "doing": None, "since_at": None,
    "waits": None, "asks": [], "outcome": None, "text": None, "cost": None,
    "started_at": 0, "ended_at": None,
}  # fmt: skip
ANSWERS: Json = {
    "agent.list": {"type": "agents", "agents": [AGENT]}, "agent.stop": AGENT,
    "job.list": {"type": "jobs", "jobs": [JOB]}, "job.stop": JOB, "job.keep": {**JOB, "kept": True},
    "job.output": PIECE,
    "approval.list": {"type": "approvals", "exit": 0, "approvals": [APPROVAL], "allowed": [ALLOWED]},
    "approval.answer": {**APPROVAL, "arguments": None, "answer": "allow", "scope": "once", "exit": 0},
    "approval.forget": {"type": "forgotten", "exit": 0, "id": "a2"},
    "tool.list": {"type": "tools", "session": None, "mode": "workspace", "tools": [TOOL]},
    "usage.show": {"type": "usages", "rows": [USAGE], "total": {**USAGE, "by": "total", "what": "total"}},
    "daemon.doctor": {"type": "doctor", "checks": [CHECK]},
    "schedule.add": SCHEDULE, "schedule.rm": SCHEDULE, "schedule.pause": SCHEDULE, "schedule.run": SCHEDULE,
    "schedule.resume": SCHEDULE, "schedule.log": {**SCHEDULE, "firings": [FIRING]},
    "schedule.list": {"type": "schedules", "schedules": [SCHEDULE]},
    "daemon.status": STATUS, "daemon.reload": {"type": "reloaded", "exit": 0, "config": "/c", "warnings": []},
    "session.send": RECEIPT, "session.interrupt": RECEIPT,
    "session.create": {"type": "created", "exit": 0, "session": SESSION, "receipt": RECEIPT,
                       "duplicate": False, "result": None},
    "session.retry": RETRYING, "session.compact": COMPACTED, "prompt.show": PROMPT,
    "session.wait": {"type": "waited", "results": [RESULT]},
    "session.list": {
        "type": "sessions", "sessions": [SESSION], "current": "s4h8w2c1", "more": 0, "closed": 2,
    },
    "session.show": SESSION, "session.set": SESSION, "session.rename": SESSION, "session.close": SESSION,
    "session.reopen": SESSION, "session.abort": ABORTED, "session.wake": WOKEN,
    "session.delete": {"type": "removed", "exit": 0, "session": "s4h8w2c1", "name": "api"},
    "session.fork": FORKED, "session.export": EXPORTED, "session.import": IMPORTED,
    "attachment.put": {"type": "attachment", "upload": "u1", "bytes": 5},
    "session.fsck": {"type": "fsck", "exit": 0, "sessions": [FSCK]},
    "queue.ls": QUEUE, "queue.show": message(), "queue.edit": message(), "queue.first": QUEUE,
    "queue.last": QUEUE, "queue.promote": QUEUE, "queue.demote": QUEUE, "queue.rm": QUEUE,
    "queue.clear": QUEUE, "queue.undo": UNDONE,
    "message.show": message(), "message.why": WHY, "answer.show": RESULT,
    "model.list": {"type": "models", "models": [MODEL], "default": "fast"},
    "log.follow": {"type": "following", "session": "s4h8w2c1", "head": 412},
    "log.read": {"type": "log", "session": "s4h8w2c1", "at": None, "damage": None},
}  # fmt: skip
EVERY = [
    ("ping", ["pong"]), ("status", ["status"]), ("followup x", ["receipt"]), ("steer x", ["receipt"]),
    ("inject x", ["receipt"]), ("interrupt x", ["receipt"]), ("followup --wait x", ["receipt", "result"]),
    ("followup --follow x", ["receipt", "result"]), ("run x", ["receipt", "result"]), ("wait", ["result"]),
    ("wait s4h8w2c1.17", ["result"]), ("answer", ["result"]), ("new", ["session"]), ("ls", ["session"]),
    ("show", ["session"]), ("set net=on", ["session"]), ("rename api", ["session"]), ("close", ["session"]),
    ("reopen", ["session"]), ("rm --yes api", ["removed"]), ("fork", ["forked"]),
    ("export -o /dev/null api", ["exported"]), ("import -", ["imported"]),
    ("abort", ["aborted"]), ("wake", ["woken"]), ("compact", ["compacted"]),
    ("prompt show", ["prompt"]), ("prompt", ["prompt"]), ("remember --user x", ["remembered"]),
    ("remember --list --user", ["remembered"]),
    ("retry", ["retrying"]), ("retry s4h8w2c1.17 --wait", ["retrying", "result"]),
    ("followup --key k --retry x", ["receipt"]), ("wake s4h8w2c1.17", ["woken"]),
    ("queue", ["message", "message"]), ("queue ls", ["message", "message"]),
    ("queue show s4h8w2c1.17", ["message"]), ("queue edit s4h8w2c1.17 new text", ["message"]),
    ("queue first s4h8w2c1.17", ["queue"]), ("queue last s4h8w2c1.17", ["queue"]),
    ("queue promote s4h8w2c1.17", ["queue"]), ("queue demote s4h8w2c1.17", ["queue"]),
    ("queue rm s4h8w2c1.17", ["queue"]), ("queue clear", ["queue"]),
    ("queue undo", ["undone"]), ("steer --dry-run x", ["would"]),
    ("approvals", ["approval", "allowed"]), ("approvals --forget a2", ["forgotten"]),
    ("allow a3", ["approval"]), ("allow a3 --session", ["approval"]), ("deny a3 --reason no", ["approval"]),
    ("agents", ["agent"]), ("agents stop s5h8w2c1", ["agent"]),
    ("jobs", ["job"]), ("jobs stop j3", ["job"]), ("jobs keep j3", ["job"]),
    ("jobs output j3", ["job-output"]),
    ("message s4h8w2c1.17", ["message"]),
    ("why s4h8w2c1.17", ["why"]), ("why", ["why"]), ("log", ["event"]), ("fsck", ["fsck"]),
    ("models", ["model"]), ("tools", ["tool"]), ("usage", ["usage", "usage"]), ("doctor", ["check", "check"]),
    ("setup", ["setup"]), ("setup --remove", ["setup"]), ("completion bash", ["completion"]),
    ("completion --line dshctl", ["candidates"]),
    ("paths", ["paths"]), ("config check", ["config"]), ("config show", ["config"]), ("key", ["end"]),
    ("wake --all", ["woken", "woken"]), ("key deepseek", ["key"]),
    ("daemon status", ["daemon"]), ("daemon reload", ["reloaded"]), ("daemon start", ["daemon"]),
    ("schedule", ["schedule"]), ("schedule add every 2h x", ["schedule"]), ("schedule rm c1", ["schedule"]),
    ("schedule add --run @daily x", ["schedule"]), ("schedule pause c1", ["schedule"]),
    ("schedule resume c1", ["schedule"]), ("schedule run c1", ["schedule"]),
    ("schedule log c1", ["schedule", "firing"]),
    ("--version", ["version"]), ("steer", ["error"]), ("", ["error"]), ("nonsense", ["error"]),
]  # fmt: skip
EVENT: Json = {
    "seq": 412,
    "time": 0,
    "type": "turn/end",
    "data": {"turn": 1, "reason": "completed"},
    "crc": "9ab3f01c",
}


@pytest.mark.parametrize(("line", "types"), EVERY, ids=[line or "nothing" for line, _ in EVERY])
def test_every_object_is_as_its_schema_says_and_the_last_one_has_exit(
    line: str, types: list[str], dshctl: Dshctl, fake: Fake
) -> None:
    fake.answers = json.loads(json.dumps(ANSWERS))
    if "--dry-run" in line:
        fake.answers["session.send"] = WOULD
    if line == "wake --all":
        fake.answers["session.wake"] = {"type": "woken", "exit": 0, "sessions": [WOKEN, WOKEN]}
    fake.during["log.read"] = lambda peer, _: peer.notify(
        "log.event", {"session": "s4h8w2c1", "event": EVENT}
    )
    stdin = {"key deepseek": b"k-1\n", "import -": TAR}.get(line, b"")
    ran = dshctl("--json", *line.split(), stdin=stdin)
    assert [value["type"] for value in ran.objects] == types
    for value in ran.objects:
        check(value)
    assert ran.last["exit"] == ran.code
    assert all("exit" not in value or value["type"] in WITH_EXIT for value in ran.objects[:-1])


def test_each_schema_is_one_and_is_used(dshctl: Dshctl) -> None:
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert {name for _, types in EVERY for name in types} == set(SCHEMAS)


def test_the_daemons_own_shapes_are_as_the_schemas_say() -> None:
    from dshd.session.fold.state import State
    from dshd.session.shown import activities, ends, views

    check({**views.session(State(), activities.IDLE), "id": "s4h8w2c1", "name": "api"})
    check(ends.result(State(), message=None, turn=None))


def test_every_error_has_every_field_and_no_other() -> None:
    schema = SCHEMAS["error"]
    assert set(schema["required"]) == set(schema["properties"]) == {*error_item(Invalid("no")), "exit"}
    sources = [path.read_text() for package in ("dshd", "dshctl") for path in (TOP / package).rglob("*.py")]
    facts = {name for text in sources for name in re.findall(r'\bdata=\{"(\w+)": ', text)}
    assert facts >= {"close", "candidates", "nearest"}
    assert facts - {"message", "told"} <= set(FACTS)


def test_an_error_of_the_daemon_is_one(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.show"] = Refuse(
        "NOT_FOUND", 'no session "apy"', hint="dshctl ls", candidates=["api"]
    )
    ran = dshctl("show", "apy", "--json")
    check(ran.last)
    assert ran.last["candidates"] == ["api"]
