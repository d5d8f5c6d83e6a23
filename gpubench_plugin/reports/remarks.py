"""Lines below the table of results: what it has no room for, doubts, where time goes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final, TypeVar

from gpubench_plugin.core.format import duration, grouped, listed, percentage
from gpubench_plugin.core.quality_flags import (
    DOUBTFUL_FLAGS,
    doubtful_flags,
    explanation,
    other_flags,
)
from gpubench_plugin.core.records import Json, Measurement, Outcome
from gpubench_plugin.reports.columns import metric_text
from gpubench_plugin.reports.markup import BAD, BOLD, CAUTION, PLAIN, Line, Markup
from gpubench_plugin.reports.names import screen_names
from gpubench_plugin.reports.table import GAP, Column, column, paragraph, table, width_of
from gpubench_plugin.reports.text import cut, printable, shorten
from gpubench_plugin.reports.verdicts import kind_text

_Key = TypeVar("_Key")

# Outcomes of benchmarks without a row: they are counted by their reason.
NOT_IN_TABLE: Final[frozenset[Outcome]] = frozenset({"skipped", "unsupported", "not_measured"})
# Lag of the slowest rank that is reported: above the noise between ranks.
_NOTABLE_LAG: Final = 0.05
_FUNCTIONS: Final = "--profiling.with_stack=true shows Python functions"
_SHOWN: Final = 10  # operators on the terminal; the record has more
_MAX_NAMES: Final = 3  # benchmarks named in a line they share: more fill a line
# What bounds a fitted batch size.
_BOUNDS: Final = {
    "memory": "one sample more does not fit into memory",
    "data": "an epoch of the data has no more samples",
    "largest": "no larger one is tried",
}


@dataclass(frozen=True)
class Remarks:
    """Lines about `measurements`, called by `names`, for a terminal of `width` columns."""

    measurements: Sequence[Measurement]
    names: Mapping[str, str]
    width: int

    def failures(self) -> Iterator[Line]:
        """Why the failed ones failed, each reason once, and whole."""
        failed = [m for m in self.measurements if m.outcome not in {"measured", *NOT_IN_TABLE}]
        for reason, names in self._by(failed, lambda m: [_reason(m)]).items():
            if reason:
                yield from self._line(f"{_listed(names)}: {reason}", BAD)

    def doubts(self, shown: Collection[str]) -> Iterator[Line]:
        """What each doubt means, once, and whose it is, unless the rows say so themselves.

        They do if the doubts are among the `shown` columns, or if there is but one kind of doubt
        and the steps, which are marked, are shown.
        """

        def doubts(measurement: Measurement) -> Iterator[tuple[int, str]]:
            for flag in doubtful_flags(measurement.flags):
                text = f"{flag}: {explanation(flag, measurement.flags, measurement.settings)}"
                yield DOUBTFUL_FLAGS.index(flag), text

        groups = self._by(self.measurements, doubts)
        is_told = "doubts" in shown or (len(groups) == 1 and "step" in shown)
        for (_, text), names in sorted(groups.items()):
            whose = "" if is_told else f" ({_listed(names)})"
            yield from self._line(f"≈ {text}{whose}", CAUTION)

    def notes(self, shown: Collection[str]) -> Iterator[Line]:
        """Slow ranks, fitted batches, lapsed checks, and the notes that have no column."""
        for measurement in self.measurements:
            for text, markup in (
                (_slowest_rank_text(measurement), CAUTION),
                (_fit_text(measurement), PLAIN),
                (str(measurement.correctness.get("loss_drop_lapsed", "")), PLAIN),
            ):
                if text:
                    yield from self._line(f"{self.names[measurement.id]}: {text}", markup)
        models = self._by(self.measurements, lambda m: filter(None, [m.correctness.get("model")]))
        for text in models:
            yield from self._line(printable(text), PLAIN)
        groups = self._by(self.measurements, lambda m: other_flags(m.flags))
        if groups and "notes" not in shown:
            texts = [f"{flag} ({_listed(names)})" for flag, names in groups.items()]
            yield from self._line(f"notes: {'; '.join(texts)}", PLAIN)

    def metrics(self, metrics: Sequence[str]) -> Iterator[Line]:
        """The `metrics` that have no column, a line per benchmark."""
        for measurement in self.measurements:
            values = {name: metric_text(measurement, name) for name in metrics}
            text = ", ".join(f"{name} {value}" for name, value in values.items() if value)
            if text:
                yield from self._line(f"{self.names[measurement.id]}: {text}", PLAIN)

    def left_out(self) -> Iterator[Line]:
        """One line per reason for which benchmarks were not measured, with their number."""
        left_out = [m for m in self.measurements if m.outcome in NOT_IN_TABLE]
        groups = self._by(left_out, lambda m: [(m.outcome, _reason(m))])
        for (outcome, reason), names in groups.items():
            subject = f"{len(names)} {kind_text(outcome)}"
            reason_text = f": {reason}" if reason else ""
            yield from self._line(f"{subject}{reason_text} ({_listed(names)})", CAUTION)

    def _by(
        self, measurements: Iterable[Measurement], keys: Callable[[Measurement], Iterable[_Key]]
    ) -> dict[_Key, list[str]]:
        """Names of the measurements by each of their `keys`."""
        return grouped((key, self.names[one.id]) for one in measurements for key in keys(one))

    def _line(self, text: str, markup: Markup) -> Iterator[Line]:
        return paragraph(text, self.width, markup)


def _reason(measurement: Measurement) -> str:
    """The reason on one line, without the benchmark's id, which the line has."""
    return printable(measurement.reason.replace(f"{measurement.id}: ", "", 1))


