"""fork, export and import as a person and a script meet them; export without a daemon."""

from __future__ import annotations

import base64
import io
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from dshctl.chat import Chat
from dshd.log.codec import Event, encode
from tests.dshctl.conftest import Dshctl
from tests.dshctl.fake import Drop, Fake, Peer, Refuse
from tests.dshctl.test_offline import EVENTS, ID
from tests.dshctl.test_schemas import EXPORTED, FORKED, IMPORTED, TAR

Json = dict[str, Any]


def gives(fake: Fake, *pieces: bytes) -> None:
    """What `session.export` streams."""

    def stream(peer: Peer, _: Json) -> None:
        for piece in pieces:
            peer.notify("export.piece", {"session": ID, "data": base64.b64encode(piece).decode()})

    fake.during["session.export"] = stream
    fake.answers["session.export"] = EXPORTED


def takes(fake: Fake, answer: Any = None) -> list[bytes]:
    """The pieces that were put, once dshctl has run."""
    put: list[bytes] = []

    def one(params: Json) -> Json:
        assert params.get("upload") == (None if not put else "u1")
        put.append(base64.b64decode(params["data"]))
        return {"type": "attachment", "upload": "u1", "bytes": sum(map(len, put))}

    fake.answers["attachment.put"] = one
    fake.answers["session.import"] = answer or IMPORTED
    return put


# --- fork ------------------------------------------------------------------------------------------


