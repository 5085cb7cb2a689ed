"""Words that people type for something else.

`send`, `stop`, `tail` are errors of usage that name the right command, never guesses that run something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from dshctl.base import Mistake
from dshd import __version__, wire
from dshd.plural import count

# Known by the contract, not in this version.
LATER: Final[frozenset[str]] = frozenset()

# What people type, and what they may mean: {word: (what is wrong, commands)}.
NEAR: Final[dict[str, tuple[str, str]]] = {
    "send": (
        '"send" is three things',
        "dshctl followup 'TEXT'     (the next piece of work)\n"
        "dshctl steer 'TEXT'        (correct the running turn)\n"
        "dshctl inject 'TEXT'       (a fact, wakes nobody)",
    ),
    "prompt": (
        '"prompt" is two things: a new session, or the next turn of this one',
        "dshctl run 'TEXT'\ndshctl followup 'TEXT'",
    ),
    "stop": (
        '"stop" is two things. dshctl abort stops the turn that is running; dshctl daemon stop'
        " ends the daemon",
        "",
    ),
    "resume": (
        '"resume" is three things: going on after a park, the last turn once more, or saying more',
        "dshctl wake\ndshctl retry\ndshctl followup 'TEXT'",
    ),
    "start": (
        '"start" is two things: the daemon, or a new piece of work',
        "dshctl daemon start\ndshctl run 'TEXT'",
    ),
    "restart": ('"restart" is a command of the daemon', "dshctl daemon restart"),
    "reload": ('"reload" is a command of the daemon', "dshctl daemon reload"),
    "help": ("there is no command help", "dshctl --help     or: dshctl COMMAND --help"),
}
SYNONYMS: Final[dict[str, str]] = {
    "cancel": "abort",
    "kill": "abort",
    "tail": "log -f",
    "logs": "log",
    "history": "log",
    "cat": "log",
    "view": "log",
    "list": "ls",
    "sessions": "ls",
    "dir": "ls",
    "ps": "status",
    "top": "status",
    "stat": "status",
    "info": "show",
    "delete": "rm",
    "remove": "rm",
    "create": "new",
    "branch": "fork",
    "clone": "fork",
    "copy": "fork",
    "cp": "fork",
    "backup": "export -o FILE",
    "save": "export -o FILE",
    "dump": "export -o FILE",
    "restore": "import FILE",
    "load": "import FILE",
    "exec": "run",
    "init": "setup",
    "session": "ls",
    "pause": "abort",
    "exit": "daemon stop",
    "chat": "attach",
    "connect": "attach",
    "watch": "attach --read",
    "approve": "allow ID",
    "permit": "allow ID",
    "refuse": "deny ID",
    "permissions": "approvals",
    "job": "jobs",
    "bg": "jobs",
    "background": "jobs",
    "say": "followup 'TEXT'",
    "tell": "followup 'TEXT'",
    "ask": "run 'TEXT'",
    "do": "run 'TEXT'",
    "continue": "wake",
    "unpark": "wake",
    "unpause": "wake",
    "redo": "retry",
    "again": "retry",
    "rerun": "retry",
    "repeat": "retry",
    "mv": "rename",
    "output": "answer",
    "result": "answer",
    "pending": "queue",
    "inbox": "queue",
    "model": "models",
    "login": "key ROUTE",
    "auth": "key ROUTE",
    "open": "reopen",
    "version": "--version",
    "check": "config check",
    "repair": "fsck --repair",
    "dshd": "daemon start",
    "stopdaemon": "daemon stop",
    "shutdown": "daemon stop",
    "quit": "daemon stop",
    "note": "inject 'TEXT'",
    "redirect": "steer 'TEXT'",
    "enqueue": "followup 'TEXT'",
    "prioritize": "queue first",
    "promote": "queue promote",
    "demote": "queue demote",
    "edit": "queue edit",
    "clear": "queue clear",
    "undo": "queue undo",
}


def mistaken(word: str, commands: Iterable[str], running: Callable[[], int] = lambda: 0) -> Mistake:
    """What to say of a word that is none of the commands. ``running``: how many turns run."""
    if word in LATER:
        return Mistake(f'"{word}" is not in this version of dshctl ({__version__})', "dshctl --help")
    if word == "stop" and (turns := running()):
        what, hint = NEAR[word]
        return Mistake(f"{what} and with it {count(turns, 'running turn')}", hint)
    if word in NEAR:
        return Mistake(*NEAR[word])
    if word in SYNONYMS:
        return Mistake(f'there is no command "{word}"', f"dshctl {SYNONYMS[word]}")
    close = wire.near(word, commands, most=2)
    hint = "\n".join(f"dshctl {name}" for name in close) or "dshctl --help"
    return Mistake(f'there is no command "{word}"', hint)
