"""What a session may reach, tried through the tools themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshd.tools import containment
from dshd.tools.tool import Rule, ToolContext
from tests.tools.doubles import context, execute

OUTSIDE = [
    "../outside/x",
    "/tmp/../{outside}/x",
    "a/../../outside/x",
    "{outside}/x",
    "link/x",
    "link/../outside/x",
    "deep/link2/x",
    "file-link",
    "/proc/self/root{outside}/x",
    "/proc/self/cwd/../../../../../..{outside}/x",
    "~/x",
]


@pytest.fixture
def linked(place: Path) -> Path:
    """A work directory full of links that lead out of it."""
    outside = place.parent / "outside"
    (outside / "secret").write_text("old")
    (place / "link").symlink_to(outside)
    (place / "deep").mkdir()
    (place / "deep/link2").symlink_to("../link")
    (place / "file-link").symlink_to(outside / "secret")
    return place


@pytest.mark.parametrize("path", OUTSIDE)
async def test_nothing_is_written_outside_of_the_directory_by_any_way_there(linked: Path, path: str) -> None:
    outside = linked.parent / "outside"
    before = sorted(os.listdir(outside)), sorted(os.listdir(linked.parent / "home"))
    output = await execute(context(linked), "write", path=path.format(outside=outside), content="new")
    assert output.error == "DENIED"
    assert "outside of the session's directory" in output.text
    assert (sorted(os.listdir(outside)), sorted(os.listdir(linked.parent / "home"))) == before
    assert (outside / "secret").read_text() == "old"


async def test_an_edit_through_a_link_that_leads_out_is_denied(linked: Path) -> None:
    output = await execute(context(linked), "edit", path="file-link", old_string="old", new_string="new")
    assert output.error == "DENIED"
    assert (linked.parent / "outside/secret").read_text() == "old"


async def test_a_link_to_nothing_outside_is_not_a_way_to_make_something_there(place: Path) -> None:
    (place / "dangling").symlink_to(place.parent / "outside" / "new")
    output = await execute(context(place), "write", path="dangling", content="x")
    assert output.error == "DENIED"
    assert not (place.parent / "outside" / "new").exists()


async def test_links_that_go_in_circles_are_an_error_not_a_hang(place: Path) -> None:
    (place / "a").symlink_to("b")
    (place / "b").symlink_to("a")
    assert (await execute(context(place), "read", path="a")).is_error
    assert (await execute(context(place), "write", path="a", content="x")).is_error


@pytest.mark.parametrize("path", ["a/" * 3000 + "x", "a/" + "n" * 256 + "/x", "a/" + "ü" * 128])
async def test_for_a_path_that_no_file_can_have_no_directory_is_made(place: Path, path: str) -> None:
    output = await execute(context(place), "write", path=path, content="x")
    assert (output.error, output.text) == ("ENAMETOOLONG", "the path is too long")
    assert not (place / "a").exists()


async def test_links_inside_of_the_directory_may_be_followed(place: Path) -> None:
    (place / "real").mkdir()
    (place / "link").symlink_to("real")
    assert not (await execute(context(place), "write", path="link/a", content="x")).is_error
    assert (place / "real/a").read_text() == "x"


async def test_a_session_directory_that_is_a_link_itself_works(place: Path) -> None:
    (place.parent / "alias").symlink_to(place)
    ctx = context(place.parent / "alias")
    assert not (await execute(ctx, "write", path="a", content="x")).is_error
    assert (await execute(ctx, "write", path="../outside/a", content="x")).error == "DENIED"


async def test_a_directory_whose_name_begins_like_the_sessions_is_outside(place: Path) -> None:
    (place.parent / "work2").mkdir()
    (place.parent / "Work").mkdir()
    for name in ("work2", "Work"):
        assert (await execute(context(place), "write", path=f"../{name}/a", content="x")).error == "DENIED"


@pytest.mark.parametrize(("mode", "code"), [("read-only", "DENIED"), ("workspace", "DENIED"), ("full", None)])
async def test_the_mode_decides_what_may_be_written_outside(place: Path, mode: str, code: str | None) -> None:
    path = str(place.parent / "outside" / "a")
    assert (await execute(context(place, mode=mode), "write", path=path, content="x")).error == code


async def test_in_read_only_nothing_is_written_and_it_says_who_can_change_that(place: Path) -> None:
    (place / "a").write_text("old")
    ctx = context(place, mode="read-only", rules=(Rule("allow", tool="write"),))
    output = await execute(ctx, "write", path="a", content="x")
    assert "dshctl set mode=workspace" in output.text
    assert (await execute(ctx, "edit", path="a", old_string="old", new_string="x")).error == "DENIED"
    assert (place / "a").read_text() == "old"
    assert (await execute(ctx, "read", path="a")).text == "     1\told"


@pytest.mark.parametrize(
    "path",
    [
        ".ssh/authorized_keys",
        ".SSH/config",
        "home/you/.ssh/id_rsa",
        ".gnupg/gpg.conf",
        ".bashrc",
        "dotfiles/.zshenv",
        ".profile",
        ".config/autostart/x.desktop",
        "etc/autostart/x.desktop",
        ".config/systemd/user/x.service",
        ".config/fish/config.fish",
        ".gitconfig",
        ".git",
        ".git/config",
        ".git/hooks/pre-commit",
        ".GIT/hooks/pre-commit",
        "sub/.git/hooks/post-checkout",
        ".git/modules/lib/hooks/pre-commit",
        ".git/modules/lib/config",
        ".git/worktrees/w/config.worktree",
        ".config/dshd/config.toml",
        "a/../.git/hooks/pre-commit",
    ],
)
async def test_places_that_run_by_themselves_are_never_writable_in_workspace(place: Path, path: str) -> None:
    ctx = context(place, rules=(Rule("allow"),))
    output = await execute(ctx, "write", path=path, content="x")
    assert output.error == "DENIED"
    assert "never writable" in output.text
    assert not any(files for _, _, files in os.walk(place))


@pytest.mark.parametrize(
    "path",
    [
        ".github/workflows/ci.yml",
        ".gitignore",
        ".git/info/exclude",
        ".git/refs/heads/config",
        "src/config",
        "hooks/use_state.py",
        "systemd/dshd.service",
        "rootfs/etc/cron.d/job",
        "ssh/config",
    ],
)
async def test_names_that_only_look_like_them_are_writable(place: Path, path: str) -> None:
    assert not (await execute(context(place), "write", path=path, content="x")).is_error


@pytest.mark.parametrize("path", ["link/pre-commit", "store.git/config", "store.git/hooks/update"])
async def test_git_directories_of_any_name_are_protected_and_links_to_them_too(
    place: Path, path: str
) -> None:
    (place / ".git/hooks").mkdir(parents=True)
    (place / "link").symlink_to(".git/hooks")
    for part in ("objects", "refs", "hooks"):
        (place / "store.git" / part).mkdir(parents=True)
    (place / "store.git/HEAD").write_text("ref: refs/heads/main\n")
    assert (await execute(context(place), "write", path=path, content="x")).error == "DENIED"


async def test_dshds_own_directories_are_never_writable_even_as_the_sessions_directory(place: Path) -> None:
    own = place.parent / "config"
    ctx = context(place, dir=own)
    assert "belongs to dshd" in (await execute(ctx, "write", path="config.toml", content="x")).text


HIDDEN = ["{state}/key", "../state/key", "link/key", "/proc/self/root{state}/key", "key-link"]


@pytest.mark.parametrize("mode", ["read-only", "workspace", "full"])
@pytest.mark.parametrize("path", HIDDEN)
async def test_hidden_places_are_not_readable_in_any_mode_by_any_way_there(
    place: Path, path: str, mode: str
) -> None:
    state = place.parent / "state"
    (state / "key").write_text("sk-123")
    (place / "link").symlink_to(state)
    (place / "key-link").symlink_to(state / "key")
    output = await execute(context(place, mode=mode), "read", path=path.format(state=state))
    assert output.error == "DENIED"
    assert "sk-123" not in output.text


async def test_a_hidden_directory_does_not_tell_its_names(place: Path) -> None:
    (place.parent / "state/key-of-mine").write_text("x")
    for path in ("../state", "../state/key-of-min"):
        assert "key-of-mine" not in (await execute(context(place), "read", path=path)).text


async def test_a_hidden_file_is_known_under_another_name(place: Path) -> None:
    (place.parent / "state/key").write_text("sk-123")
    os.link(place.parent / "state/key", place / "innocent")
    ctx = context(place, hidden=(place.parent / "state/key",))
    assert (await execute(ctx, "read", path="innocent")).error == "DENIED"


async def test_spilled_output_in_the_hidden_state_may_be_read(ctx: ToolContext) -> None:
    ctx.spill_dir.mkdir(parents=True)
    (ctx.spill_dir / "out.txt").write_text("the whole\n")
    assert "the whole" in (await execute(ctx, "read", path=str(ctx.spill_dir / "out.txt"))).text
    (ctx.spill_dir.parent / "log.jsonl").write_text("{}")
    assert (await execute(ctx, "read", path=str(ctx.spill_dir / "../log.jsonl"))).error == "DENIED"


@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/1/environ", "/proc/thread-self/maps", "/proc/self/fd/0"]
)
async def test_the_insides_of_processes_are_not_readable(place: Path, path: str) -> None:
    output = await execute(context(place, mode="full"), "read", path=path)
    assert output.is_error
    assert "PATH=" not in output.text


async def test_a_link_put_in_place_after_the_check_is_not_followed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.parent / "state/key").write_text("sk-123")
    (place / "a").write_text("harmless")
    inner = containment._open

    def swapped(*args: object) -> int:
        (place / "a").unlink()
        (place / "a").symlink_to(place.parent / "state/key")
        return inner(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(containment, "_open", swapped)
    output = await execute(context(place), "read", path="a")
    assert output.is_error
    assert "sk-123" not in output.text


@pytest.mark.parametrize("tool", ["read", "write"])
async def test_a_directory_swapped_after_the_check_is_noticed(
    place: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    (place.parent / "state/a").write_text("sk-123")
    (place / "d").mkdir()
    (place / "d/a").write_text("harmless")
    inner = containment._open

    def swapped(*args: object) -> int:
        (place / "d").rename(place / "gone")
        (place / "d").symlink_to(place.parent / "state")
        return inner(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(containment, "_open", swapped)
    more = {"content": "mine"} if tool == "write" else {}
    output = await execute(context(place), tool, path="d/a", **more)
    assert output.is_error
    assert "sk-123" not in output.text
    assert (place.parent / "state/a").read_text() == "sk-123"
