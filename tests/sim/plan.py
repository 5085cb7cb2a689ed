"""A history as data: who does what and when, what the model says, what the disk does.

A plan is made by `make` from a seed and is nothing but tuples, so that it can be printed and cut down.
An action is ``(kind, pause, arguments)``. The pause comes before it: virtual seconds if it is a float, turns
of the scheduler if it is an int, -1 until all that was asked before is answered, and ``(type, n)`` until an
event of that type has been told, and n turns of the scheduler.

A plan has branches: deaths that the history itself does not die. What would have come of each is a history
of its own, that shares the plan's beginning up to the call of the disk before which it dies.
"""

from __future__ import annotations

from random import Random
from typing import Any

import attrs

Args = dict[str, Any]
Pause = int | float | tuple[str, int]


@attrs.frozen
class Action:
    kind: str
    pause: Pause
    args: Args = attrs.field(factory=dict)

    def __str__(self) -> str:
        pause = self.pause
        when = f"+{pause:g} s" if isinstance(pause, float) else f"+{pause} ticks"
        if isinstance(pause, tuple):
            when = f"{pause[0]} +{pause[1]}"
        said = " ".join(f"{k}={v!r}" for k, v in self.args.items() if v is not None and v is not False)
        return f"{'answered' if pause == -1 else when:>10}  {self.kind} {said}".rstrip()


@attrs.frozen
class Branch:
    """The death ``death`` before the ``call``-th change of the disk, and what is done then. If the plan's
    are ``early``: sooner, if a call of the disk has just failed."""

    call: int
    death: Args
    actions: tuple[Action, ...] = ()

    def __str__(self) -> str:
        how = f"a power cut ({self.death['survivor']})" if "survivor" in self.death else "a kill"
        then = (f"\n           {action}" for action in self.actions)
        return f"or: {how} before change {self.call} of the disk{''.join(then)}"


@attrs.frozen
class Plan:
    """``answers``: the model's, in order over all sessions; ``verdicts``: the plugin's;
    ``rot``: where in the log a byte goes bad when all is over. ``branches`` are in order. ``asks``: a person
    must allow some calls, within so many seconds. ``windows``: of the model, in tokens, one life after the
    other; None is a large one. ``summaries``: the model's, when a conversation is to be summed up.
    ``ends``: seconds and exit of the hook that is told of turns' ends, one turn after the other."""

    seed: int
    actions: tuple[Action, ...]
    answers: tuple[Any, ...] = ()
    verdicts: tuple[Any, ...] = ()
    max_pending: int = 1000
    max_running: int = 8
    go_on: bool = False
    rot: float | None = None
    unloads: bool = False
    branches: tuple[Branch, ...] = ()
    early: bool = True
    asks: float | None = None
    windows: tuple[int, ...] | None = None
    summaries: tuple[Any, ...] = ()
    ends: tuple[tuple[float, int], ...] = ()

    def window(self, life: int) -> int | None:
        return self.windows[life % len(self.windows)] if self.windows is not None else None

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {len(self.actions)} actions"]
        lines += [f"  {i:3} {action}" for i, action in enumerate(self.actions)]
        lines += [f"  the model: {answer}" for answer in self.answers]
        lines += [f"  the plugin: {verdict}" for verdict in self.verdicts if verdict != ("pass",)]
        if self.max_pending < 1000:
            lines.append(f"  [inbox] max_pending = {self.max_pending}")
        if self.max_running < 8:
            lines.append(f"  [driver] max_running = {self.max_running}")
        if self.go_on:
            lines.append("  [recovery] continue_interrupted = true")
        if self.unloads:
            lines.append("  sessions at rest leave memory, with a checkpoint")
        if self.asks is not None:
            lines.append(f"  a person is asked about some calls, and has {self.asks:g} s")
        if self.windows is not None:
            lines.append(f"  the model's window: {', '.join(map(str, self.windows))} tokens, life by life")
            lines += [f"  the model sums up: {summary}" for summary in self.summaries]
        if self.ends:
            lines.append(f"  a hook is told of each turn's end: {self.ends}")
        if self.rot is not None:
            lines.append(f"  a byte goes bad at {self.rot:.2f} of the log")
        lines += [f"  {n:3} {branch}" for n, branch in enumerate(self.branches)]
        return "\n".join(lines)


