"""The commands in a line of shell, for rules. Sans-IO.

A rule's glob is about one command; a model writes lines. Two questions are asked of a line, and each is
answered on its safe side, for nobody but a shell knows what a shell will do:

- *Is all of it this?* (`all_match`, for an allow.) Yes only if that is plain: nothing that puts in another
  command's words or writes to a file, and each part between separators matches. Quotes are not understood:
  a separator inside of them only makes the answer no.
- *Is any of it this?* (`any_matches`, for an ask or a deny.) Yes if the glob matches the line, a part, or a
  command as it is run: without quotes and backslashes, without the directory of its program, behind
  assignments, behind words that run others (``sudo``, ``xargs``, ``then``), in ``$(...)`` and backticks, and
  in the text that ``sh -c`` or ``eval`` is given, or a shell reads after ``<<<``; and with what stands in
  ``$'...'`` as that means.

A deny is no sandbox: a program can be called in more ways than a list of words holds. It stops what is meant
to be seen.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Final

Matches = Callable[[str], bool]

BLANKS: Final = " \t\n"  # what a shell takes for blank; others are part of a word
SEPARATORS: Final = re.compile(r"[;&|\n(){}`]+")
SUBSTITUTES: Final = re.compile(r"[`<>]|\$[({\[]")
MOST_CODE: Final = 0x10FFFF
DEEPEST: Final = 4  # texts within texts that are looked into
BEHIND: Final = 64  # words behind one that runs others, where the other may stand
LEAST: Final = 200_000  # characters that are read of a line, however short it is; and
MORE: Final = 8  # times its length

ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")
KEYWORDS: Final = frozenset("if then elif else while until do ! time coproc { (".split())  # noqa: SIM905
SHELLS: Final = frozenset("sh bash dash ash zsh ksh mksh busybox eval trap".split())  # noqa: SIM905
_OTHERS: Final = """
    sudo doas command builtin exec env nohup nice ionice chrt taskset setsid stdbuf timeout time xargs
    parallel watch script flock unshare chroot runuser su strace ltrace find fd
"""
RUNNERS: Final = SHELLS | frozenset(_OTHERS.split())


def all_match(command: str, matches: Matches) -> bool:
    """Whether every command of the line matches, plainly."""
    if SUBSTITUTES.search(command):
        return False
    found = [part.strip(BLANKS) for part in SEPARATORS.split(command)]
    found = [part for part in found if part]
    return bool(found) and all(map(matches, found))


def any_matches(command: str, matches: Matches) -> bool:
    """Whether the line, or any command in it, matches. One that is too tangled to say does."""
    parts = [part.strip(BLANKS) for part in SEPARATORS.split(command)]
    if any(map(matches, (command, command.strip(BLANKS), *parts))):
        return True
    left = LEAST + MORE * len(command)
    for reading in _as_run(command, DEEPEST):
        left -= len(reading)
        if left < 0 or matches(reading):
            return True
    return False


def _as_run(line: str, depth: int) -> Iterator[str]:
    """The line's commands as they are run, and those that they run."""
    yield line
    if depth and (meant := ANSI_C.sub(_meant, line)) != line:
        yield from _as_run(meant, depth - 1)
    for written in commands(line):
        words = _without_redirections(written)
        while words and (words[0] in KEYWORDS or ASSIGNMENT.match(words[0])):
            words = words[1:]
        yield from _readings(words)
        if words and _program(words[0]) in RUNNERS:
            yield from _behind(words, depth)
            for text in _here_strings(written) if depth else ():
                yield from _as_run(text, depth - 1)


def _here_strings(words: list[str]) -> Iterator[str]:
    """What a program is given to read by ``<<<``."""
    for at in range(3, len(words)):
        if words[at] != REDIRECTS and words[at - 3 : at] == [REDIRECTS] * 3:
            yield words[at]


ANSI_C: Final = re.compile(r"\$'((?:\\.|[^'\\])*)'", re.DOTALL)
ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
LETTERS: Final = dict(zip("abefnrtvE", "\a\b\x1b\f\n\r\t\v\x1b", strict=True))


