"""Curves of a run: numbers by step that its benchmarks logged in the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpubench_plugin.core.records import Json
from gpubench_plugin.results import journal

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "training_step": ("loss", "learning_rate", "gradient_norm", "loss_scale"),
    "epoch": ("loss", "accuracy", "test_loss", "test_accuracy"),
    "evaluation": ("test_loss", "test_accuracy"),
}
"""Numbers of the events that are curves; those of ``log`` have names of the user's."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One number of one benchmark by step, in the order in which it was logged."""

    benchmark: str
    event: str
    name: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


def benchmark_events(lines: Iterable[Json]) -> Iterator[Json]:
    """The journal's events of single benchmarks, without their records."""
    for line in lines:
        if "benchmark" in line and line.get("event") != "benchmark":
            yield journal.restore_non_finite(line)


def curves_of(events: Iterable[Mapping[str, Any]]) -> tuple[Curve, ...]:
    """The curves in `events`, those of a benchmark together, in the order of their first points.

    Of a benchmark that ran several times (rerun, resumed, several launches), those of the last.
    """
    points: dict[str, dict[tuple[str, str], list[tuple[int, float]]]] = {}
    for event in events:
        benchmark, kind = event["benchmark"], event["event"]
        if event.get("phase") == "build":
            points.pop(benchmark, None)
        numbers = event["metrics"] if kind == "log" else event
        for name in numbers if kind == "log" else _FIELDS.get(kind, ()):
            step, value = event.get("step"), numbers.get(name)
            if step is not None and value is not None:
                series = points.setdefault(benchmark, {}).setdefault((kind, name), [])
                series.append((step, float(value)))
    return tuple(
        Curve(
            benchmark=benchmark,
            event=kind,
            name=name,
            steps=tuple(step for step, _ in series),
            values=tuple(value for _, value in series),
        )
        for benchmark, own in points.items()
        for (kind, name), series in own.items()
    )
