"""The table of budgets, amounts as typed, the words for them, and what the config checks of prices."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd import budgets, wire
from dshd.budgets import NAMED, TABLE
from dshd.config import Budget, Source, parse
from dshd.errors import Invalid, NotConfigured


def stop(what: str, limit: float, spent: float, currency: str | None = None) -> dict[str, Any]:
    return {"what": what, "limit": limit, "spent": spent, "currency": currency}


def test_the_table_and_the_config_know_the_same_budgets() -> None:
    assert {budget.name for budget in TABLE} == {field.name for field in attrs.fields(Budget)}
    own = {budget.setting for budget in TABLE if budget.setting is not None}
    assert own <= set(wire.SETTINGS)
    assert {budget.kind for budget in TABLE} == set(budgets.READERS)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("cost=2", ("cost", 2.0)), ("cost=$0.50", ("cost", 0.5)), ("steps=50", ("steps", 50)),
     ("time=1h", ("time", 3600.0)), ("tokens=100k", ("tokens", 100_000)), ("tokens=1.1k", ("tokens", 1100)),
     ("tokens=2M", ("tokens", 2_000_000)), ("errors=5", ("errors", 5))],
)  # fmt: skip
def test_what_can_be_added(typed: str, meant: tuple[str, float]) -> None:
    assert budgets.added(typed) == meant


@pytest.mark.parametrize(
    "typed",
    ["cost", "cost=", "cost=-1", "cost=0", "cost=1e3", "cost=nan", "steps=1.5", "steps=1h", "time=2x",
     "money=2", "turn_cost=2", "", "tokens=100kk", "cost=2,steps=5",
     "steps=1m", "tokens=1.5m", "tokens=100K"],
)  # fmt: skip
def test_what_can_t_be_added(typed: str) -> None:
    with pytest.raises(Invalid):
        budgets.added(typed)


@pytest.mark.parametrize(
    ("said", "limit", "rate", "used", "fraction"),
    [
        (stop("turn_cost", 5.0, 5.02, "USD"), "turn cost $5.00", "$5.00 a turn", "turn cost $5.02 of $5.00",
         "turn cost $5.02/$5.00"),
        (stop("day_cost", 10, 0.004, "CNY"), "day cost 10.00 CNY", "10.00 CNY a day",
         "day cost 0.0040 CNY of 10.00 CNY", "day cost 0.0040 CNY/10.00 CNY"),
        (stop("turn_steps", 200, 31), "200 steps a turn", "200 steps a turn", "turn steps 31 of 200",
         "turn steps 31/200"),
        (stop("turn_steps", 1, 1), "1 step a turn", "1 step a turn", "turn steps 1 of 1", "turn steps 1/1"),
        (stop("turn_time", 5400, 61.0), "turn time 1 h 30 min", "1 h 30 min a turn",
         "turn time 1 min 1 s of 1 h 30 min", "turn time 1 min 1 s/1 h 30 min"),
        (stop("turn_tokens", 100_000, 950), "100 k tokens a turn", "100 k tokens a turn",
         "turn tokens 950 of 100 k", "turn tokens 950/100 k"),
        (stop("turn_errors", 10, 10), "10 errors in a row", "10 errors in a row", "turn errors 10 of 10",
         "turn errors 10/10"),
        (stop("week_beer", 2, 1), "week beer", "week beer", "week beer 1 of 2", "week beer 1/2"),
    ],
)  # fmt: skip
def test_how_a_limit_reads(said: dict[str, Any], limit: str, rate: str, used: str, fraction: str) -> None:
    assert budgets.limit(said) == limit
    assert budgets.rate(said) == rate
    assert budgets.used(said) == used
    assert budgets.fraction(said) == fraction


@given(
    st.sampled_from(TABLE),
    st.floats(0.001, 1e9),
    st.floats(0, 10),
)
def test_what_is_proposed_is_always_enough_and_can_be_typed(budget: Any, most: float, over: float) -> None:
    whole = budget.kind not in ("cost", "time")
    limit = max(1, round(most)) if whole else round(most, 6)
    spent = limit + (round(limit * over) if whole else round(limit * over, 6))
    if budget.kind == "time":
        spent = limit + min(spent - limit, 0.1)  # the time ends a turn when it is reached
    kind, amount = budgets.added(budgets.enough(stop(budget.name, limit, spent)))
    assert kind == NAMED[budget.name].kind
    assert limit + amount > spent


def test_a_setting_goes_by_the_names_of_the_option_and_the_budget() -> None:
    for name in ("max_cost", "max-cost", "turn_cost"):
        assert wire.setting_name(name) == "max_cost"
        assert wire.setting(name, "2.5") == 2.5
    assert wire.setting_name("env.A-B") == "env.A-B"
    assert wire.setting("max-tokens", "100k") == 100_000
    assert wire.setting("max-tokens", "1.5M") == 1_500_000
    with pytest.raises(Invalid, match='"1m" is not a number of them; m is minutes; write 50, 100k or 2M'):
        wire.setting("max-steps", "1m")
    assert wire.setting("max-time", "1h") == 3600
    with pytest.raises(Invalid, match="of all sessions"):
        wire.setting("day_cost", "3")


# --- the config -----------------------------------------------------------------------------------------

PRICED = """
model = "a"
[routes.a]
adapter = "openai"
price = {{ input = 1, output = 2, currency = "{}" }}
[routes.b]
adapter = "openai"
price = {{ input = 1, output = 2, currency = "{}" }}
{}
"""


def test_a_limit_in_money_needs_one_currency() -> None:
    text = PRICED.format("USD", "CNY", "[budget]\nday_cost = 3")
    with pytest.raises(
        NotConfigured, match=r'budget.day_cost: a cost limit needs one currency, and prices are "a"'
    ):
        parse(Source("config.toml", text))
    assert parse(Source("config.toml", PRICED.format("USD", "CNY", ""))).unpriced("a") is None
    assert (
        parse(Source("config.toml", PRICED.format("CNY", "CNY", "[budget]\nday_cost = 3"))).currency == "CNY"
    )


def test_what_a_route_falls_back_on_needs_a_price_too() -> None:
    text = """
[routes.a]
adapter = "openai"
price = { input = 1, output = 2 }
fallback = ["deepseek"]
"""
    assert "deepseek" in str(parse(Source("config.toml", text)).unpriced("a"))
    with pytest.raises(NotConfigured, match='route "deepseek" has none'):
        parse(Source("config.toml", f"{text}\n[budget]\nturn_cost = 1"))


def test_the_rehearsal_model_costs_nothing_and_needs_no_price() -> None:
    config = parse(Source("config.toml", 'model = "rehearsal"\n[budget]\nturn_cost = 1'))
    assert config.unpriced("rehearsal") is None
    assert config.unpriced("openai") is not None
