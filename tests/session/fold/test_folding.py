"""The tables of the fold: each event is in one of them."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from dshd.session.fold import applied
from dshd.session.fold.events import KNOWN_TYPES
from dshd.session.fold.folding import APPLIERS


def test_no_event_is_in_two_tables_and_each_is_of_the_vocabulary() -> None:
    modules = (import_module(f"{applied.__name__}.{info.name}") for info in iter_modules(applied.__path__))
    tables = [module for module in modules if hasattr(module, "TABLE")]
    assert len(APPLIERS) == sum(len(module.TABLE) for module in tables)
    assert APPLIERS.keys() <= KNOWN_TYPES
