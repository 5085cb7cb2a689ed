"""What a provider's refusal means: from status, headers and body to one of the failure codes. No IO.

Providers disagree about everything here, so the order matters: what the error calls itself (its ``type``
or ``code``), then what only wording tells (a full context, an empty balance), then the HTTP status. An
error that comes after a 200, in the middle of the stream, goes the same way with the status that it
carries itself, if any: the 200 says nothing about it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from dshd import nesting
from dshd.model.errors import ModelError

MAX_MESSAGE = 500

# what errors call themselves (``type`` or ``code``, in lower case) and what that is here
NAMED = {
    "insufficient_quota": "QUOTA",
    "insufficient_balance": "QUOTA",
    "insufficient_credits": "QUOTA",
    "billing_error": "QUOTA",
    "billing_hard_limit_reached": "QUOTA",
    "quota_exceeded": "QUOTA",
    "payment_required": "QUOTA",
    "rate_limit_error": "RATE_LIMIT",
    "rate_limit_exceeded": "RATE_LIMIT",
    "rate_limited": "RATE_LIMIT",
    "too_many_requests": "RATE_LIMIT",
    "resource_exhausted": "RATE_LIMIT",
    "tokens": "RATE_LIMIT",
    "requests": "RATE_LIMIT",
    "overloaded_error": "SERVER",
    "overloaded": "SERVER",
    "engine_overloaded_error": "SERVER",
    "api_error": "SERVER",
    "server_error": "SERVER",
    "internal_error": "SERVER",
    "internal_server_error": "SERVER",
    "internalservererror": "SERVER",
    "service_unavailable": "SERVER",
    "service_unavailable_error": "SERVER",
    "unavailable_error": "SERVER",
    "provider_error": "SERVER",
    "upstream_error": "SERVER",
    "timeout": "TIMEOUT",
    "timeout_error": "TIMEOUT",
    "request_timeout": "TIMEOUT",
    "authentication_error": "AUTH",
    "invalid_api_key": "AUTH",
    "permission_error": "AUTH",
    "permission_denied": "AUTH",
    "context_length_exceeded": "CONTEXT_WINDOW_EXCEEDED",
    "exceed_context_size_error": "CONTEXT_WINDOW_EXCEEDED",
    "model_context_window_exceeded": "CONTEXT_WINDOW_EXCEEDED",
    "request_too_large": "CONTEXT_WINDOW_EXCEEDED",  # bytes, but what makes the one fit makes the other
    "content_filter": "CONTENT_FILTERED",
    "content_policy_violation": "CONTENT_FILTERED",
    "data_inspection_failed": "CONTENT_FILTERED",
    "invalid_request_error": "INVALID_REQUEST",
    "not_found_error": "INVALID_REQUEST",
    "model_not_found": "INVALID_REQUEST",
}

STATUS = {
    401: "AUTH",
    402: "QUOTA",
    403: "AUTH",
    408: "TIMEOUT",
    409: "SERVER",
    425: "SERVER",
    429: "RATE_LIMIT",
}

# The model's window, not a field's length limit: "input too long" alone is a field check.
OVERFLOW = re.compile(
    r"context[ _](length|window|size|limit)[^.]{0,60}(exceed|overflow|too (long|large)|limit)"
    r"|(exceed\w*|larger than|longer than|over(flows?)?|beyond|than)[^.]{0,60}"
    r"context[ _]?(length|window|size|limit)"
    r"|max(imum)?[ _]context[ _](length|window|size)"
    r"|(prompt|request|input)[^.]{0,40} too (long|large)[^.]{0,40}(context|model'?s? window|model)"
    r"|prompt is too long|exceeds? the (available )?context"
    r"|exceed\w* model token limit"
    r"|input (token count|length)[^.]{0,60}exceeds? the maximum number of (input )?tokens",
    re.IGNORECASE,
)
BALANCE = re.compile(
    r"insufficient[ _](balance|quota|credits?|funds)|out of credits?|exceeded your current quota"
    r"|credit balance|billing|payment required|^quota\b|quota (has been )?(exceeded|exhausted)"
    r"|exceeded[^.]{0,30}quota",
    re.IGNORECASE,
)


def refused(status: int, headers: Mapping[str, str], body: bytes, where: str) -> ModelError:
    """The error for an answer that is not a 200. ``headers`` with lower-case names."""
    error = _error_of(body)
    text = _message(error) or _plain(headers, body)
    message = f"{where} answered {status}" + (f": {text}" if text else "")
    after, at = retry_hint(headers, error)
    code = classify(error, text, status, comes_back=after is not None or at is not None)
    return ModelError(code, message, http_status=status, retry_after=after, retry_at=at)


def broke_off(error: Any, where: str) -> ModelError:
    """The error for one that came in the middle of the stream."""
    status = _status_of(error)
    text = _message(error) or "no reason given"
    after, at = retry_hint({}, error)
    return ModelError(
        classify(error, text, status, comes_back=after is not None),
        f"{where} broke off: {text}",
        http_status=status,
        retry_after=after,
        retry_at=at,
    )


def classify(error: Any, text: str, status: int | None, *, comes_back: bool = False) -> str:
    """The failure code. ``error``: the provider's error object, or whatever stood in its place.

    ``comes_back``: the provider said when to try again; a quota that is full for a minute is a rate limit.
    """
    named = next((NAMED[name] for name in _names(error) if name in NAMED), None)
    if (
        OVERFLOW.search(text)
        and named in {None, "INVALID_REQUEST"}
        and (status or 400) in {400, 413, 422, 500}
    ):
        return "CONTEXT_WINDOW_EXCEEDED"
    if status == 402:
        return "QUOTA"
    if BALANCE.search(text) and named in {None, "RATE_LIMIT", "INVALID_REQUEST"}:
        return "RATE_LIMIT" if comes_back else "QUOTA"
    # "invalid_request_error" is also what some call a wrong key or a rate limit: the status knows better
    if named is not None and not (named == "INVALID_REQUEST" and (status in STATUS or (status or 0) >= 500)):
        return named
    return _by_status(status)


def _by_status(status: int | None) -> str:
    if status is None:
        return "UNKNOWN"
    if status in STATUS:
        return STATUS[status]
    return "SERVER" if status >= 500 else "INVALID_REQUEST"


def _names(error: Any) -> Iterator[str]:
    if isinstance(error, dict):
        for key in ("code", "type", "status"):
            if isinstance(error.get(key), str):
                yield error[key].lower()


def _status_of(error: Any) -> int | None:
    if isinstance(error, dict):
        for key in ("code", "status", "status_code", "http_status"):
            text = str(error.get(key, ""))
            if re.fullmatch(r"[345]\d\d", text):
                return int(text)
    return None


def _error_of(body: bytes) -> Any:
    """The error object in a JSON body, wherever providers put it; None if there is none."""
    try:
        parsed = nesting.shallow(orjson.loads(body))
    except ValueError:  # no JSON, or too deep
        return None
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    if not isinstance(parsed, dict):
        return None
    return parsed.get("error") or parsed.get("detail") or parsed


def _message(error: Any) -> str:
    if isinstance(error, dict):
        error = _deeper(error) or error.get("message") or error.get("msg") or error.get("code") or ""
    return _short(str(error)) if error else ""


def _deeper(error: dict[str, Any]) -> str:
    """Relays put what the provider said in ``metadata.raw``, and only "Provider returned error" above."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    return f"{error.get('message', '')}: {raw}" if isinstance(raw, str) and raw else ""


