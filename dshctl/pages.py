"""The files that come with the programs (pages, completions, units): where they are, and where a user's own
programs look for them.

In a checkout they stand beside the packages; an installation has them in its ``share``. A user's are below
``~/.local/share``: man finds that by itself, bash-completion, fish and systemd too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

Json = dict[str, Any]
HERE: Final = os.path.dirname(os.path.abspath(__file__))
CHECKOUT: Final = os.path.dirname(HERE)
PAGE: Final = os.path.join("man", "man1", "dshctl.1")
SECTIONS: Final = "1578"
COMPLETIONS: Final = {
    shell: os.path.join(HERE, "completions", name)
    for shell, name in (("bash", "dshctl.bash"), ("zsh", "_dshctl"), ("fish", "dshctl.fish"))
}
LOOKED_FOR: Final = {  # where each shell looks, below ``share``
    "bash": "bash-completion/completions/dshctl",
    "zsh": "zsh/site-functions/_dshctl",
    "fish": "fish/vendor_completions.d/dshctl.fish",
}


class Given(NamedTuple):
    """A file that comes along: where it is, and where it belongs below ``share``."""

    source: str
    target: str


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def manual() -> list[Given]:
    """The manual pages."""
    found = []
    for folder in _folders("man", *(f"man/man{section}" for section in SECTIONS)):
        names = (name for name in sorted(os.listdir(folder)) if name.startswith(("dshctl", "dshd")))
        found += [Given(os.path.join(folder, name), f"man/man{name[-1]}/{name}") for name in names]
    return found


def completions() -> list[Given]:
    return [Given(COMPLETIONS[shell], target) for shell, target in LOOKED_FOR.items()]


def units() -> list[Given]:
    """The systemd user units."""
    found = []
    for folder in _folders("systemd", "systemd/user"):
        names = (name for name in sorted(os.listdir(folder)) if name.startswith("dshd"))
        found += [Given(os.path.join(folder, name), f"systemd/user/{name}") for name in names]
    return found


def _folders(beside: str, *installed: str) -> list[str]:
    """Where such files are: in the checkout, else in the first ``share`` that has them."""
    checkout = os.path.join(CHECKOUT, beside)
    if os.path.isdir(checkout):
        return [checkout]
    for share in _shares():
        there = [path for each in installed if os.path.isdir(path := os.path.join(share, each))]
        if os.path.exists(os.path.join(share, PAGE)):
            return there
    return []


def _shares() -> Iterator[str]:
    import site

    yield os.path.join(sys.prefix, "share")
    yield os.path.join(site.getuserbase(), "share")
    yield from ("/usr/local/share", "/usr/share")


def data_home(environ: Mapping[str, str]) -> str:
    """``~/.local/share``."""
    said = environ.get("XDG_DATA_HOME", "")
    return said if os.path.isabs(said) else os.path.join(environ.get("HOME") or "/", ".local", "share")


# -- for doctor


def checks(environ: Mapping[str, str]) -> Iterator[Json]:
    """Whether ``man dshctl`` finds its page."""
    link = os.path.join(data_home(environ), PAGE)
    if os.path.lexists(link) and not os.path.exists(link):
        yield _check("warn", "their links lead nowhere any more")
    elif any(os.path.exists(os.path.join(share, PAGE)) for share in _looked_at(environ)):
        yield _check("ok", "manual pages are where man looks")
    else:
        yield _check("warn", "manual pages are not where man looks")


def _looked_at(environ: Mapping[str, str]) -> Iterator[str]:
    """Where man looks by itself: the user's, the machine's, and beside each directory on PATH."""
    yield data_home(environ)
    yield from ("/usr/local/share", "/usr/share")
    for folder in filter(os.path.isabs, environ.get("PATH", "").split(":")):
        yield os.path.join(os.path.dirname(folder), "share")


def _check(level: str, what: str) -> Json:
    fix = "dshctl setup" if level != "ok" else None
    return {"type": "check", "check": "pages", "level": level, "what": what, "fix": fix}
