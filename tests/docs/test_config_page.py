"""dshd-config(5) against the classes that a config is read into, both ways."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from dshd import config
from tests.docs import pages

PAGE = pages.read("dshd-config.5")


def sections() -> Iterator[tuple[str, Any]]:
    """(title of the subsection, the class that holds its keys)"""
    hints = typing.get_type_hints(config.Config)
    for field in attrs.fields(config.Config):
        kind, arguments = hints[field.name], typing.get_args(hints[field.name])
        held = arguments[-1] if arguments else kind
        if attrs.has(held):
            form = {dict: "[{}.NAME]", list: "[[{}]]"}.get(typing.get_origin(kind), "[{}]")
            yield form.format(field.name), held


def keys(subsection: str) -> set[str]:
    """What the page lists there."""
    items = [item for item in PAGE.items if item.subsection == subsection]
    return {word for item in items for word in pages.words(item.tag, "Va")}


@pytest.mark.parametrize("title", dict(sections()))
def test_every_key_stands_in_its_section_and_no_other(title: str) -> None:
    assert keys(title) == {field.name for field in attrs.fields(dict(sections())[title])}


def test_the_page_has_no_other_section() -> None:
    listed = {item.subsection for item in PAGE.items if item.subsection.startswith("[")}
    assert listed == {title for title, _ in sections()} | {"[plugins.NAME]"}


def test_the_parts_of_a_price_are_named() -> None:
    (price,) = [item for item in PAGE.items if item.tag == "Va price"]
    assert {field.name for field in attrs.fields(config.Price)} == pages.words(price.body, "Va")


def test_every_value_that_a_key_may_have_is_named() -> None:
    for title, held in sections():
        hints = typing.get_type_hints(held)
        for field in attrs.fields(held):
            if typing.get_origin(hints[field.name]) is typing.Literal:
                (item,) = [i for i in PAGE.items if (i.subsection, i.tag.split()[-1]) == (title, field.name)]
                assert set(typing.get_args(hints[field.name])) <= pages.words(item.body, "Li"), item


def test_the_example_is_a_good_config() -> None:
    example = PAGE.source.partition(".Bd -literal -offset indent\n")[2].partition(".Ed")[0]
    config.parse(config.Source("config.toml", example.replace("\\(dq", '"')))
