"""Answers that are to be JSON of a shape: the session's ``schema``, which `dshctl run --schema` gives it.

The system prompt says what is wanted (`prompt.assembly`). Before a turn ends its answer is checked; one that
doesn't fit gets one more step of the same turn, in which the model is told what is wrong. If it doesn't fit
then, the turn ends with an error (`MALFORMED_RESPONSE`), which a `retry` can try again. An answer that the
model's own limit cut short is not asked for again: the turn ends for that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from dshd.driver.plugged.gates import Said
from dshd.driver.run import Run
from dshd.model.errors import ModelError
from dshd.tools.arguments import Checker
from dshd.tools.threads import reading

SOURCE = {"kind": "system", "via": "schema"}


async def words(run: Run, answer: str) -> list[Said]:
    """What the model is told of an answer that doesn't fit; nothing, if all is well. Raises `ModelError` if
    it was told in this turn already."""
    schema = run.state.settings.get("schema")
    if schema is None or run.capped:
        return []
    wrong = await reading(partial(fault, schema, answer))
    if wrong is None:
        return []
    if run.reshaped:
        raise ModelError("MALFORMED_RESPONSE", f"the answer does not fit the schema: {wrong}")
    run.reshaped = True
    return [(SOURCE, f"Your answer does not fit the schema: {wrong}. Answer again, with the JSON alone.")]


def fault(schema: Mapping[str, Any], answer: str) -> str | None:
    """What is wrong with an answer; None: it fits."""
    try:
        value = json.loads(answer, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON alone ({error})"
    return "; ".join(Checker(schema).problems(value)) or None


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def problem(schema: Mapping[str, Any]) -> str | None:
    """Why this is no schema that can be checked against; None: it is one. Nothing is fetched for one."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return " ".join(error.message.split())[:200]
    outside = next((ref for ref in _references(schema) if not ref.startswith("#")), None)
    return f"it refers to {outside}, and nothing is fetched" if outside is not None else None


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (ref for name in ("$ref", "$dynamicRef") if isinstance(ref := value.get(name), str))
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inside:
        yield from _references(one)
