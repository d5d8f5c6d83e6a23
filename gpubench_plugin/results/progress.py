"""What the events of the journal tell: the state of a run, and the curves of its benchmarks.

The memory of the state is bounded, however long a training is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from gpubench_plugin.core.records import Json
from gpubench_plugin.results import journal

MOST_LOSSES: Final = 1024
"""More than a terminal has columns."""
_PROGRESS: Final = ("half_width", "step_s", "samples_per_s", "tokens_per_s", "remaining_s")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "training_step": ("loss", "learning_rate", "gradient_norm", "loss_scale"),
    "epoch": ("loss", "accuracy", "test_loss", "test_accuracy"),
    "evaluation": ("test_loss", "test_accuracy"),
}
"""Numbers of the events that are curves; those of ``log`` have names of the user's."""


@dataclass(kw_only=True)
class BenchmarkProgress:
    """A benchmark as far as its events tell; numbers are None until one has told them.

    `steps` is what the untimed training takes at most, and `step` how far it, or a test's own loop,
    is in this phase; `numbers` are the last of each name that was logged. Times are in seconds.
    `node` is where its shard runs, empty for an undivided run.
    """

    id: str
    node: str = ""
    phase: str = ""
    launch: int | None = None
    steps: int | None = None
    step: int | None = None
    loss: float | None = None
    rounds: int | None = None
    half_width: float | None = None
    step_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    remaining_s: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    _stride: int = 1
    _count: int = 0
    _first: tuple[str, int] | None = None
    """Time and number of the first step of the phase that was logged."""

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in an `event`; one of an unknown kind says nothing."""
        match event.get("event"):
            case "phase":
                self._enter(event)
            case "progress":
                self.rounds = event["rounds"]
                for name in _PROGRESS:
                    setattr(self, name, _finite(event.get(name)))
            case "training_step":
                self._step(event, _finite(event["loss"]))
                self.samples_per_s = _finite(event.get("samples_per_s"))
            case "log":
                metrics = _finite_ones(event["metrics"])
                self._step(event, metrics.pop("loss", None))
                self.numbers |= metrics
            case "epoch" | "evaluation" as kind:
                names = ("epoch", *_FIELDS[kind])
                self.numbers |= _finite_ones({n: event.get(n) for n in names if n != "loss"})

    def _enter(self, event: Mapping[str, Any]) -> None:
        self.phase = event["phase"]
        self.launch = event.get("launch")
        self.step = self.remaining_s = self._first = None
        if self.phase == "train":
            self.steps = event.get("steps")
        elif self.phase == "measure":
            self.step_s = self.samples_per_s = None

    def _step(self, event: Mapping[str, Any], loss: float | None) -> None:
        if self.phase != "measure":  # in which a test may log between the rounds
            self._time(event["step"], event.get("time", ""))
        if loss is None:
            return
        self.loss = loss
        if self._count % self._stride == 0:
            self.losses.append(loss)
        self._count += 1
        if len(self.losses) > MOST_LOSSES:
            self.losses = self.losses[::2]
            self._stride *= 2

    def _time(self, step: int, time: str) -> None:
        """Mean duration of a step since the phase's first one, which may have come before it."""
        self.step = step
        if self._first is None or step < self._first[1]:
            self._first = time, step
        first_time, first_step = self._first
        if step > first_step:
            self.step_s = seconds_between(first_time, time) / (step - first_step) or None
            if self.step_s and self.steps and self.phase == "train":
                self.remaining_s = max(0, self.steps - step) * self.step_s


@dataclass(kw_only=True)
class RunProgress:
    """A run as far as its journal tells.

    `outcomes` are those of the benchmarks that are done, by id, `step_times_s` their results, and
    `flags` those of the results; `status` is None before an orderly end, and `running` those that
    run, one on each node, or that the end interrupted.
    """

    run_id: str
    ids: tuple[str, ...] = ()
    outcomes: dict[str, str] = field(default_factory=dict)
    step_times_s: dict[str, float] = field(default_factory=dict)
    flags: dict[str, list[str]] = field(default_factory=dict)
    running: dict[str, BenchmarkProgress] = field(default_factory=dict)
    status: str | None = None

    @property
    def current(self) -> BenchmarkProgress | None:
        """The one that has begun last."""
        return next(reversed(self.running.values()), None)

    @property
    def total(self) -> int:
        """Number of benchmarks, of which some may not have ended."""
        return max(len(self.ids), len(self.outcomes))

    def add(self, line: Json) -> None:
        """Take in a `line` of the journal."""
        match line.get("event"):
            case "run_started":
                self.ids = tuple(line["params"])
                self.outcomes, self.running, self.status = {}, {}, None
            case "run_resumed":
                self.running, self.status = {}, None
                self.outcomes = {i: o for i, o in self.outcomes.items() if o == "measured"}
            case "run_finished":
                self.status = line["status"]
            case "benchmark":
                self._end(line)
            case _ if benchmark := line.get("benchmark"):
                self._add_event(benchmark, line)

    def _add_event(self, benchmark: str, event: Json) -> None:
        phase = event.get("phase")
        if phase == "build" or (phase == "start" and benchmark not in self.running):
            node = event.get("node", "")
            others = {i: b for i, b in self.running.items() if b.node != node and i != benchmark}
            # Another try, if it was running or over.
            self.running = {**others, benchmark: BenchmarkProgress(id=benchmark, node=node)}
            self.outcomes.pop(benchmark, None)
        if (live := self.running.get(benchmark)) is not None:  # else a thread tells of one done
            live.add(event)

    def _end(self, record: Json) -> None:
        benchmark = record["id"]
        self.outcomes[benchmark] = record["outcome"]
        self.flags[benchmark] = record.get("flags", [])
        metric = record.get("metrics", {}).get("step_time_s")
        if metric is not None and metric["value"] is not None:
            self.step_times_s[benchmark] = metric["value"]
        self.running.pop(benchmark, None)


def seconds_between(start: str, end: str) -> float:
    """Seconds between two times of the journal; 0 where there are none."""
    if not (start and end):
        return 0.0
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _finite_ones(values: Mapping[str, float | None]) -> dict[str, float]:
    numbers = {name: _finite(value) for name, value in values.items()}
    return {name: number for name, number in numbers.items() if number is not None}


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
