"""Lines on variants of a step that were compared in one benchmark: how many times as fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpubench_plugin.core.format import ratio, significant
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import Measurement, confidence_bounds_of, speed_up_metric
from gpubench_plugin.reports.markup import BOLD, CAUTION, PLAIN, Line, Markup
from gpubench_plugin.reports.names import screen_names
from gpubench_plugin.reports.table import GAP, wrapped
from gpubench_plugin.reports.text import UNICODE, Glyphs, digits_for, printable


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
            f"{names[measurement.id]}: {sentence}", width, hanging=GAP, cut_words=True
        )
    ]


def _sentences(measurement: Measurement, glyphs: Glyphs) -> Iterator[tuple[str, Markup]]:
    variants = measurement.variants
    records = measurement.correctness.get("variants", ())
    for variant, record in zip(variants[1:], records[1:], strict=True):
        metric = speed_up_metric(variant, len(variants))
        if "no_conclusion" in record:
            # The ratio of the medians contradicts that of the turns: neither is trusted.
            by_turns, by_medians = (
                ratio(record["no_conclusion"][key], 2) for key in ("turns", "medians")
            )
            sentence = (
                f"{glyphs.doubtful} no conclusion: {printable(variant)} is {by_turns} as fast as "
                f"{printable(variants[0])} by the turns, {by_medians} by the medians of the "
                "rounds: slow calls disturbed the turns; repeat"
            )
            yield sentence, CAUTION
        elif metric in measurement.metrics:
            yield _sentence(measurement, metric, variant, variants[0], glyphs)


def _sentence(
    measurement: Measurement, metric: str, variant: str, reference: str, glyphs: Glyphs
) -> tuple[str, Markup]:
    """``compiled is 1.82x (1.79 .. 1.86) as fast as eager``, and how it is marked."""
    value = measurement.metrics[metric].value
    low, high = map(measurement.metrics.get, confidence_bounds_of(metric))
    subject, tail = f"{printable(variant)} is", f"as fast as {printable(reference)}"
    mark, rough = f"{glyphs.doubtful} ", f"{subject} {ratio(value, 2)} {tail}"
    if low is None or high is None:
        return f"{mark}{rough}: too few turns for an interval", CAUTION
    bounds = low.value, high.value
    is_doubtful = bool(doubtful_flags(measurement.flags))
    is_visible = not bounds[0] <= 1 <= bounds[1]
    if is_doubtful and is_visible:
        return f"{mark}{rough}", CAUTION
    # Ends need a digit more than the value, or an interval of 1% would end where it begins.
    digits = 2 if is_doubtful else max(3, digits_for((bounds[1] - bounds[0]) / 2 / value))
    ends = " .. ".join(significant(bound, digits) for bound in bounds)
    if is_visible:
        return f"{subject} {ratio(value, digits)} ({ends}) {tail}", BOLD
    sentence = f"no difference visible: {subject} {ends} times {tail}"
    return (f"{mark}{sentence}", CAUTION) if is_doubtful else (sentence, PLAIN)