def _meant(quoted: re.Match[str]) -> str:
    """``$'r\\x6d'`` as ``rm``."""
    return shlex.quote(ESCAPE.sub(_character, quoted[1]))


def _character(escape: re.Match[str]) -> str:
    hexadecimal, octal, letter = escape[1] or escape[2] or escape[3], escape[4], escape[5]
    if letter is not None:
        return LETTERS.get(letter, letter)
    number = int(hexadecimal, 16) if hexadecimal else int(octal, 8) & 0xFF
    return chr(number) if 0 < number <= MOST_CODE else "\ufffd"


def _without_redirections(words: list[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word != REDIRECTS:
            kept.append(word)
            continue
        if kept and kept[-1].isdigit():
            kept.pop()
        next((target for target in rest if target != REDIRECTS), None)
    return kept


def _readings(words: list[str]) -> Iterator[str]:
    if words:
        yield " ".join(words)
        if "/" in words[0]:
            yield " ".join([_program(words[0]), *words[1:]])


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _behind(words: list[str], depth: int) -> Iterator[str]:
    for at in range(len(words[:BEHIND])):
        yield from _readings(words[at:])
        if depth and _program(words[at]) in SHELLS:
            for text in _texts(words[at + 1 :]):
                yield from _as_run(text, depth - 1)


def _texts(words: list[str]) -> Iterator[str]:
    """What a shell may be given to run: one of its words, or all of them."""
    texts = [word for word in words[:BEHIND] if len(word.split()) > 1 or SEPARATORS.search(word)]
    yield from texts
    if texts and len(words) > 1:
        yield " ".join(words)


# --- words ---------------------------------------------------------------------------------------


def commands(line: str) -> list[list[str]]:
    """The line's commands as lists of words without quotes; one in a substitution is a command of its own.
    What makes no sense ends a word: nothing is refused."""
    reader = _Reader()
    pieces = _PIECES.findall(line)
    for piece in pieces:
        reader.read(piece)
    reader.cut()
    return [words for words in reader.found if words]


REDIRECTS: Final = "\0"  # stands for the operator; no word holds this
_PIECES: Final = re.compile(r"\\.|\$\(|[^\\$'\"`;&|()<> \t\n]+|.", re.DOTALL)
_PLAIN, _SINGLE, _DOUBLE, _TICKS = "", "'", '"', "`"


class _Reader:
    """``inside``: the quotes and substitutions that are open, the innermost last."""

    def __init__(self) -> None:
        self.found: list[list[str]] = [[]]
        self._inside: list[str] = [_PLAIN]
        self._word: list[str] | None = None

    def read(self, piece: str) -> None:
        state = self._inside[-1]
        if state == _SINGLE:
            return self._leave() if piece == "'" else self._take(piece)
        if piece[0] == "\\" and len(piece) == 2:
            return self._take("" if piece == "\\\n" else piece[1])
        if piece in ("$(", "`"):
            return self._substitute(piece)
        if state == _DOUBLE:
            return self._leave() if piece == '"' else self._take(piece)
        return self._bare(piece)

    def _bare(self, piece: str) -> None:
        if piece in ("'", '"'):
            self._take("")
            self._inside.append(piece)
        elif piece in (";", "&", "|", "(", ")", "\n"):
            self.cut()
            if piece == ")":
                self._leave()
        elif piece in ("<", ">"):
            self._end()
            self.found[-1].append(REDIRECTS)
        elif piece in (" ", "\t"):
            self._end()
        else:
            self._take(piece)

    def _substitute(self, piece: str) -> None:
        self.cut()
        if piece == "`" and _TICKS in self._inside:
            del self._inside[self._inside.index(_TICKS) :]
        else:
            self._inside.append(_TICKS if piece == "`" else _PLAIN)

    def _leave(self) -> None:
        if len(self._inside) > 1:
            self._inside.pop()

    def _take(self, text: str) -> None:
        self._word = self._word if self._word is not None else []
        self._word.append(text)

    def _end(self) -> None:
        if self._word is not None:
            self.found[-1].append("".join(self._word))
        self._word = None

    def cut(self) -> None:
        """A command ends here."""
        self._end()
        self.found.append([])
