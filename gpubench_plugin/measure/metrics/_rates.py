"""Rates of work: total over total, how well that is known, and where the median contradicts it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from gpubench_plugin.flags import FAST_CALLS, STALLS
from gpubench_plugin.measure.metrics._plausibility import median_step_s, per_second, timed_s
from gpubench_plugin.measure.student import t_quantile
from gpubench_plugin.records import CONFIDENCE, Metric, Observation, Samples, ends_of

# Consecutive blocks are put into so many batches: neighbours that depend on each other fall into
# one. An interval of 95 % covers the rate of 100 independent blocks in 94 % of simulated runs, of
# AR(1) blocks with φ = 0.5 in 94 %; without batches in 95 and 74 %. With φ = 0.9 it would be 77 %,
# and 33 % without: all of those are flagged `dependent`, and no interval is shown
# (docs/evidence/rate_interval.md). Of fewer blocks than batches nothing is said.
_BATCHES = 10

# Calls take so much longer or shorter on average than the median call before it is worth a word.
_APART = 1.1


def rate(name: str, amount: float, unit: str, seen: Observation) -> Iterator[Metric]:
    """The rate of an `amount` of work per call, and the ends of its confidence interval."""
    value = per_second(amount, seen.samples)
    yield Metric(name=name, value=value, unit=unit, better="higher")
    deviation = deviation_of_rate(seen.samples, seen.facts.get("confidence", CONFIDENCE))
    if deviation is not None:
        low, high = ends_of(name)
        yield Metric(name=low, value=value * math.exp(-deviation), unit=unit)
        yield Metric(name=high, value=value * math.exp(deviation), unit=unit)


def meanings(**rates: str) -> dict[str, str]:
    """The `rates` by name with their meaning, and the ends of their intervals likewise."""
    return rates | {
        end: f"{which} end of that rate's confidence interval"
        for name in rates
        for end, which in zip(ends_of(name), ("Lower", "Upper"), strict=True)
    }


def deviation_of_rate(samples: Samples, confidence: float) -> float | None:
    """How far a rate's logarithm may be from the true one's, on either side.

    None of fewer than ten blocks. The ratio estimator of total time to total calls over batches
    of consecutive blocks, with Student's t of one degree of freedom less than batches; source: W.
    G. Cochran, Sampling Techniques, 3rd edition (1977), section 6.4, and for batches A. M. Law,
    Simulation Modeling and Analysis, 5th edition (2015), section 9.5.3.
    """
    count = len(samples.block_s)
    if count < _BATCHES:
        return None
    ends = [round(count * batch / _BATCHES) for batch in range(_BATCHES + 1)]
    lengths = [math.fsum(samples.block_s[a:b]) for a, b in pairwise(ends)]
    calls = [sum(samples.block_calls[a:b]) for a, b in pairwise(ends)]
    per_call = math.fsum(lengths) / sum(calls)
    residuals = (length - per_call * number for length, number in zip(lengths, calls, strict=True))
    variance = math.fsum(one**2 for one in residuals) * _BATCHES / (_BATCHES - 1)
    return t_quantile(confidence, _BATCHES - 1) * math.sqrt(variance) / math.fsum(lengths)


def contradiction(samples: Samples) -> tuple[str, ...]:
    """The flag of work over time that is not within 10 % of what the median call promises."""
    mean_s, median_s = timed_s(samples) / samples.calls, median_step_s(samples)
    if mean_s > _APART * median_s:
        return (STALLS,)
    return (FAST_CALLS,) if median_s > _APART * mean_s else ()
