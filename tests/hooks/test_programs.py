"""Hooks whose program is not there are said before an event finds out."""

from __future__ import annotations

from pathlib import Path

from dshd.config import Config, Hook, Notify
from dshd.hooks.programs import missing


def hooks(*commands: str | list[str]) -> Config:
    return Config(hooks=[Hook(event="pre_step", command=command) for command in commands])


def test_a_program_that_is_nowhere_is_named_with_its_place(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o700)
    config = hooks(["there"], [str(there), "x"], ["gone"], str(tmp_path / "gone") + " -v")
    assert missing(config, str(tmp_path)) == [
        "hooks[2].command runs gone, and there is no such program",
        f"hooks[3].command runs {tmp_path}/gone, and there is no such program",
    ]


def test_what_only_a_shell_or_a_session_knows_is_not_guessed(tmp_path: Path) -> None:
    guessed = hooks(
        "~/bin/check", "$HOME/check", "if true; then true; fi", "check", ["./check"], "(cd /; gone)"
    )
    assert missing(guessed, str(tmp_path)) == []


def test_the_notify_command_is_one_of_them() -> None:
    config = Config(notify=Notify(command=["notify-nobody"]))
    assert missing(config, "/usr/bin") == ["notify.command runs notify-nobody, and there is no such program"]