def test_a_fork_says_its_id_and_where_it_begins(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.fork"] = FORKED
    assert dshctl("fork", "api", "--at", "389").out == "s4h8w2c2\n"
    assert fake.asked[-1][1]["session"] == "api"
    assert fake.asked[-1][1]["at"] == 389
    told = dshctl("fork", "-s", "api", "--name", "idea", tty=True).err
    assert told.startswith("api-2: forked from api after turn 11; turn 12 goes on there.")
    assert fake.asked[-1][1]["name"] == "idea"
    fake.answers["session.fork"] = {**FORKED, "turn": None, "runs": None}
    assert "forked from api before its first turn." in dshctl("fork", tty=True).err


def test_a_fork_inside_a_turn_names_the_commands_that_would_do(dshctl: Dshctl, fake: Fake) -> None:
    hint = "dshctl fork --at 389 api     or: dshctl fork --at 413 api"
    fake.answers["session.fork"] = Refuse("CONFLICT", "not forked", hint=hint, nearest=[389, 413])
    ran = dshctl("fork", "--at", "400", "--json")
    assert (ran.code, ran.last["nearest"]) == (5, [389, 413])
    assert hint in ran.err
    assert dshctl("fork", "--name", "s1234567").code == 2
    assert dshctl("fork", "--at", "-1").code == 2


# --- export ----------------------------------------------------------------------------------------


def test_an_export_is_on_standard_output_as_it_came(dshctl: Dshctl, fake: Fake) -> None:
    gives(fake, b"one\n", b"two")
    ran = dshctl("export", "api")
    assert (ran.code, ran.out) == (0, "one\ntwo")


def test_an_export_to_a_file_is_private_and_whole_or_not_there(
    dshctl: Dshctl, fake: Fake, tmp_path: Path
) -> None:
    gives(fake, b"one", b"\x00\xff")
    file = tmp_path / "api.tar"
    file.write_bytes(b"the old one")
    ran = dshctl("export", "--json", "-o", str(file), "api")
    assert file.read_bytes() == b"one\x00\xff"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ran.last["file"] == str(file)
    fake.answers["session.export"] = Drop()
    assert dshctl("export", "-o", str(file), "api").code == 3
    assert file.read_bytes() == b"one\x00\xff"
    fake.answers["session.export"] = Refuse("NOT_FOUND", 'no session "apy"')
    fake.during.clear()
    other = tmp_path / "other.tar"
    assert dshctl("export", "-o", str(other), "apy").code == 4
    assert dshctl("export", "-o", str(tmp_path / "no" / "x.tar"), "api").code != 0
    assert [name for name in os.listdir(tmp_path) if "tar" in name or "export" in name] == ["api.tar"]


def test_a_link_and_a_device_are_written_through(dshctl: Dshctl, fake: Fake, tmp_path: Path) -> None:
    gives(fake, b"data")
    (tmp_path / "real.tar").write_bytes(b"old")
    (tmp_path / "link.tar").symlink_to("real.tar")
    assert dshctl("export", "-o", str(tmp_path / "link.tar")).code == 0
    assert (tmp_path / "link.tar").is_symlink()
    assert (tmp_path / "real.tar").read_bytes() == b"data"
    assert dshctl("export", "-o", "/dev/null").code == 0


def test_no_tar_goes_to_a_terminal_or_between_json(dshctl: Dshctl, fake: Fake) -> None:
    gives(fake, b"data")
    told = dshctl("export", "api", tty=True)
    assert (told.code, told.out) == (2, "")
    assert "dshctl export -o FILE" in told.err
    assert dshctl("export", "--json", "api").code == 2
    assert not fake.asked


def test_an_export_that_nobody_reads_to_its_end_is_no_success(dshctl: Dshctl, fake: Fake) -> None:
    gives(fake, *[b"x" * 100_000] * 20)
    reading, writing = os.pipe()
    os.close(reading)
    ran = dshctl.process("export", "api", stdin=None)
    assert ran.code == 0
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run([sys.executable, "-m", "dshctl.cli", "export", "api"], env=dshctl.environ,
                              stdout=pipe, stderr=subprocess.PIPE, timeout=30, check=False)  # fmt: skip
    assert done.returncode == 1
    assert b"cannot write to standard output" in done.stderr


def unpacked(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        return {m.name: read.extractfile(m).read() for m in read.getmembers()}  # type: ignore[union-attr]


@pytest.mark.parametrize("log", ["good", "damaged", "torn"])
def test_without_a_daemon_a_session_is_exported_from_its_files_in_any_state(
    dshctl: Dshctl, tmp_path: Path, log: str
) -> None:
    lines = [encode(event) for event in EVENTS]
    if log == "damaged":
        lines[4] = b"x" * len(lines[4])
        lines.append(encode(Event(28, 1, "session/closed", {}, synced=27)))
    raw = b"".join(lines) + (b'{"seq":' if log == "torn" else b"")
    directory = dshctl.state / "sessions" / ID
    directory.mkdir(parents=True)
    (directory / "log.jsonl").write_bytes(raw)
    (directory / "env.json").write_text('{"MY_TOKEN":"secret"}')
    file = tmp_path / "out.tar"
    ran = dshctl("export", "--json", "-o", str(file), ID)
    assert ran.code == 0, ran.err
    found = unpacked(file.read_bytes())
    assert set(found) == {f"{ID}/session.json", f"{ID}/log.jsonl"}
    assert found[f"{ID}/log.jsonl"] == raw
    assert not (dshctl.state / "lock").exists()
    assert (directory / "log.jsonl").read_bytes() == raw


def test_without_a_daemon_what_has_no_log_is_not_exported(dshctl: Dshctl) -> None:
    (dshctl.state / "sessions" / ID).mkdir(parents=True)
    ran = dshctl("export", ID)
    assert (ran.code, ran.out) == (7, "")
    assert f"dshctl rm {ID}" in ran.err
    assert dshctl("export", "nope").code == 4


# --- import ----------------------------------------------------------------------------------------


def test_a_file_is_put_in_pieces_and_then_taken(dshctl: Dshctl, fake: Fake, tmp_path: Path) -> None:
    data = TAR + os.urandom(900_000)
    (tmp_path / "api.tar").write_bytes(data)
    put = takes(fake)
    ran = dshctl("import", str(tmp_path / "api.tar"), "--as-new", "--repair", LANG="C.UTF-8")
    assert ran.out == "s4h8w2c1\n"
    assert b"".join(put) == data
    assert len(put) == 3
    asked = fake.asked[-1][1]
    assert (asked["upload"], asked["as_new"], asked["repair"]) == ("u1", True, True)
    assert asked["env"]["LANG"] == "C.UTF-8"


def test_standard_input_is_a_file_too_but_no_terminal(dshctl: Dshctl, fake: Fake) -> None:
    put = takes(fake)
    assert dshctl("import", "-", stdin=TAR).code == 0
    assert put == [TAR]
    assert dshctl("import", "-").code == 2
    assert dshctl("import", "-", stdin=b"").code == 2
    assert dshctl("import", "/no/such.tar").code == 4
    assert dshctl("import").code == 2


def test_what_is_another_than_it_was_is_said(dshctl: Dshctl, fake: Fake) -> None:
    takes(fake)
    told = dshctl("import", "-", stdin=TAR, tty=True)
    assert "api: imported, parked with 3 messages; turn 12 was cut off." in told.err
    assert "dshctl wake -s api" in told.err
    takes(fake, {**IMPORTED, "pending": 0})
    told = dshctl("import", "-", stdin=TAR, tty=True)
    assert "api: imported, idle; turn 12 was cut off." in told.err  # as ls says, for nothing waits
    changed = {
        "name": "api-2", "dir_exists": False, "repaired": True, "lost": 1, "mode": "full", "pending": 0,
        "turn": None, "closed": True,
    }  # fmt: skip
    takes(fake, {**IMPORTED, **changed})
    told = dshctl("import", "-", stdin=TAR, tty=True)
    for part in (
        '"api" is taken here', "does not exist here: dshctl set -s api-2 dir=DIR", "was damaged",
        "1 attachment", "mode=workspace", "api-2: imported, closed.", "dshctl followup -s api-2",
    ):  # fmt: skip
        assert part in told.err


def test_a_refusal_names_the_command_with_the_file_as_typed(
    dshctl: Dshctl, fake: Fake, tmp_path: Path
) -> None:
    file = tmp_path / "api.tar"
    file.write_bytes(TAR)
    takes(fake, Refuse("DAMAGED", "not imported", hint="dshctl import --repair FILE"))
    ran = dshctl("import", str(file))
    assert ran.code == 7
    assert f"dshctl import --repair {file}" in ran.err


def test_what_is_no_export_is_refused_before_it_is_handed_over(
    dshctl: Dshctl, fake: Fake, tmp_path: Path
) -> None:
    takes(fake)
    for data, told in (
        (b"hello", "no tar"), (bytes(2000), "empty"),
        (b"\x1f\x8b" + bytes(600), "gunzip < FILE | dshctl import"),
    ):  # fmt: skip
        ran = dshctl("import", "-", stdin=data)
        assert ran.code == 2
        assert told in ran.err
    assert dshctl("import", "/dev/zero").code == 2
    assert not fake.asked


@pytest.mark.parametrize(
    ("word", "hint"), [("clone", "dshctl fork"), ("backup", "dshctl export"), ("restore", "dshctl import")]
)
def test_near_words_name_the_right_command(dshctl: Dshctl, word: str, hint: str) -> None:
    ran = dshctl(word, "api")
    assert ran.code == 2
    assert hint in ran.err


# --- rm --------------------------------------------------------------------------------------------


def test_rm_takes_the_session_as_an_option_too_and_needs_one(dshctl: Dshctl, fake: Fake) -> None:
    fake.answers["session.delete"] = {"type": "removed", "exit": 0, "session": "s4h8w2c1", "name": "api"}
    assert dshctl("rm", "--yes", "-s", "api").code == 0
    assert [params["session"] for method, params in fake.asked if method == "session.delete"] == ["api"]
    assert dshctl("rm", "--yes", DSHD_SESSION="api").code == 2


def test_the_conversation_says_where_a_session_was_forked_or_imported() -> None:
    chat = Chat(80, now=lambda: 0)
    data = {"session": "s4h8w2c1", "seq": 389, "title": "", "by": {"kind": "user", "tty": "pts/3"}}
    (forked, _) = chat.feed({"type": "session/forked", "time": 0, "data": data})
    assert forked.startswith("-- forked from s4h8w2c1 at event 389 --")
    (imported, _) = chat.feed({"type": "session/imported", "time": 0, "data": {"by": {"kind": "user"}}})
    assert imported.startswith("-- imported ")
    assert " by you --" in imported
    chat.feed({"type": "turn/start", "time": 0, "data": {"turn": 1}})
    lines = chat.feed({"type": "turn/end", "time": 0, "data": {
        "turn": 1, "reason": "interrupted", "cause": "import", "recovery": True}})  # fmt: skip
    assert "it was exported while it ran" in "\n".join(lines)