def _plain(headers: Mapping[str, str], body: bytes) -> str:
    if "html" in headers.get("content-type", "") or body.lstrip()[:1] == b"<":
        return "a web page; is base_url right?"
    return _short(body[:4096].decode("utf-8", "replace"))


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_MESSAGE else flat[: MAX_MESSAGE - 1] + "…"


# -- when to come back


def retry_hint(headers: Mapping[str, str], error: Any) -> tuple[float | None, int | None]:
    """``(seconds from now, None)``, ``(None, Unix ms)``, or neither, from what the provider says.

    ``retry-after-ms``; ``retry-after`` as seconds (whole or not) or as an HTTP date, which is counted from
    the server's own ``date`` if it sent one, so that its clock may be wrong, or as the Unix time that some
    send; else the error's ``retry_after`` and its like, ``retryDelay`` ("34s") or "try again in 1m2.5s"; else
    when a limit that is used up begins anew (``x-ratelimit-reset``, which relays put into the error, too).
    """
    in_ms = _positive(headers.get("retry-after-ms"), 0.001)
    if in_ms is not None:
        return in_ms, None
    value = headers.get("retry-after", "").strip()
    if value:
        plain = _positive(value)
        return _moment(plain) if plain is not None else _from_date(value, headers.get("date"))
    said = _from_body(error)
    return (said, None) if said is not None else _from_reset({**headers, **_relayed(error)})


