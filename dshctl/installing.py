"""What `dshctl setup` does below ``~/.local/share``: links for pages and completions, and units with the path
of this dshd written into them.

Done twice it changes nothing, and what somebody else put there stays. A link is ours if it leads to a file of
the same name that is ours, or that is no more; a unit is ours if it begins with `MARK`.

*Durability*: a unit is written beside its place and renamed; nothing is synced, for it can be done again.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from dshctl import pages
from dshctl.pages import Given
from dshd.paths import Places

MARK: Final = "# Written by dshctl setup, and again each time; dshctl setup --remove takes it away.\n"
PLACED: Final = ("DSHD_HOME", "DSHD_CONFIG", "DSHD_STATE_DIR", "DSHD_SOCKET")  # what a unit has to be told


class Done(NamedTuple):
    """Paths: ``made`` or changed, ``same`` as they were, ``removed``; ``foreign``: not ours, left alone."""

    made: list[str]
    same: list[str]
    removed: list[str]
    foreign: list[str]


class Installer:
    """``environ``: whose home, and which places the units are to keep to."""

    def __init__(self, environ: Mapping[str, str], places: Places) -> None:
        self._share = pages.data_home(environ)
        self._environ = environ
        self._places = places
        self.done = Done([], [], [], [])

    def install(self) -> None:
        for given in (*pages.manual(), *pages.completions()):
            self._link(given)
        for given in pages.units():
            self._write(given)

    def remove(self) -> None:
        """Only what is ours; directories that are empty then go, too."""
        for given in (*pages.manual(), *pages.completions(), *pages.units()):
            path = self._path(given)
            if not os.path.lexists(path):
                continue
            if not (_is_our_link(path) or _is_our_unit(path)):
                self.done.foreign.append(path)
                continue
            os.unlink(path)
            self.done.removed.append(path)

    def _path(self, given: Given) -> str:
        return os.path.join(self._share, given.target)

    def _link(self, given: Given) -> None:
        path = self._path(given)
        if os.path.islink(path) and os.readlink(path) == given.source:
            self.done.same.append(path)
        elif os.path.realpath(path) == os.path.realpath(given.source):
            self.done.same.append(path)  # an installation's own file
        elif os.path.lexists(path) and not _is_our_link(path):
            self.done.foreign.append(path)
        else:
            _replace(path, lambda new: os.symlink(given.source, new))
            self.done.made.append(path)

    def _write(self, given: Given) -> None:
        path = self._path(given)
        text = MARK + self.unit(pages.read(given.source))
        if _text(path) == text:
            self.done.same.append(path)
        elif os.path.lexists(path) and not _is_our_unit(path):
            self.done.foreign.append(path)
        else:
            _replace(path, lambda new: _put(new, text))
            self.done.made.append(path)

    # -- units

    def unit(self, text: str) -> str:
        """A unit with this installation's programs and places."""
        return "\n".join(self._line(line) for line in text.split("\n"))

    def _line(self, line: str) -> str:
        name, _, value = line.partition("=")
        if name == "ExecStart":
            program, _, rest = value.partition(" ")
            words = [_quoted(word).replace("$", "$$") for word in program_path(program)]
            return f"{name}={' '.join([*words, rest]).rstrip()}"
        if name == "ListenStream" and self._placed():
            return f"{name}={_escaped(self._places.socket)}"
        if line == "[Service]":
            return "\n".join([line, *self._settings()])
        return line

    def _placed(self) -> dict[str, str]:
        return {name: self._environ[name] for name in PLACED if self._environ.get(name)}

    def _settings(self) -> Iterator[str]:
        for name, value in self._placed().items():
            yield f"Environment={_quoted(f'{name}={os.path.abspath(value)}')}"


def program_path(name: str) -> list[str]:
    """The program of this installation, absolute."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    if os.access(beside, os.X_OK):
        return [beside]
    found = shutil.which(name)
    return [os.path.abspath(found)] if found else [sys.executable, "-P", "-m", name]


def _quoted(word: str) -> str:
    escaped = _escaped(word)
    return escaped if escaped.replace("/", "").replace("-", "").replace("_", "").isalnum() else f'"{escaped}"'


def _escaped(word: str) -> str:
    """As systemd takes it: ``%`` names something there."""
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


# -- files


def _is_our_link(path: str) -> bool:
    """It leads to a file of a dshd, there or not any more."""
    if not os.path.islink(path):
        return False
    to = os.readlink(path)
    ours = {os.path.basename(given.source) for given in (*pages.manual(), *pages.completions())}
    return os.path.basename(to) in ours and os.path.isabs(to)


def _is_our_unit(path: str) -> bool:
    return not os.path.islink(path) and (_text(path) or "").startswith(MARK[:30])


def _text(path: str) -> str | None:
    try:
        return pages.read(path)
    except (OSError, UnicodeDecodeError):
        return None


def _put(path: str, text: str) -> None:
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)


def _replace(path: str, make: Callable[[str], object]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = f"{path}.new-{os.getpid()}"
    try:
        make(new)
        os.replace(new, path)
    except BaseException:
        if os.path.lexists(new):
            os.unlink(new)
        raise


# -- what is left to the user


def commands(done: Done, *, running: bool, removing: bool) -> list[str]:
    """What to type, for it is not done here."""
    changed = any(path.endswith((".service", ".socket", ".timer")) for path in (*done.made, *done.removed))
    if removing:
        return ["systemctl --user disable --now dshd.socket dshd.service", "systemctl --user daemon-reload"]
    first = ["systemctl --user daemon-reload"] if changed else []
    stop = ["dshctl daemon stop"] if running else []
    return [*first, *stop, "systemctl --user enable --now dshd.socket dshd.service", "loginctl enable-linger"]


def shell_lines(share: str) -> list[str]:
    """What a shell has to be told that doesn't look below ``share`` by itself."""
    folder = os.path.join(share, os.path.dirname(pages.LOOKED_FOR["zsh"]))
    return [f"zsh, in ~/.zshrc before compinit:  fpath+=({shlex.quote(folder)})"]
