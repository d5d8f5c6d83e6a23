"""Lines on variants of a step that were compared in one benchmark: how many times as fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpubench_plugin.environment import significant
from gpubench_plugin.measure import speed_up_metric
from gpubench_plugin.quality_flags import doubtful_flags
from gpubench_plugin.records import Measurement, confidence_bounds_of
from gpubench_plugin.reports.markup import BOLD, DOUBTFUL, PLAIN, Line, Markup
from gpubench_plugin.reports.names import short_names
from gpubench_plugin.reports.table import wrapped
from gpubench_plugin.reports.text import UNICODE, Glyphs, digits_for, printable

_INDENT: Final = "  "


def variant_lines(
    measurements: Sequence[Measurement], width: int, glyphs: Glyphs = UNICODE
) -> list[Line]:
    """One line per variant but the first of its benchmark: its speed-up over that one."""
    names = short_names(measurement.id for measurement in measurements)
    return [
        ((text, markup),)
        for measurement in measurements
        for sentence, markup in _sentences(measurement, glyphs)
        for text in wrapped(
            f"{names.by_id[measurement.id]}: {sentence}", width, hanging=_INDENT, cut_words=True
        )
    ]


def _sentences(measurement: Measurement, glyphs: Glyphs) -> Iterator[tuple[str, Markup]]:
    variants = measurement.variants
    for variant in variants[1:]:
        metric = speed_up_metric(variant, len(variants))
        if metric in measurement.metrics:
            yield _sentence(measurement, metric, f"{variant} is", variants[0], glyphs)


def _sentence(
    measurement: Measurement, metric: str, subject: str, reference: str, glyphs: Glyphs
) -> tuple[str, Markup]:
    """``compiled is 1.82x (1.79 .. 1.86) as fast as eager``, and how it is marked."""
    value = measurement.metrics[metric].value
    low, high = map(measurement.metrics.get, confidence_bounds_of(metric))
    subject, tail = printable(subject), f"as fast as {printable(reference)}"
    if doubtful_flags(measurement.flags):
        return f"{glyphs.doubtful} {subject} {significant(value, 2)}x {tail}", DOUBTFUL
    if low is None or high is None:
        reason = "too few turns for an interval"
        return f"{glyphs.doubtful} {subject} {significant(value, 2)}x {tail}: {reason}", DOUBTFUL
    # Ends need a digit more than the value, or an interval of 1 % would end where it begins.
    digits = max(3, digits_for((high.value - low.value) / 2 / value))
    ends = f"{significant(low.value, digits)} .. {significant(high.value, digits)}"
    if low.value <= 1 <= high.value:
        return f"no difference visible: {subject} {ends} times {tail}", PLAIN
    return f"{subject} {significant(value, digits)}x ({ends}) {tail}", BOLD
