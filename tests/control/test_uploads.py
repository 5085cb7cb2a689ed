"""Long texts and files in pieces: put, taken once, and gone with the connection."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from dshd import wire
from dshd.control import uploads
from dshd.control.uploads import Uploads
from dshd.errors import Full, Invalid, NotFound


async def put(box: Uploads, text: str, directory: Path) -> str:
    name: str | None = None
    for start in range(0, len(text), wire.MAX_PIECE):
        name = (await box.put(name, text[start : start + wire.MAX_PIECE], directory))["upload"]
    assert name is not None
    return name


async def test_pieces_come_back_as_one_text(tmp_path: Path) -> None:
    box, text = Uploads(), "häppchen\n" * 200_000
    one, other = await put(box, text, tmp_path), await put(box, "other", tmp_path)
    content = [{"type": "text", "text": "inline"}, {"type": "text", "upload": one}]
    assert await box.taken(content) == [content[0], {"type": "text", "text": text}]
    assert await box.taken([{"type": "text", "upload": other}]) == [{"type": "text", "text": "other"}]
    with pytest.raises(NotFound):
        await box.taken([{"type": "text", "upload": one}])


async def test_a_file_is_put_as_base64_has_any_size_and_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_TEXT", 100)
    box, data, name = Uploads(), bytes(range(256)) * 4, None
    for start in range(0, len(data), 300):
        piece = base64.b64encode(data[start : start + 300]).decode()
        name = (await box.put_data(name, piece, tmp_path))["upload"]
    text = await put(box, "text", tmp_path)
    assert name is not None
    with pytest.raises(Invalid, match="other kind"):
        await box.put(name, "text", tmp_path)
    with pytest.raises(Invalid, match="other kind"):
        await box.put_data(text, "", tmp_path)
    with pytest.raises(Invalid, match="other kind"):
        await box.taken([{"type": "text", "upload": name}])
    with pytest.raises(Invalid, match="other kind"):
        box.file(text)
    with pytest.raises(Invalid, match="base64"):
        await box.put_data(name, "not base64!", tmp_path)
    with box.file(name) as file:
        assert file.read() == data
    with pytest.raises(NotFound):
        box.file(name)
    box.close()
    assert list(tmp_path.iterdir()) == []


async def test_no_name_is_left_on_disk_whatever_ends_it(tmp_path: Path) -> None:
    box = Uploads()
    name = await put(box, "x" * 1000, tmp_path)
    assert list(tmp_path.iterdir()) == []
    box.close()
    with pytest.raises(NotFound):
        await box.taken([{"type": "text", "upload": name}])


async def test_a_text_has_at_most_8_mib(tmp_path: Path) -> None:
    box = Uploads()
    name = await put(box, "x" * wire.MAX_TEXT, tmp_path)
    with pytest.raises(Full):
        await box.put(name, "x", tmp_path)
    with pytest.raises(Invalid):
        await box.put(None, "x" * (wire.MAX_PIECE + 1), tmp_path)
    box.close()


async def test_a_connection_has_a_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Uploads()
    monkeypatch.setattr(uploads, "MOST_BYTES", 10)
    await box.put(None, "x" * 8, tmp_path)
    with pytest.raises(Full):
        await box.put(None, "x" * 3, tmp_path)
    box.close()
    monkeypatch.setattr(uploads, "MOST", 1)
    await box.put(None, "x", tmp_path)
    with pytest.raises(Full):
        await box.put(None, "x", tmp_path)
    box.close()


async def test_somebody_elses_upload_is_none(tmp_path: Path) -> None:
    mine, other = Uploads(), Uploads()
    name = await put(mine, "x", tmp_path)
    with pytest.raises(NotFound):
        await other.put(name, "y", tmp_path)
    mine.close()
