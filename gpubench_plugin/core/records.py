"""Records: frozen, keyword-only and JSON-serializable.

Units are in the names. Files and other processes get the fields of a record, see
:mod:`gpubench_plugin.system.stored`, without pickle. The metadata of a field are for pydantic,
which this module does not import: descriptions and bounds of the published schemas, and the key if
it is not the field's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from math import isclose, isfinite
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, get_args

Json = dict[str, Any]

Outcome = Literal[
    "measured",
    "failed",
    "skipped",
    "unsupported",
    "misconfigured",
    "oom",
    "hang",
    "crashed",
    "mismatched_ranks",
    "not_measured",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

Better = Literal["higher", "lower", "none"]

Phase = Literal[
    "start", "build", "compile", "check", "train", "warm-up", "measure", "inspect", "profile"
]
"""Phase of a running benchmark: ``start`` of its ranks, ``build`` of its fixtures, ``compile`` as
far as the first step, untimed ``check`` and ``train``, ``warm-up``, ``measure``, and afterwards
``inspect`` (FLOPs, memory, data types) and ``profile``. Short ones may be missing."""

CONFIDENCE: Final = 0.95
"""Default confidence level of intervals."""


UTC_TIME: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$"
"""Pattern of an ISO 8601 time in UTC."""


def shared(kind: type[Any], record: object) -> Json:
    """The fields of `record` that a dataclass of that `kind` has, too."""
    return {field.name: getattr(record, field.name) for field in fields(kind)}


def doc(description: str, **bounds: object) -> Json:
    """Metadata of a field: description in its schema, and bounds as in ``annotated_types``."""
    return {"description": description, **bounds}


@dataclass(frozen=True, kw_only=True)
class RoundLayout:
    """Number and sizes of durations; fields as in `Samples`."""

    durations: int
    calls_per_duration: int
    durations_per_round: int


def has_quantile(count: int, fraction: float) -> bool:
    """Whether `count` values have one beyond the quantile: 20 for the 95th percentile."""
    return round(count * min(fraction, 1 - fraction), 9) >= 1


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Times of one benchmark on one rank, or reduced over ranks.

    A *duration* is one call of the step, or the mean of `calls_per_duration` calls of a step too
    short to be timed alone. A *round* is the smallest group of consecutive durations that lasts a
    millisecond: warm-up and confidence count rounds. A *block* is the calls between two decisions
    of the loop. Nothing is dropped. `warmup_s` has the seconds of each group of warm-up calls timed
    together, `warmup_calls` counts all calls between the first one and the timed ones.

    Of too many durations to store, `durations_s` are the medians of the rounds, in order,
    `calls_per_duration` the calls of a round, `reduced_from` the actual timing, and `sample_s` a
    uniform sample of the durations with the shortest and the longest, except over several ranks.

    `first_step_s` is None if the first call was not observed; without any observed call before the
    timed ones there is no warm-up either.
    """

    timer: str
    durations_s: tuple[float, ...]
    calls_per_duration: int = 1
    durations_per_round: int = 1
    block_s: tuple[float, ...]
    block_calls: tuple[int, ...]
    first_step_s: float | None
    warmup_s: tuple[float, ...]
    warmup_calls: int
    flags: tuple[str, ...] = ()
    reduced_from: RoundLayout | None = None
    sample_s: tuple[float, ...] = ()

    @property
    def calls(self) -> int:
        """Timed calls of the step."""
        return sum(self.block_calls)

    @property
    def timing(self) -> RoundLayout:
        """Round layout of the durations, including those no longer stored."""
        return self.reduced_from or RoundLayout(
            durations=len(self.durations_s),
            calls_per_duration=self.calls_per_duration,
            durations_per_round=self.durations_per_round,
        )

    @property
    def spread_s(self) -> tuple[float, ...]:
        """The durations, or of too many to store a sample of them."""
        return self.sample_s or self.durations_s

    @property
    def rounds(self) -> int:
        """Number of complete rounds timed."""
        return self.timing.durations // self.timing.durations_per_round

    @property
    def rounds_s(self) -> tuple[float, ...]:
        """The median duration of each round, in seconds per call."""
        return tuple(round_medians(self.durations_s, self.durations_per_round))

    def flagged(self, *flags: str) -> Samples:
        """Copy with `flags` added, without duplicates."""
        return replace(self, flags=tuple(dict.fromkeys((*self.flags, *flags))))


