"""The hash of what is sent, which is not worked out anew for what was hashed before."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from dshd.driver import request
from dshd.driver.request import BLOCK, TAIL, Digest

SIZES = st.integers(0, 3) | st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, TAIL, 2 * BLOCK + TAIL, 100_000])


@given(st.lists(st.tuples(st.sampled_from("abc"), SIZES, SIZES), max_size=8))
def test_a_digest_is_that_of_the_body_whatever_was_hashed_before(bodies: list[tuple[str, int, int]]) -> None:
    digest = Digest()
    for letter, size, end in bodies:
        body = letter.encode() * size + b"." * end
        assert digest.of(body) == hashlib.sha256(body).hexdigest()


def test_a_body_that_grows_is_hashed_from_where_it_was() -> None:
    fed: list[int] = []

    class Counted:
        def __init__(self) -> None:
            self._real = hashlib.sha256()

        def update(self, data: bytes) -> None:
            fed.append(len(data))
            self._real.update(data)

        def copy(self) -> Counted:
            other = Counted()
            other._real = self._real.copy()
            return other

        def hexdigest(self) -> str:
            return self._real.hexdigest()

    digest = Digest()
    digest._hash = Counted()  # type: ignore[assignment]
    body = b"".join(b"%8d" % n for n in range(100_000))
    for size in range(600_000, 800_000, 200):
        assert digest.of(body[:size] + b"]" * 5000)
    assert max(fed[2:]) <= BLOCK + TAIL
    assert request.TAIL > 3 * 5000
