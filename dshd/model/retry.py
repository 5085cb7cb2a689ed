"""When to try a failed model call again. Looks at the code and at what the provider asked for, only.

``RETRIED`` codes get up to ``quick`` retries in the same step: 0.5 s, doubling to 10 s, each ±10 %. A
provider that names a time (`Retry-After`) is obeyed: within ``longest`` it just sets the delay; a later
one makes the step wait, if patience reaches that far, else the call fails at once and says when. After
the quick ones the step waits 1, 2, 5, 10, then every 15 minutes, as long as patience lasts. No patience (0)
is no retry at all, not even a quick one: who asked for that wants to know at once.
"""

from __future__ import annotations

import random

import attrs

from dshd.model.errors import RETRIED, ModelError


@attrs.frozen
class RetryPolicy:
    """Times in s."""

    quick: int = 5
    first: float = 0.5
    longest: float = 10.0
    jitter: float = 0.1
    later: tuple[float, ...] = (60.0, 120.0, 300.0, 600.0, 900.0)


@attrs.frozen
class Quick:
    """Try again in ``delay_s``, in the same step."""

    delay_s: float


@attrs.frozen
class Later:
    """The step waits until ``until_ms`` (Unix ms), or until somebody wakes it. ``named``: the provider asked
    for that."""

    until_ms: int
    named: bool = False


@attrs.frozen
class Fail:
    """The call has failed; ``retry_at`` (Unix ms) is when the provider would take it, if it said so."""

    retry_at: int | None = None


def decide(
    failures: int,
    error: ModelError,
    *,
    now_ms: int,
    patience_s: float,
    rng: random.Random,
    policy: RetryPolicy | None = None,
    waited_s: float = 0.0,
) -> Quick | Later | Fail:
    """What to do after the ``failures``-th failure (from 1) of a call.

    ``waited_s`` is how long the step has waited already, out of ``patience_s``.
    """
    policy = policy or RetryPolicy()
    named = _named_delay(error, now_ms)
    if error.code not in RETRIED:
        return Fail(error.retry_at)
    if patience_s <= 0:
        return Fail(None if named is None else now_ms + round(named * 1000))
    if named is not None and named > max(policy.longest, 0.0):
        fits = waited_s + named <= patience_s
        until = now_ms + round(named * 1000)
        return Later(until, named=True) if fits else Fail(until)
    if failures <= policy.quick:
        return Quick(max(named or 0.0, _backoff(failures, policy, rng)))
    delay = policy.later[min(failures - policy.quick, len(policy.later)) - 1]
    return Later(now_ms + round(delay * 1000)) if waited_s + delay <= patience_s else Fail()


def _named_delay(error: ModelError, now_ms: int) -> float | None:
    """What the provider asked for, in s from now; a time that has passed is no wish."""
    if error.retry_at is not None:
        return max(0.0, (error.retry_at - now_ms) / 1000) or None
    return error.retry_after if error.retry_after and error.retry_after > 0 else None


def _backoff(failures: int, policy: RetryPolicy, rng: random.Random) -> float:
    delay = min(policy.first * 2.0 ** (failures - 1), policy.longest)
    return delay * (1 + policy.jitter * rng.uniform(-1, 1))