def round_medians(durations_s: Sequence[float], width: int) -> Sequence[float]:
    """Median of each complete round of `width` durations, in seconds per call."""
    if width == 1:
        return durations_s
    used_length = len(durations_s) - len(durations_s) % width
    return [median(durations_s[at : at + width]) for at in range(0, used_length, width)]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Work of one call of the step, on one rank or summed over ranks; None if unknown."""

    samples: float | None = None
    tokens: float | None = None
    bytes: float | None = None
    flops: float | None = field(default=None, metadata=doc("A multiply-add counts as two"))

    @property
    def known_amounts(self) -> dict[str, float]:
        """Known amounts by name."""
        return {name: amount for name, amount in asdict(self).items() if amount is not None}


def is_same_amount(first: float | None, second: float | None) -> bool:
    """Whether amounts of work are equal within the rounding of per-rank shares."""
    if first is None or second is None:
        return first is second
    return isclose(first, second)  # to 9 digits, its default


@dataclass(frozen=True, kw_only=True)
class Check:
    """Result of an untimed check before the measurement.

    `correctness` goes into the record, `facts` into the observation, `flags` into the samples.
    """

    correctness: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """Time statistics of one rank.

    `median_s` is the median round; all other statistics are of the `count` single durations, in
    seconds per call. Quantiles are interpolated linearly, and None where too few durations were
    timed. `total_s` is the length of all blocks. If a duration is not finite, no statistic is.
    """

    rank: int = field(metadata={"ge": 0})
    host: str
    count: int = field(metadata=doc("Durations timed", ge=0))
    min_s: float
    p5_s: float | None
    median_s: float = field(metadata=doc("Median of the rounds"))
    p95_s: float | None
    p99_s: float | None
    max_s: float
    total_s: float = field(metadata=doc("Length of all timed blocks"))


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Observation of one benchmark, the only input of metrics.

    `samples` are reduced over the ranks (maximum per duration); `ranks` has an entry for each of
    several. `work` is summed over the ranks. `precision` is the compute dtype of matrix products
    (fp32, tf32, fp16, …), empty without one. `facts` are the other numbers:
    ``peak_memory_bytes``, ``skipped_steps``, ``data_wait_s`` (inside the timed calls),
    ``loss_first``, ``loss_last``, ``compiled`` (0 or 1), ``confidence`` (the level of intervals),
    ``processors`` (of the host) and those of a subject. `machine` is that of the record.
    """

    samples: Samples
    ranks: tuple[RankTimes, ...] = ()
    work: Work
    device: str
    device_name: str
    precision: str
    world_size: int
    facts: Mapping[str, float] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number with its unit and better direction."""

    name: str
    value: float
    unit: str
    better: Better = "none"


_UNITS_IN_NAMES: Final = ("_bytes_per_s", "_per_s", "_s")


def confidence_bounds_of(metric: str) -> tuple[str, str]:
    """Names of the metrics with the confidence bounds of `metric`.

    The unit stays at the end: ``step_time_ci_low_s``, ``samples_ci_low_per_s``.
    """
    unit = next((unit for unit in _UNITS_IN_NAMES if metric.endswith(unit)), "")
    stem = metric.removesuffix(unit)
    return f"{stem}_ci_low{unit}", f"{stem}_ci_high{unit}"


STEP_TIME: Final = "step_time_s"
"""Metric of the median time of a step."""
MINIMUM: Final = "step_time_min_s"
MEAN: Final = "step_time_mean_s"
MINIMA: Final[Mapping[int, str]] = {n: f"step_time_min_of_{n}_s" for n in (4, 8, 16, 32, 64)}
"""Metrics of the typical minima of so many rounds."""


def variant_rounds(variant: str) -> str:
    """Name of the metric of a variant's number of rounds."""
    return f"variant_{variant}_rounds"


def speed_up_metric(variant: str, variants: int) -> str:
    """Name of the metric of a speed-up, of so many `variants`."""
    return "speed_up" if variants == 2 else f"speed_up_{variant}"


