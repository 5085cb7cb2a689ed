"""Sessions that go elsewhere and come back, with the real programs: fork, export, import, copies, rm."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import CONFIG
from tests.e2e.harness import PROGRAMS, Home, eventually, texts
from tests.e2e.model import Model, bash, script

LONG = "a long line of text\n" * 5000


@pytest.fixture
def elsewhere(model: Model) -> Iterator[Home]:
    """Another state directory, as on another machine."""
    with Home(CONFIG.format(url=model.url)) as home:
        yield home


def packed(home: Home, *args: str) -> bytes:
    done = subprocess.run([PROGRAMS / "dshctl", "export", *args], env=home.env, cwd=home.work,
                          capture_output=True, timeout=30, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def hold(home: Home, model: Model, *after: dict[str, str]) -> str:
    """A turn that waits for the model; the id of its message."""
    before = len(model.requests)
    id = home.ok("followup", "-s", "api", script({"gate": "g", "text": "answered"}, *after, say="held work"))
    model.wait_requests(before + 1)
    return id


def test_a_fork_remembers_and_the_two_go_their_ways(home: Home, model: Model) -> None:
    home.start()
    home.ok("new", "--name", "api")
    home.ok(
        "followup", "-s", "api", "--wait", script(bash("echo from-the-tool"), {"text": "noted"}, say="first")
    )
    home.ok("followup", "-s", "api", "--wait", LONG)
    running = hold(home, model)
    home.ok("followup", "-s", "api", "waits in the parent")
    (made,) = home.json("fork", "api")
    assert (made["name"], made["turn"], made["runs"]) == ("api-2", 2, 3)
    home.ok("followup", "-s", "api-2", "--wait", "only-in-the-fork")
    sent = json.dumps(model.requests[-1])
    for text in ("first", "from-the-tool", "noted", "a long line of text"):
        assert text in sent
    assert "held work" not in sent
    model.open("g")
    assert home.ctl("wait", running).returncode == 0
    home.ok("wait", "-s", "api")
    assert "only-in-the-fork" not in json.dumps(model.requests[-1])
    inside = home.wait_event("user/message", session=made["session"])["seq"]
    (refused,) = home.json("fork", "api-2", "--at", str(inside), exit=5)
    for seq in refused["nearest"]:
        home.ok("fork", "api-2", "--at", str(seq))
    home.ok("rm", "--yes", "api")
    assert "requests made again" in home.ok("fsck", "--requests", "api-2")
    assert home.ok("answer", "-s", "api-2") == "echo: only-in-the-fork"
    assert "first" in home.ok("log", "--all", "-s", "api-2")


def test_a_running_session_is_exported_and_comes_up_parked_elsewhere(
    home: Home, elsewhere: Home, model: Model
) -> None:
    home.start()
    id = home.ok("new", "--name", "api")
    running = hold(home, model)
    home.ok("steer", "-s", "api", "a correction")
    waiting = home.ok("followup", "-s", "api", "the next piece")
    data = packed(home, "api")
    here = home.ctl("import", "-", input=data)
    assert here.returncode == 5
    assert "--as-new" in here.stderr
    copy = home.ctl("import", "--as-new", "-", input=data).stdout.strip()
    assert copy != id
    requests = len(model.requests)
    (made,) = elsewhere.json("import", "-", input=data)
    assert (made["session"], made["turn"], made["pending"]) == (id, 1, 2)
    assert elsewhere.ctl("wait", "-s", "api").returncode == 18
    elsewhere.ok("daemon", "restart")
    (view,) = elsewhere.json("show", "api")
    assert (view["state"], view["parked"]["by"]) == ("parked", "import")
    assert len(model.requests) == requests
    model.open("g")
    elsewhere.ok("wake", "-s", "api")
    elsewhere.ok("wait", "-s", "api")
    assert {"a correction", "the next piece"} <= set(texts(elsewhere.said(id)))
    assert "requests made again" in elsewhere.ok("fsck", "--requests", "api")
    assert home.ctl("wait", running, waiting).returncode == 0
    (view,) = home.json("show", copy)
    assert view["state"] == "parked"


def test_what_was_exported_without_a_daemon_is_the_same_and_starts_none(
    home: Home, elsewhere: Home, model: Model, tmp_path: Path
) -> None:
    home.start()
    id = home.ok("new", "--name", "api", "--env", "MY_TOKEN", env={**home.env, "MY_TOKEN": "very-secret"})
    home.ok("followup", "-s", "api", "--wait", LONG)
    with_daemon = packed(home, "api")
    home.ok("daemon", "stop")
    file = tmp_path / "api.tar"
    home.ok("export", "-o", str(file), "api")
    assert home.ctl("ping").returncode == 3
    assert b"very-secret" not in file.read_bytes() + with_daemon
    assert (home.state / "sessions" / id / "log.jsonl").read_bytes() in file.read_bytes()
    elsewhere.ok("import", str(file))
    assert texts(elsewhere.said(id)) != []
    elsewhere.ok("followup", "-s", "api", "--wait", "goes on")
    assert "a long line of text" in json.dumps(model.requests[-1])
    assert "goes on" in json.dumps(model.requests[-1])


def test_a_damaged_session_is_saved_by_export_and_import(home: Home, elsewhere: Home, model: Model) -> None:
    home.start()
    id = home.ok("new", "--name", "api")
    home.ok("followup", "-s", "api", "--wait", "first")
    home.ok("followup", "-s", "api", "--wait", "second")
    home.ok("daemon", "stop")
    log = home.state / "sessions" / id / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:4], b"#" * len(lines[4]), *lines[5:]]))
    data = packed(home, id)
    home.start()
    assert packed(home, id)[512:] != b""
    refused = elsewhere.ctl("import", "-", input=data)
    assert refused.returncode == 7
    assert "dshctl import --repair FILE" in refused.stderr
    (made,) = elsewhere.json("import", "--repair", "-", input=data)
    assert made["repaired"]
    elsewhere.ok("followup", "-s", id, "--wait", "third")
    home.ok("rm", "--yes", id)
    assert home.sessions() == []


def test_a_copy_of_the_directory_taken_at_any_instant_opens(
    home: Home, elsewhere: Home, model: Model, tmp_path: Path
) -> None:
    """While turns stream, call tools and end, the directory is copied again and again."""
    home.start()
    id = home.ok("new", "--name", "api")
    words = " ".join(f"word{n}" for n in range(400))
    items = [bash("echo x"), {"text": words}, bash("echo y"), {"text": words}]
    last = [home.ok("followup", "-s", "api", script(*items, say=f"work {n}")) for n in range(6)][-1]
    copies = 0
    waiting = home.popen("wait", last)
    while waiting.poll() is None:
        shutil.copytree(home.state / "sessions" / id, tmp_path / str(copies))
        copies += 1
    assert copies > 5
    place = elsewhere.state / "sessions" / id
    for n in {*range(0, copies, max(1, copies // 4)), copies - 1}:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(tmp_path / str(n), place)
        (told,) = elsewhere.json("fsck", id)
        assert told["ok"], told
    daemon = elsewhere.start()
    assert elsewhere.ok("followup", "-s", id, "--wait", script({"text": "fine"}, say="here")) == "fine"
    elsewhere.ok("daemon", "stop")
    daemon.wait()
    shutil.rmtree(place)
    shutil.copytree(tmp_path / str(copies // 2), place)  # in the middle of the work
    elsewhere.start()
    assert elsewhere.ok("followup", "-s", id, "--wait", script({"text": "fine"}, say="here")) == "fine"
    assert elsewhere.json("fsck", id)[0]["ok"]


def test_a_copy_beside_the_original_is_never_driven_and_can_become_a_session_of_its_own(
    home: Home, model: Model
) -> None:
    home.start()
    id = home.ok("new", "--name", "api")
    home.ok("followup", "-s", "api", "--wait", "first")
    home.ok("daemon", "stop")
    shutil.copytree(home.state / "sessions" / id, home.state / "sessions" / f"{id}-copy")
    (offline,) = [view for view in home.json("ls", "--all") if view.get("id") == f"{id}-copy"]
    home.start()
    (shown,) = [view for view in home.json("ls", "--all") if view.get("id") == f"{id}-copy"]
    assert (offline["name"], offline["state"]) == (shown["name"], shown["state"]) == (f"{id}-copy", "damaged")
    refused = home.ctl("followup", "-s", f"{id}-copy", "anything")
    assert refused.returncode == 7
    assert f"dshctl export {id}-copy | dshctl import --as-new -" in refused.stderr
    home.ok("followup", "-s", "api", "--wait", "second")
    new = home.ctl("import", "--as-new", "-", input=packed(home, f"{id}-copy")).stdout.strip()
    home.ok("rm", "--yes", f"{id}-copy")
    home.ok("followup", "-s", new, "--wait", "third")
    assert set(home.sessions()) == {id, new}


def test_rm_refuses_asks_and_ends_who_follows(home: Home, model: Model) -> None:
    home.start()
    id = home.ok("new", "--name", "api")
    running = hold(home, model)
    follower = home.popen("log", "-f", "api")
    waiter = home.popen("wait", running)
    assert home.ctl("rm", "--yes", "api").returncode == 5
    assert home.ctl("rm", "api").returncode == 2
    assert home.ctl("rm", "--yes", "ap").returncode == 4
    assert home.ctl("rm", "--yes", id[:5]).returncode == 4
    home.wait_event("user/message", session=id)
    home.ok("rm", "--yes", "--force", "api")
    _out, told = waiter.communicate(timeout=20)
    assert waiter.returncode in (4, 12), told
    _out, told = follower.communicate(timeout=20)
    assert follower.returncode != 0 or told, "the follower ended without a word"
    eventually(lambda: home.sessions() == [])
    assert home.ctl("show", id).returncode == 4
