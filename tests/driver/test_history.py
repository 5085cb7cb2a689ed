"""What was derived of a surface is kept while that only grows, and derived anew when it was replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dshd.driver.history import History
from dshd.session.fold.layer import Rows
from dshd.session.fold.surface import Entry, place


def entry(seq: int, text: str) -> Entry:
    return Entry(seq, "user/message", {"id": f"s.{seq}", "content": [{"type": "text", "text": text}]})


def surface(*seqs: int) -> Rows[Entry]:
    return Rows.of([entry(seq, f"message {seq}") for seq in seqs])


def texts(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [message["content"][0]["text"] for message in messages]


def test_a_surface_that_grows_is_derived_from_where_it_was() -> None:
    history, rows = History(), surface(1, 2)
    first = list(history.of(rows))
    rows.append(entry(3, "message 3"))
    now = history.of(rows)
    assert texts(now) == ["message 1", "message 2", "message 3"]
    assert all(a is b for a, b in zip(first, now, strict=False))


def test_one_event_replaced_in_the_middle_is_seen() -> None:
    history, rows = History(), surface(1, 2, 3)
    history.of(rows)
    tokens = history.tokens
    place(rows, entry(9, "shorter"), {"replace": [2, 2]})
    assert texts(history.of(rows)) == ["message 1", "shorter", "message 3"]
    assert history.tokens != tokens


def test_a_range_replaced_at_the_front_while_the_end_grows_is_seen() -> None:
    history, rows = History(), surface(1, 2, 3)
    history.of(rows)
    place(rows, entry(9, "summary"), {"replace": [1, 2]})
    rows.append(entry(10, "more"))
    assert texts(history.of(rows)) == ["summary", "message 3", "more"]


def test_a_surface_that_is_being_decided_keeps_its_messages_when_it_becomes_durable() -> None:
    history, rows = History(), surface(1, 2)
    layer = rows.layer()
    layer.append(entry(3, "message 3"))
    before, tokens = history.ahead(rows, layer)
    assert texts(before) == ["message 1", "message 2", "message 3"]
    now = history.of(layer.merge_into(rows))
    assert all(a is b for a, b in zip(before, now, strict=True))
    assert history.tokens == tokens


def test_what_was_decided_and_dropped_is_not_in_the_history() -> None:
    history, rows = History(), surface(1)
    for text in ("dropped", "dropped, too"):
        layer = rows.layer()
        layer.append(entry(2, text))
        assert texts(history.ahead(rows, layer)[0]) == ["message 1", text]
    rows.append(entry(2, "kept"))
    assert texts(history.of(rows)) == ["message 1", "kept"]


def test_a_replacement_that_is_being_decided_is_seen_and_not_kept() -> None:
    history, rows = History(), surface(1, 2, 3)
    history.of(rows)
    layer = rows.layer()
    place(layer, entry(9, "summary"), {"replace": [1, 2]})
    assert texts(history.ahead(rows, layer)[0]) == ["summary", "message 3"]
    assert texts(history.of(rows)) == ["message 1", "message 2", "message 3"]


def test_another_place_of_the_attachments_changes_all() -> None:
    history, rows = History(), surface(1)
    block = {"type": "file", "sha256": "ab", "bytes": 99, "lines": 1, "head": "h", "tail": "t"}
    rows.append(Entry(2, "user/message", {"id": "s.2", "content": [block]}))
    assert "/there" in texts(history.of(rows, "/there"))[1]
    assert "/here" in texts(history.of(rows, "/here"))[1]


def test_a_replacement_on_a_layer_is_seen_once_it_is_merged() -> None:
    history, rows = History(), surface(1, 2, 3)
    history.of(rows)
    layer = rows.layer()
    place(layer, entry(9, "shorter"), {"replace": [2, 2]})
    assert texts(history.of(rows)) == ["message 1", "message 2", "message 3"]
    assert texts(history.of(layer.merge_into(rows))) == ["message 1", "shorter", "message 3"]