@dataclass(frozen=True, kw_only=True)
class LaunchSample:
    """Measurement of one of several launches."""

    samples: Samples | None
    metrics: Mapping[str, Metric]
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Fields of every record of a benchmark, measured, stored or read.

    `settings` is the configuration by dot key that affects numbers, without defaults; `limits` are
    those of the gate. `timer` names the clock: ``cuda_events`` and ``cuda_kernel`` are the device's
    own time, all others clocks of the host. `machine` are facts by dot key, of those that make
    numbers comparable: threads and variables of the ranks where they are not those of the run's
    environment, and under ``hosts.<name>.`` those of other hosts where they are not rank zero's.
    """

    id: str = field(metadata=doc("pytest's node id", min_length=1))
    outcome: Outcome
    reason: str = field(
        default="", metadata=doc("Why it was not measured; empty for measured ones")
    )
    settings: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=doc("Configuration by dot key that affects numbers, without defaults"),
    )
    limits: Mapping[str, str] = field(
        default_factory=dict, metadata=doc("Limits used by the gate, by metric")
    )
    timer: str = field(default="", metadata=doc("Name of the clock"))
    machine: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=doc("Facts of its ranks or node by dot key that differ from the run's"),
    )
    flags: tuple[str, ...] = field(default=(), metadata=doc("Flags that qualify the numbers"))


_OPERATOR: Final = {"items": {"required": ["name", "calls", "self_s", "total_s"]}}
_PROFILE: Final = {"required": ["time_of", "steps"], "properties": {"operators": _OPERATOR}}
_CORRECTNESS: Final = {"properties": {"operators": _PROFILE}}


@dataclass(frozen=True, kw_only=True)
class BenchmarkRecord(Benchmark):
    """Fields of a benchmark in a run's files, whatever the form of its numbers.

    `work` is None if nothing was measured, or before amounts were recorded.
    """

    name: str = field(metadata=doc("Test function's name with its parameters"))
    params: Mapping[str, str] = field(metadata=doc("Parameters by name"))
    world_size: int = field(metadata=doc("World size", gt=0))
    launches: int = field(default=1, metadata=doc("Number of fresh processes per rank", gt=0))
    configuration: Mapping[str, Any] = field(
        default_factory=dict, metadata=doc("Resolved configuration")
    )
    sources: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc("Where keys of the configuration come from, by dot key; others are defaults"),
    )
    work: Work | None = field(default=None, metadata=doc("Work of one call, summed over ranks"))
    correctness: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=doc("Results of the untimed checks", json_schema_extra=_CORRECTNESS),
    )
    ranks: tuple[RankTimes, ...] = field(
        default=(), metadata=doc("One entry per rank, for several ranks")
    )
    host: str = field(default="", metadata=doc("Host of rank zero"))
    shard: str = field(
        default="", metadata=doc("Shard of the run that measured it; empty for an undivided run")
    )
    group: str = field(default="", metadata=doc("Title that the test groups it under"))
    extra_info: Mapping[str, Any] = field(default_factory=dict, metadata=doc("The test's notes"))


@dataclass(frozen=True, kw_only=True)
class Measurement(BenchmarkRecord):
    """Record of one benchmark; only outcome ``measured`` has samples and metrics."""

    samples: Samples | None = field(
        default=None, metadata=doc("Every duration, in seconds per call")
    )
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    per_launch: tuple[LaunchSample, ...] = ()

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants that the benchmark compared, the reference first."""
        return tuple(str(variant["name"]) for variant in self.correctness.get("variants", ()))

    @property
    def slowest_rank(self) -> RankTimes | None:
        """Rank with the longest median round, of several ranks.

        Not the one that was last most often: if the ranks wait for each other, that is chance.
        """
        has_several = len(self.ranks) > 1
        return max(self.ranks, key=lambda rank: rank.median_s) if has_several else None

    @property
    def confidence(self) -> float:
        """Confidence level of the intervals."""
        return float(self.configuration.get("measure", {}).get("confidence", CONFIDENCE))

    def finite(self) -> Measurement:
        """Copy for JSON without metrics that are not finite, which its flags name."""
        lost = tuple(f"not_finite:{n}" for n, m in self.metrics.items() if not isfinite(m.value))
        launches = tuple(
            replace(launch, metrics=_finite(launch.metrics)) for launch in self.per_launch
        )
        return replace(
            self, metrics=_finite(self.metrics), flags=self.flags + lost, per_launch=launches
        )

    def without_samples(self) -> Measurement:
        """Copy without samples, for keeping in memory; the journal has the samples."""
        launches = tuple(replace(launch, samples=None) for launch in self.per_launch)
        return replace(self, samples=None, per_launch=launches)


