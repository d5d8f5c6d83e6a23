"""State of a running benchmark, and of a run, from the events of the journal so far.

Memory is bounded, however long a training is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubench_plugin.records import Json

_MOST_LOSSES: Final = 1024
"""More than a terminal has columns."""
_PROGRESS: Final = (
    *("rounds", "half_width", "step_s", "samples_per_s", "tokens_per_s", "remaining_s"),
)
_NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "epoch": ("epoch", "accuracy", "test_loss", "test_accuracy"),
    "evaluation": ("test_loss", "test_accuracy"),
}


@dataclass(kw_only=True)
class LiveBenchmark:
    """A benchmark as far as its events tell; numbers are None until one has told them.

    `steps` is what the untimed training takes at most, and `step` how far it is; `numbers` are the
    last of each name that was logged. Times are in seconds.
    """

    id: str
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
    _phase_time: str = ""

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in an `event`; one of an unknown kind says nothing."""
        match event.get("event"):
            case "phase":
                self._enter(event)
            case "progress":
                for name in _PROGRESS:
                    setattr(self, name, event.get(name))
            case "training_step":
                self._train(event, event.get("loss"))
                self.samples_per_s = event.get("samples_per_s")
            case "log":
                metrics = event.get("metrics") or {}
                self._train(event, metrics.get("loss"))
                self.numbers |= {n: v for n, v in metrics.items() if n != "loss" and v is not None}
            case "epoch" | "evaluation" as kind:
                values = {name: event.get(name) for name in _NUMBERS[kind]}
                self.numbers |= {n: v for n, v in values.items() if v is not None}

    def _enter(self, event: Mapping[str, Any]) -> None:
        self.phase = event["phase"]
        self.launch = event.get("launch")
        self._phase_time = str(event.get("time", ""))
        self.remaining_s = None
        if self.phase == "train":
            self.steps = event.get("steps")
        elif self.phase == "measure":
            self.step_s = self.samples_per_s = None

    def _train(self, event: Mapping[str, Any], loss: float | None) -> None:
        self.step = event.get("step")
        if self.phase == "train" and self.step:
            elapsed_s = _seconds(self._phase_time, str(event.get("time", "")))
            self.step_s = elapsed_s / self.step or None
            if self.step_s and self.steps:
                self.remaining_s = max(0, self.steps - self.step) * self.step_s
        if loss is None:
            return
        self.loss = loss
        if self._count % self._stride == 0:
            self.losses.append(loss)
        self._count += 1
        if len(self.losses) > _MOST_LOSSES:
            self.losses = self.losses[::2]
            self._stride *= 2


@dataclass(kw_only=True)
class LiveRun:
    """A run as far as its journal tells.

    `outcomes` are those of the benchmarks that are done, by id, and `step_times_s` their results;
    `status` is None before an orderly end.
    """

    run_id: str
    ids: tuple[str, ...] = ()
    outcomes: dict[str, str] = field(default_factory=dict)
    step_times_s: dict[str, float] = field(default_factory=dict)
    current: LiveBenchmark | None = None
    status: str | None = None

    @property
    def total(self) -> int:
        """Number of benchmarks."""
        return max(len(self.ids), len(self.outcomes))

    def add(self, line: Json) -> None:
        """Take in a `line` of the journal."""
        match line.get("event"):
            case "run_started":
                self.ids = tuple(line.get("params") or ())
            case "run_resumed":
                self.status = self.current = None
                kept = {i: o for i, o in self.outcomes.items() if o == "measured"}
                self.outcomes = kept
            case "run_finished":
                self.status, self.current = str(line.get("status")), None
            case "benchmark":
                self._end(line)
            case _ if benchmark := line.get("benchmark"):
                self._add_event(str(benchmark), line)

    def _add_event(self, benchmark: str, event: Json) -> None:
        is_running = self.current is not None and self.current.id == benchmark
        phase = event.get("phase")
        if phase == "build" or (phase == "start" and not is_running):
            self.current = LiveBenchmark(id=benchmark)  # another try, if it was running or over
            self.outcomes.pop(benchmark, None)
        elif not is_running:  # what a thread tells of one that is done
            return
        assert self.current is not None
        self.current.add(event)

    def _end(self, record: Json) -> None:
        benchmark = str(record.get("id"))
        self.outcomes[benchmark] = str(record.get("outcome"))
        step_s = ((record.get("metrics") or {}).get("step_time_s") or {}).get("value")
        if step_s is not None:
            self.step_times_s[benchmark] = step_s
        self.current = None


def _seconds(start: str, end: str) -> float:
    """Seconds between two times of the journal; 0 where one is malformed."""
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except ValueError:
        return 0.0
