"""Lines on variants of a step that were compared in one benchmark: how many times as fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpubench_plugin.environment import significant
from gpubench_plugin.measure import speed_up_metric, variant_step_time
from gpubench_plugin.quality_flags import doubtful_flags
from gpubench_plugin.records import Measurement, confidence_bounds_of
from gpubench_plugin.reports.markup import BOLD, DOUBTFUL, PLAIN, Line, Markup
from gpubench_plugin.reports.names import screen_names
from gpubench_plugin.reports.table import wrapped
from gpubench_plugin.reports.text import UNICODE, Glyphs, digits_for, printable

_INDENT: Final = "  "
_CONTRADICTION: Final = 1.1
"""By how much the ratio of the medians may lie outside the interval of the turns. They differ where
slow calls dominate the turns, as the flag ``stalls`` tells of a throughput 10% from the median."""


def variant_lines(
    measurements: Sequence[Measurement], width: int, glyphs: Glyphs = UNICODE
) -> list[Line]:
    """One line per variant but the first of its benchmark: its speed-up over that one."""
    names = screen_names((measurement.id for measurement in measurements), width, glyphs)
    return [
        ((text, markup),)
        for measurement in measurements
        for sentence, markup in _sentences(measurement, glyphs)
        for text in wrapped(
            f"{names[measurement.id]}: {sentence}", width, hanging=_INDENT, cut_words=True
        )
    ]


def _sentences(measurement: Measurement, glyphs: Glyphs) -> Iterator[tuple[str, Markup]]:
    variants = measurement.variants
    for variant in variants[1:]:
        metric = speed_up_metric(variant, len(variants))
        if metric in measurement.metrics:
            yield _sentence(measurement, metric, variant, variants[0], glyphs)


def _sentence(
    measurement: Measurement, metric: str, variant: str, reference: str, glyphs: Glyphs
) -> tuple[str, Markup]:
    """``compiled is 1.82x (1.79 .. 1.86) as fast as eager``, and how it is marked.

    There is no ratio where that of the medians contradicts it: then neither is to be trusted.
    """
    value = measurement.metrics[metric].value
    low, high = map(measurement.metrics.get, confidence_bounds_of(metric))
    subject, tail = f"{printable(variant)} is", f"as fast as {printable(reference)}"
    of_medians = _ratio_of_medians(measurement, variant, reference)
    bounds = (value, value) if low is None or high is None else (low.value, high.value)
    mark, rough = f"{glyphs.doubtful} ", f"{subject} {significant(value, 2)}x {tail}"
    if of_medians is not None and not _agree(of_medians, *bounds):
        sentence = (
            f"no conclusion: {rough} by the turns, {significant(of_medians, 2)}x by the medians "
            "of the rounds: slow calls disturbed the turns; repeat"
        )
        return f"{mark}{sentence}", DOUBTFUL
    if low is None or high is None:
        return f"{mark}{rough}: too few turns for an interval", DOUBTFUL
    is_doubtful = bool(doubtful_flags(measurement.flags))
    is_visible = not bounds[0] <= 1 <= bounds[1]
    if is_doubtful and is_visible:
        return f"{mark}{rough}", DOUBTFUL
    # Ends need a digit more than the value, or an interval of 1% would end where it begins.
    digits = 2 if is_doubtful else max(3, digits_for((bounds[1] - bounds[0]) / 2 / value))
    ends = " .. ".join(significant(bound, digits) for bound in bounds)
    if is_visible:
        return f"{subject} {significant(value, digits)}x ({ends}) {tail}", BOLD
    sentence = f"no difference visible: {subject} {ends} times {tail}"
    return (f"{mark}{sentence}", DOUBTFUL) if is_doubtful else (sentence, PLAIN)


def _ratio_of_medians(measurement: Measurement, variant: str, reference: str) -> float | None:
    """The speed-up by the medians of both variants' rounds; None where a record lacks them."""
    times = [measurement.metrics.get(variant_step_time(name)) for name in (reference, variant)]
    of_reference, of_variant = times
    if of_reference is None or of_variant is None:
        return None
    return of_reference.value / of_variant.value


def _agree(ratio: float, low: float, high: float) -> bool:
    return low / _CONTRADICTION <= ratio <= high * _CONTRADICTION