# --- making one ------------------------------------------------------------------------------------


def make(seed: int) -> Plan:
    """Every third asks a person, every third has a small window, and every sixth a hook; each of that is
    thrown apart, so that it changes nothing of the others."""
    plan = _make(seed)
    return MORE[seed % 3](plan, Random(f"{seed}/{seed % 3}"))


def _asking(plan: Plan, r: Random) -> Plan:
    r = Random(f"{plan.seed}/asks")
    actions, branches = list(plan.actions), list(plan.branches)
    for _ in range(r.randrange(len(actions) + 2)):
        actions.insert(r.randint(1, len(actions)), _answers(r))
    for n, branch in enumerate(branches):
        if r.random() < 0.2:
            branches[n] = attrs.evolve(branch, actions=(*branch.actions, _answers(r)))
    asks = r.choice((8.0, 3000.0))
    return attrs.evolve(plan, actions=tuple(actions), branches=tuple(branches), asks=asks)


def _narrow(plan: Plan, r: Random) -> Plan:
    """Conversations grow too large, or somebody thinks so."""
    actions, branches, answers = list(plan.actions), list(plan.branches), list(plan.answers)
    for _ in range(r.randrange(3) + len(actions) // 4):
        actions.insert(r.randint(1, len(actions)), _compacts(r))
    for _ in range(r.randrange(4)):
        actions.insert(r.randint(1, len(actions)), Action("send", _pause(r), _send(r)))
    for n, branch in enumerate(branches):
        if r.random() < 0.2:
            branches[n] = attrs.evolve(branch, actions=(*branch.actions, _compacts(r)))
    for n in range(len(answers)):
        if r.random() < 0.15:
            answers.insert(n, ("error", FULL, r.random() < 0.5, None))
    windows = [r.choice(WINDOWS)] * 3 + ([r.choice(WINDOWS)] if r.random() < 0.3 else [])
    return attrs.evolve(
        plan, actions=tuple(actions), branches=tuple(branches), answers=tuple(answers),
        windows=tuple(windows), summaries=tuple(_summary(r) for _ in range(r.randint(0, 6))),
    )  # fmt: skip


FULL = "CONTEXT_WINDOW_EXCEEDED"
WINDOWS = (350, 450, 600, 1000)
CLOSE = ("compaction/start", "compaction/end")


def _compacts(r: Random) -> Action:
    """Somebody asks for it, or does something else while it goes on."""
    kind = r.choice(("compact",) * 5 + ("send", "abort", "interrupt", "close", "kill", "cut", "stop"))
    if kind == "compact":
        return Action(kind, _pause(r), {"gives_up": r.choice((None, None, None, 0.3))})
    pause = (r.choice(CLOSE), r.choice((0, 0, 1, 2, 3, 5)))
    if kind in DEATHS:
        return attrs.evolve(_death(r), pause=pause)
    return Action(kind, pause, MAKERS[kind](r))


def _summary(r: Random) -> Any:
    """("say", bytes, finish) | ("call",) | what `_answer` gives of errors and of slowness."""
    kind = r.random()
    if kind < 0.4:
        return ("say", r.choice((10, 40, 100)), "stop")
    if kind < 0.6:
        return ("say", *r.choice(((0, "stop"), (5000, "stop"), (50, "max-tokens"), (50, "content-filter"))))
    if kind < 0.65:
        return ("call",)
    if kind < 0.8:
        code = r.choice((FULL, FULL, "SERVER", "RATE_LIMIT", "STREAM_CLOSED", "AUTH", "EMPTY_RESPONSE"))
        return ("error", code, r.random() < 0.5, r.choice(NAMED))
    if kind < 0.82:
        return ("raise",)
    return ("slow", r.choice((0.01, 0.7, 4.0, 30.0)), _summary(r))


def _hooked(plan: Plan, r: Random) -> Plan:
    """Somebody is told of each turn's end."""
    if r.random() < 0.5:
        return plan
    ends = tuple((r.choice((0, 0, 0.01, 1.0, 4.0)), r.choice((0, 0, 0, 1))) for _ in range(r.randint(1, 3)))
    return attrs.evolve(plan, ends=ends)


MORE = (_hooked, _asking, _narrow)


def _answers(r: Random) -> Action:
    args: Args = {"at": r.randrange(50), "answer": r.choice(("allow", "allow", "deny"))}
    args["again"] = r.random() < 0.3
    return Action("answer", _pause(r), {**args, "scope": r.choice(("once", "once", "session", "always"))})


def _make(seed: int) -> Plan:
    r = Random(seed)
    stormy = r.random() < 0.85  # the rest: nothing dies and the disk is good
    count = r.choice(LENGTHS)
    actions = [Action("create", 0, _create(r))]
    actions += [_action(r, stormy) for _ in range(count)]
    if stormy and not any(a.kind in DEATHS for a in actions):
        actions.insert(r.randint(1, len(actions)), _death(r))
    actions = [a for action in actions for a in (action, *_again(r, action))]
    plugin = r.random() < 0.3
    return Plan(
        seed=seed,
        actions=tuple(actions),
        answers=tuple(_answer(r, i) for i in range(r.randint(2, 12))),
        verdicts=tuple(_verdict(r) for _ in range(r.randint(1, 6))) if plugin else (),
        max_pending=r.choice((1000, 1000, 1000, 4)),
        max_running=r.choice((8, 8, 1)),
        go_on=r.random() < 0.2,
        rot=r.random() if r.random() < 0.08 else None,
        unloads=r.random() < 0.15,
        branches=_branches(r),
    )


LENGTHS = (1, 2, 3, 3, 4, 5, 6, 7, 9, 12, 16, 24)  # of a plan, in actions
DEATHS = ("cut", "kill", "stop")
SURVIVORS = ("nothing", "everything", "prefix", "blocks")
WEATHER = ("full", "room", "fault", "short", "slow", "clock", "mend", "reload")
BRANCHES, APART = 32, 12  # of a plan, at most; changes of the disk between two, at most


ON = (
    *("turn/end", "turn/end", "turn/start", "step/end", "step/start", "assistant/message", "tool/call"),
    *("assistant/message", "assistant/message", "assistant/chunk", "tool/result", "inbox/spliced"),
    *("abort/requested", "llm/retry"),
)


def _pause(r: Random) -> Pause:
    kind = r.random()
    if kind < 0.12:
        return (r.choice(ON), r.choice((0, 0, 1, 1, 2, 3, 4)))
    if kind < 0.4:
        return r.choice((0, 0, 1, 2, 3, 5, 8, 13, 25, 50))
    if kind < 0.75:
        return -1
    return r.choice((0.001, 0.1, 0.6, 1.1, 2.5, 7.0, 11.0, 40.0))


def _action(r: Random, stormy: bool) -> Action:
    if stormy and r.random() < 0.18:
        return _death(r) if r.random() < 0.4 else _weather(r)
    kind = r.choices(tuple(MAKERS), WEIGHTS)[0]
    return Action(kind, _pause(r), MAKERS[kind](r))


def _death(r: Random) -> Action:
    kind = r.choice(("cut", "cut", "kill", "kill", "stop"))
    if kind == "stop":
        return Action("stop", _pause(r), {"grace": r.choice((0.0, 0.5, 3.0, 20.0))})
    args: Args = {"calls": r.choice((0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 17, 22, 30, 45))}
    if kind == "cut":
        args["survivor"] = r.choice((*SURVIVORS, "blocks"))
        args["chance"] = r.randrange(1000)
    return Action(kind, _pause(r), args)


def _branches(r: Random) -> tuple[Branch, ...]:
    call, made = 0, []
    for _ in range(BRANCHES):
        call += r.randint(1, APART)
        actions = [_action(r, True) for _ in range(r.choice((0,) * 12 + (1, 1, 2)))]
        made.append(Branch(call, _how(r), (*_dies_again(r), *actions)))
    return tuple(made)


def _how(r: Random) -> Args:
    if r.random() < 0.4:
        return {}
    return {"survivor": r.choice((*SURVIVORS, "blocks")),
            "chance": r.randrange(1000)}  # fmt: skip


def _again(r: Random, action: Action) -> list[Action]:
    return _dies_again(r) if action.kind in DEATHS else []


def _dies_again(r: Random) -> list[Action]:
    """Now and then the next daemon dies while it gets up, or finds something in the spool, or no room."""
    some = [_spool(r)] if r.random() < 0.08 else []
    if r.random() < 0.04:
        some.append(Action("full", 0, {"free": r.choice((0, 1, 300)), "lasts": r.choice((0.5, 12.0))}))
    if r.random() < 0.06:
        some.append(Action("fault", 0, _fault(r)))
    return some + _dies_early(r)


def _spool(r: Random) -> Action:
    verb = r.choice(("followup", "steer", "inject"))
    key = f"k{r.randrange(4)}" if r.random() < 0.3 else None
    return Action("spool", 0, {"verb": verb, "key": key, "long": r.random() < 0.2})


def _dies_early(r: Random) -> list[Action]:
    if r.random() < 0.7:
        return []
    args: Args = {"calls": r.randrange(12), "survivor": r.choice(("nothing", "nothing", "blocks")),
                  "chance": r.randrange(1000)}  # fmt: skip
    return [Action("cut", 0, args)] if r.random() < 0.7 else [Action("kill", 0, {"calls": args["calls"]})]


def _weather(r: Random) -> Action:
    kind = r.choice((*WEATHER, "fault"))
    args: Args = {}
    if kind == "full":
        args = {"free": r.choice((0, 1, 50, 200, 700, 2000)), "lasts": r.choice((0.5, 3.0, 12.0))}
    elif kind == "fault":
        args = _fault(r)
    elif kind == "short":
        args = {"take": r.choice((1, 7, 100)), "skip": r.choice((0, 1, 2)), "times": r.choice((1, 2))}
    elif kind == "slow":
        args = {"seconds": r.choice((0.01, 0.3, 2.0, 12.0)), "hops": r.choice((1, 2, 4))}
    elif kind == "clock":
        args = {"seconds": r.choice((-3600.0, -5.0, 5.0, 3600.0, 86400.0))}
    return Action(kind, _pause(r), args)


def _fault(r: Random) -> Args:
    call = r.choice(("fdatasync",) * 4 + ("write", "write", "fsync", "fsync", "rename", "create"))
    args = {"call": call, "skip": r.choice((0, 0, 1, 2, 3)), "times": r.choice((1, 1, 1, 2))}
    args["errno"] = r.choice(("EIO", "EIO", "ENOSPC")) if call in ("write", "create") else "EIO"
    return args


# --- what clients do -------------------------------------------------------------------------------


def _create(r: Random) -> Args:
    first = r.random() < 0.3
    return {"text": first, "key": f"run{r.randrange(3)}" if first and r.random() < 0.3 else None,
            "run": first and r.random() < 0.2, "long": r.random() < 0.1}  # fmt: skip


def _send(r: Random) -> Args:
    return {
        "verb": r.choice(("followup", "followup", "followup", "steer", "steer", "inject", "say")),
        "no_wake": r.random() < 0.08,
        "first": r.random() < 0.08,
        "key": f"k{r.randrange(4)}" if r.random() < 0.25 else None,
        "other": r.random() < 0.15,  # under a key: another text than the key's
        "as_": r.choice((None,) * 8 + ("schedule", "job", "hook")),
        "only": r.choice((None,) * 12 + ("idle", "empty", "turn", "late")),
        "gives_up": r.choice((None,) * 12 + (0.0, 0.3)),
        "times": r.choice((1,) * 10 + (2, 3)),  # so many clients at once
        "long": r.random() < 0.06,
        "retry": r.random() < 0.3,  # with a key
        **_more(r),
    }


def _more(r: Random) -> Args:
    """The rarer flags of a send; most have none."""
    if r.random() < 0.75:
        return {}
    kind = r.choice(("in_", "expires", "hold", "tag", "tag", "on_crash", "when_full", "dry_run"))
    values: Args = {"in_": (0.5, 3.0, 30.0), "expires": (0.0, 0.5, 3.0, 30.0), "tag": ("t1", "t2"),
                    "on_crash": ("hold",), "when_full": ("wait",)}  # fmt: skip
    args = {kind: r.choice(values.get(kind, (True,)))}
    return {**args, "supersede": r.random() < 0.7} if kind == "tag" else args


def _ids(r: Random) -> Args:
    return {"at": [r.randrange(50) for _ in range(r.choice((1, 1, 1, 2, 3)))]}


MAKERS: dict[str, Any] = {
    "send": _send,
    "interrupt": lambda r: {"keep": r.random() < 0.3, "key": r.choice((None, None, None, "k0", "k1"))},
    "abort": lambda r: {
        "disposition": r.choice(("keep", "keep", "keep", "clear", "continue")),
        "turn": r.choice((None, None, None, "now", "next")),
        "gives_up": r.choice((None, None, None, 0.0)),
    },
    "wake": lambda r: {},
    "release": lambda r: {"at": r.randrange(50)},
    "move": lambda r: {"how": r.choice(("first", "last", "promote", "demote")), **_ids(r)},
    "remove": _ids,
    "edit": lambda r: {
        "at": r.randrange(50),
        "version": r.choice((None, None, "now", 1)),
        "long": r.random() < 0.1,
    },
    "clear": lambda r: {"queue": r.choice((None, "next-turn", "next-step", "held"))},
    "wait": lambda r: {"at": r.randrange(50), "stay": r.random() < 0.3, "for": r.choice((None, None, 0.5))},
    "wait_idle": lambda r: {"stay": r.random() < 0.2},
    "close": lambda r: {"clear": r.random() < 0.4},
    "reopen": lambda r: {},
    "undo": lambda r: {},
    "retry": lambda r: {"at": r.randrange(50), "named": r.random() < 0.3},
    "wake_all": lambda r: {},
    "rename": lambda r: {"name": r.choice(("one", "two"))},
    "remove_session": lambda r: {"force": r.random() < 0.6},
    "fsck": lambda r: {},
    "fork": lambda r: {"at": r.choice((None, r.randrange(1000)))},
    "copy": lambda r: {},
    "change": lambda r: {"value": r.randrange(1000)},
    "look": lambda r: {},
    "create": _create,
    "rest": lambda r: {},
}
KINDS = (*MAKERS, "answer", "compact")
_WEIGHT = {"send": 40, "interrupt": 5, "abort": 8, "wake": 5, "move": 6, "remove": 3, "edit": 3, "wait": 4,
           "look": 5, "rest": 2, "reopen": 2, "create": 0.7, "change": 0.5, "wait_idle": 1,
           "undo": 2.5, "retry": 4, "remove_session": 0.4, "rename": 0.5, "wake_all": 0.5,
           "copy": 0.5}  # fmt: skip
WEIGHTS = tuple(_WEIGHT.get(kind, 1) for kind in MAKERS)


# --- what the model, the tools and the plugin do ---------------------------------------------------


def _answer(r: Random, n: int) -> Any:
    """("say", text, finish) | ("call", tools, text) | ("error", code, half, after) | ("slow", s, answer)."""
    kind = r.random()
    if kind < 0.35:
        return ("say", f"answer {n}", r.choice(("stop",) * 8 + ("max-tokens", "content-filter")))
    if kind < 0.75:
        return ("call", tuple(_tool(r, n, i) for i in range(r.choice((1, 1, 2, 3)))), r.random() < 0.3)
    if kind < 0.87:
        code = r.choice(("SERVER", "RATE_LIMIT", "STREAM_CLOSED", "AUTH", "TIMEOUT", "EMPTY_RESPONSE"))
        return ("error", code, r.random() < 0.5, r.choice(NAMED))
    if kind < 0.88:
        return ("raise",)
    return ("slow", r.choice((0.01, 0.7, 4.0, 30.0)), _answer(r, n))


NAMED = (None, None, 5.0, 40.0, 900.0, 30_000.0)  # s after which a provider wants to be asked; or no word


def _tool(r: Random, n: int, i: int) -> Any:
    """(tool, seconds, what): `TOOLS` in `world`."""
    name = r.choice(("work", "work", "work", "look", "look", "fail", "tell", "todo", "nothing"))
    return (name, r.choice((0, 0, 0, 0.01, 0.8, 3.0, 60.0)), f"{n}.{i}")


def _verdict(r: Random) -> Any:
    kind = r.choice(("pass", "pass", "pass", "reject", "reject one", "defer", "raise", "add", "drop", "hang"))
    return (kind, r.choice((0.0, 1.5, 20.0)))
