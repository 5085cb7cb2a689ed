"""From the model's raw argument text to checked arguments, or to a sentence that says what is wrong.

Nothing is repaired: a cut call must not run with half its content, and two values under one key are a
guess either way. What is tolerated, because models send it and its meaning is certain: no text at all
(`{}`), raw control characters inside strings, lone surrogates (U+FFFD). The parser is the standard
library's: it shows duplicate keys and where a text broke off, and takes what stricter ones refuse.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from dshd import nesting
from dshd.plural import count
from dshd.tools.tool import Args, clean

TYPE_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
MOST_PROBLEMS = 5
Schema = Mapping[str, Any]


class BadArguments(ValueError):
    """``str()`` says what is wrong, in words for the model."""


def parse(raw: str) -> Args:
    """Raw text to an object; raises `BadArguments`."""
    if not raw.strip():
        return {}
    value = _load(raw)
    if not isinstance(value, dict):
        raise BadArguments(f"the arguments are JSON, but {_a(value)} instead of an object")
    return value


def _load(raw: str) -> Any:
    try:
        value = nesting.loads(raw, strict=False, object_pairs_hook=_unique, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise BadArguments(_broken(raw, error)) from None
    except nesting.TooDeep:
        raise BadArguments("the arguments are nested too deeply") from None
    except BadArguments:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise BadArguments(f"the arguments can't be read: {error}") from None
    return _cleaned(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadArguments(f'the key "{clean(key)}" stands twice in the arguments; give it once')
        found[key] = value
    return found


def _constant(word: str) -> Any:
    raise BadArguments(f"{word} is not JSON")


def _broken(raw: str, error: json.JSONDecodeError) -> str:
    if _breaks_off(raw.rstrip(), error):
        return (
            f"the arguments break off after {count(len(raw), 'character')}, so nothing was run. Make the call"
            " again, whole; if it was cut by the output limit, do it in smaller pieces"
        )
    near = clean(raw[max(0, error.pos - 20) : error.pos + 20])
    if error.msg == "Extra data":
        return f"there is more text after the end of the JSON object, near {near!r}"
    return f"the arguments are not valid JSON at character {error.pos}: {error.msg}, near {near!r}"


def _breaks_off(raw: str, error: json.JSONDecodeError) -> bool:
    """Whether the text is fine as far as it goes: it ends in a string, an escape, a word or a number."""
    rest = raw[error.pos :]
    return (
        not rest
        or error.msg.startswith("Unterminated string")
        or ("escape" in error.msg and len(rest) < len("\\uXXXX"))
        or any(word.startswith(rest) for word in ("true", "false", "null", "-"))
    )


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): _cleaned(item) for key, item in value.items()}
    return value


# -- checking ---------------------------------------------------------------------------------------


@functools.cache
def prepare() -> None:
    """Import the schema library; in a thread before the first check, so that nothing waits for it."""
    import_module("jsonschema")


def prepared() -> bool:
    """Whether `prepare` has done it."""
    return prepare.cache_info().currsize > 0


class Checker:
    """A compiled schema. jsonschema is imported with the first check: it costs 60 ms and 10 MB. A ``foreign``
    one is somebody else's."""

    def __init__(self, schema: Schema, *, foreign: bool = False) -> None:
        self.schema = schema
        self._foreign = foreign
        self._validator: Any = None

    def problems(self, args: Args) -> list[str]:
        """What is wrong, path first, in the order of the arguments; empty when all is well."""
        if self._validator is None:
            self._validator = _validator(self._foreign)(self.schema)
        try:
            found = sorted(self._validator.iter_errors(args), key=_path)
        except Exception as error:  # the schema is somebody else's, and can be anything
            return [f"they can't be checked, for the tool's own schema is wrong: {_cut(str(error), 200)}"]
        lines = [line for error in found for line in _explain(error)]
        more = len(lines) - MOST_PROBLEMS
        return lines if more <= 0 else [*lines[:MOST_PROBLEMS], f"and {more} more"]


@functools.cache
def _validator(foreign: bool) -> Any:
    """What checks schemas. Nothing is fetched that one refers to. The patterns of a foreign one are left to
    whose it is, for some take for ever."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from referencing.jsonschema import EMPTY_REGISTRY

    known = Draft202012Validator.VALIDATORS["additionalProperties"]

    def additional(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        return () if "patternProperties" in schema else known(validator, value, instance, schema)

    left = {**dict.fromkeys(PATTERNED, _passed), "additionalProperties": additional}
    made: Any = Draft202012Validator
    if foreign:
        made = extend(Draft202012Validator, left)  # type: ignore[no-untyped-call]
    return functools.partial(made, registry=EMPTY_REGISTRY)


PATTERNED = ("pattern", "patternProperties", "unevaluatedProperties")  # which use regular expressions


def _passed(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
    return ()


def _path(error: Any) -> list[str]:
    return [str(part) for part in error.absolute_path]


def _explain(error: Any) -> list[str]:
    where = "$" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
    return [f"{where}: {line}" for line in EXPLAIN.get(error.validator, _other)(error)]


def _type(error: Any) -> list[str]:
    wanted = error.validator_value
    names = " or ".join(wanted) if isinstance(wanted, list) else wanted
    return [f"expected {names}, got {_a(error.instance)}"]


def _required(error: Any) -> list[str]:
    # jsonschema gives one error for each missing key, and names it only in the message's quotes
    return [error.message.replace("'", '"').replace(" is a required property", " is missing")]


def _additional(error: Any) -> list[str]:
    known = list(error.schema.get("properties", {}))
    return [f'unknown key "{key}"{_near(key, known)}' for key in error.instance if key not in known]


def _enum(error: Any) -> list[str]:
    return [f"expected one of {', '.join(map(json.dumps, error.validator_value))}, got {_a(error.instance)}"]


def _other(error: Any) -> list[str]:
    return [_cut(" ".join(error.message.split()), 200)]


EXPLAIN = {"type": _type, "required": _required, "additionalProperties": _additional, "enum": _enum}


def _near(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(known), 1, 0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _a(value: Any) -> str:
    name = TYPE_NAMES.get(type(value), "null")
    if isinstance(value, dict | list) or value is None:
        return name
    return f"{name} {_cut(json.dumps(value), 60)}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def expected(schema: Schema) -> str:
    """The arguments a schema wants, in one line: ``{path: string, offset?: integer}``."""
    try:
        return _expected(schema)
    except (AttributeError, TypeError, RecursionError):  # somebody else's schema, and not as it should be
        return "{...}"


def _expected(schema: Schema) -> str:
    required = set(schema.get("required", ()))
    known = schema.get("properties", {})
    parts = (f"{key}{'' if key in required else '?'}: {_kind(of)}" for key, of in known.items())
    return "{" + ", ".join(parts) + "}"


def _kind(schema: Schema) -> str:
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"[{_kind(schema.get('items', {}))}, ...]"
    if schema.get("type") == "object" and schema.get("properties"):
        return _expected(schema)
    wanted = schema.get("type", "any")
    return " or ".join(wanted) if isinstance(wanted, list) else str(wanted)