def _finite(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    return {name: metric for name, metric in metrics.items() if isfinite(metric.value)}


RunStatus = Literal["complete", "failed", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What is known of a run beside its benchmarks; times are UTC in ISO 8601."""

    run_id: str = field(metadata={"min_length": 1})
    experiment: str
    status: RunStatus
    started: str = field(metadata=doc("ISO 8601 in UTC", pattern=UTC_TIME))
    resumed: tuple[str, ...] = field(
        default=(), metadata=doc("UTC times at which the run was resumed")
    )
    finished: str = field(metadata=doc("ISO 8601 in UTC", pattern=UTC_TIME))
    command: tuple[str, ...] = field(metadata=doc("Arguments of pytest, without secrets"))
    environment: Mapping[str, Any] = field(metadata=doc("Facts of system.json"))


@dataclass(frozen=True, kw_only=True, repr=False)
class RunRecord(RunFacts):
    """Record of a run: command, environment, and every selected benchmark.

    `events` are the journal's lines of single benchmarks: training steps, epochs, evaluations, what
    ``gpubench.log`` was given; empty unless loaded from a journal.
    """

    benchmarks: tuple[Measurement, ...]
    events: tuple[Json, ...] = ()

    def __repr__(self) -> str:
        measured = sum(benchmark.outcome == "measured" for benchmark in self.benchmarks)
        return (
            f"<{type(self).__name__} {self.run_id}: {self.status}, "
            f"{measured} of {len(self.benchmarks)} benchmarks measured>"
        )


@dataclass(frozen=True, kw_only=True)
class Result(Benchmark):
    """Benchmark of a run, for comparisons.

    `metrics` are those of the whole run; `launches` has the metrics of each launch of fresh
    processes, at least one for a measured benchmark. `configuration` is complete, by dot key, empty
    if unknown. `work` has the amounts of a call over all ranks by name, None if not recorded.
    `pinned`: the run was pinned or accepted as the level of the benchmark. `foreign`: it is from a
    file of pytest-benchmark alone, which has less. `places` are in the user's code, by the metric
    that counts what happens there.
    """

    metrics: Mapping[str, Metric] = field(default_factory=dict)
    launches: tuple[Mapping[str, float], ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict)
    work: Mapping[str, float] | None = None
    places: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pinned: bool = False
    foreign: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """Run with its results by node id, for comparisons, from any source.

    Sources are run directories, files of pytest-benchmark, and the registry.

    `label` is its name in messages, as the user wrote it. `started` and `finished` are UTC in ISO
    8601, or empty; of an unfinished run `finished` is the time of its last line. `machine` has the
    facts by dot key that must be equal for numbers to be comparable, `environment` other facts to
    report if they differ. `status` is None if the source has none. `path` is the file or folder of
    the source. A `foreign` run is a file of pytest-benchmark alone: a fact that it lacks is no
    difference.
    """

    label: str
    run_id: str = ""
    started: str = ""
    finished: str = ""
    status: RunStatus | None = None
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Result] = field(default_factory=dict)
    path: Path | None = None
    foreign: bool = False

    @cached_property
    def measured(self) -> frozenset[str]:
        """Ids of the benchmarks that were measured."""
        return frozenset(i for i, r in self.results.items() if r.outcome == "measured")

    def machine_of(self, result: Result) -> Mapping[str, Any]:
        """Facts by dot key of what measured `result`: the run's, and in their place its own.

        One that is None there is the run's alone. Devices of other benchmarks do not count.
        """
        device = f"devices.{result.settings.get('experiment.device', 'cpu')}"
        merged = {**self.machine, **result.machine}
        return {
            key: fact
            for key, fact in merged.items()
            if fact is not None
            and (not key.startswith("devices.") or key.partition(":")[0] == device)
        }