UNIX_S, UNIX_MS = 1e9, 1e12  # no provider makes anybody wait for thirty years


def _moment(number: float) -> tuple[float | None, int | None]:
    """Seconds from now, or Unix s or ms, by their size."""
    if number >= UNIX_MS:
        return None, round(number)
    return (None, round(number * 1000)) if number >= UNIX_S else (number, None)


def _from_reset(headers: Mapping[str, Any]) -> tuple[float | None, int | None]:
    """Of a limit that is used up; of one that isn't it says nothing about when to come back."""
    if _number(headers.get("x-ratelimit-remaining")) != 0:
        return None, None
    value = str(headers.get("x-ratelimit-reset", "")).strip()
    plain = _positive(value)
    if plain is not None:
        return _moment(plain)
    return (_duration(value), None) if _DURATION.fullmatch(value) else (None, None)


def _relayed(error: Any) -> dict[str, Any]:
    """The headers that a relay had from the provider, with lower-case names."""
    metadata = error.get("metadata") if isinstance(error, dict) else None
    headers = metadata.get("headers") if isinstance(metadata, dict) else None
    return {str(k).lower(): v for k, v in headers.items()} if isinstance(headers, dict) else {}


def _positive(value: object, unit: float = 1.0) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value) * unit
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number > 0 else None


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except (ValueError, OverflowError):
        return None


def _from_date(value: str, server_now: str | None) -> tuple[float | None, int | None]:
    at = _unix(value)
    if at is None:
        return None, None
    now = _unix(server_now) if server_now else None
    return (None, round(at * 1000)) if now is None else (_positive(at - now), None)


def _unix(date: str) -> float | None:
    try:
        parsed = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


_MEMBERS = (  # {how errors call the time: its unit in s}
    ("retry_after", 1.0), ("retryAfter", 1.0), ("retry_after_seconds", 1.0), ("retry_after_ms", 0.001),
)  # fmt: skip


def _from_body(error: Any) -> float | None:
    if not isinstance(error, dict):
        return None
    places = [error, error.get("metadata")]
    members = [(place, name, unit) for place in places if isinstance(place, dict) for name, unit in _MEMBERS]
    named = next(filter(None, (_positive(place.get(name), unit) for place, name, unit in members)), None)
    if named is not None:
        return named
    details = error.get("details")
    for detail in details if isinstance(details, list) else []:
        if isinstance(detail, dict) and "retryDelay" in detail:
            return _duration(str(detail["retryDelay"]))
    said = re.search(
        r"(?:try|retry)(?: again)? in ((?:[\d.]+ ?(?:ms|s|m|h)[a-z]*\s?)+)", str(error.get("message"))
    )
    return _duration(said.group(1)) if said else None


_DURATION = re.compile(r"(\d+(\.\d+)? ?(ms|s|m|h))+")


def _duration(text: str) -> float | None:
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    parts = re.findall(r"(\d+(?:\.\d+)?) ?(ms|s|m|h)", text)
    return _positive(sum(float(number) * units[unit] for number, unit in parts))