def _listed(names: Sequence[str]) -> str:
    return listed(names, _MAX_NAMES)


def _fit_text(measurement: Measurement) -> str:
    """The batch size that was fitted, and what bounds it; empty if it was stated."""
    fit = measurement.correctness.get("batch_fit")
    return f"training.batch_size={fit['samples']} fitted: {_BOUNDS[fit['bound_by']]}" if fit else ""


def _slowest_rank_text(measurement: Measurement) -> str:
    """Slowest rank and its lag behind the fastest, if notable."""
    slowest = measurement.slowest_rank
    if slowest is None:
        return ""
    lag = slowest.median_s / min(rank.median_s for rank in measurement.ranks) - 1
    if lag < _NOTABLE_LAG:
        return ""
    is_multi_host = len({rank.host for rank in measurement.ranks}) > 1
    host_text = f" on {slowest.host}" if is_multi_host else ""
    return f"slowest rank {slowest.rank}{host_text}: +{percentage(lag)} over the fastest"


def operator_lines(measurements: Sequence[Measurement], width: int) -> list[Line]:
    """The operators of each profiled benchmark with the most time of their own, per step."""
    lines: list[Line] = []
    names = screen_names((measurement.id for measurement in measurements), width)
    for measurement in measurements:
        if not (operators := measurement.correctness.get("operators")):
            continue
        if not any(row["self_s"] for row in operators["operators"]):
            text = f"{names[measurement.id]}: no torch operators; {_FUNCTIONS}"
            lines += paragraph(text, width)
        else:
            title = f"{names[measurement.id]}: {_heading(measurement, operators)}"
            lines.append(((cut(title, width), BOLD),))
            lines += _operator_table(operators["operators"], width)
    return lines


def _heading(measurement: Measurement, operators: Json) -> str:
    place = {"device": "device time", "cpu": "CPU time"}[operators["time_of"]]
    number = len(operators["operators"])
    step = "call of each variant" if measurement.variants else "step"
    return f"{min(_SHOWN, number)} of {number} operators by own {place}, per {step}"


def _operator_table(operators: Sequence[Json], width: int) -> list[Line]:
    rows, sum_s = operators[:_SHOWN], fsum(row["self_s"] for row in operators)
    numbers = [
        column("calls", [f"{row['calls']:.3g}" for row in rows], numeric=True),
        column("self", [duration(row["self_s"]) for row in rows], numeric=True),
        column("total", [duration(row["total_s"]) for row in rows], numeric=True),
        column("share", [percentage(row["self_s"] / sum_s) for row in rows], numeric=True),
    ]
    title = f"{GAP}operator"
    room = max(width - width_of(numbers), len(title)) - len(GAP)
    names = shorten([printable(row["name"]) for row in rows], room)
    titled = Column(title=title, cells=[f"{GAP}{name}" for name in names])
    return [*table([titled, *numbers])]
