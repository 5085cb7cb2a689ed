from __future__ import annotations

import zlib
from pathlib import Path

from dshd.tools.fetch.body import PIECE, Body


async def test_what_unpacks_to_much_is_never_unpacked_at_once(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(10_000_000))
    pieces = list(Body("deflate", html=True, file=tmp_path / "f")._pieces(bomb))
    assert (max(map(len, pieces)), sum(map(len, pieces))) == (PIECE, 10_000_000)


async def test_a_call_that_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    body = Body("", html=False, file=tmp_path / "f")
    await body.take(b"x" * 600_000)
    assert (tmp_path / "f").exists()
    body.dropped()
    assert not (tmp_path / "f").exists()
