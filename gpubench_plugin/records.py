"""Records exchanged between packages: frozen, keyword-only and JSON-serializable.

Units stand in the names. What files and other processes get of a record are its fields, see
:mod:`gpubench_plugin.environment.stored`; no pickle is involved. The metadata of a field are for
pydantic, which this module does not import: descriptions and bounds of the published schemas, and
the key where it is not the field's name.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import fsum, inf, isclose, isfinite
from pathlib import Path
from statistics import median
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

Json = dict[str, Any]

Outcome = Literal[
    "measured",
    "failed",
    "skipped",
    "unsupported",
    "oom",
    "hang",
    "crashed",
    "mismatched_ranks",
    "not_measured",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

Better = Literal["higher", "lower", "none"]

CONFIDENCE: Final = 0.95
"""The level of intervals where nothing else is stated."""


def described(description: str, **bounds: object) -> Json:
    """The metadata of a field: what its schema says, and bounds as in ``annotated_types``."""
    return {"description": description, **bounds}


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Number and sizes of durations; fields as in `Samples`."""

    durations: int
    calls_per_duration: int
    durations_per_round: int


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """KLL sketch of `count` values that are not stored individually.

    Z. Karnin, K. Lang, E. Liberty: Optimal Quantile Approximation in Streams (2016),
    https://arxiv.org/abs/1603.05346, as Apache DataSketches has it. What it promises is about
    ranks: a 95th percentile with a rank error of 0.001 is a value between the 94.9th and the
    95.1st.

    `least`, `most` and `total` are exact. `kll` is the library's own serialisation in base64, empty
    where the library (the extra ``sketch``) was not installed: then there are no quantiles.
    """

    count: int
    least: float
    most: float
    total: float
    rank_error: float
    kll: str

    @property
    def mean(self) -> float:
        """Mean of all values."""
        return self.total / self.count

    def quantiles(self, fractions: Sequence[float]) -> list[float]:
        """Values at these `fractions`, 0 to 1, within `rank_error`.

        Raises:
            UsageProblem: the library that reads `kll` is not installed.
        """
        quantile_values: list[float] = _kll(self.kll).get_quantiles(list(fractions), inclusive=True)
        return quantile_values

    def representative_values(self, size: int = 1000) -> list[float]:
        """`size` ascending values with the distribution of the sketch."""
        return self.quantiles([(at + 0.5) / size for at in range(size)])

    @classmethod
    def merged(cls, sketches: Iterable[Sketch]) -> Sketch:
        """Merge `sketches` into one no larger than any of them."""
        parts = list(sketches)
        kll, *other_sketches = (_kll(part.kll) for part in parts)
        for other_sketch in other_sketches:
            kll.merge(other_sketch)
        return cls(
            count=sum(part.count for part in parts),
            least=min(part.least for part in parts),
            most=max(part.most for part in parts),
            total=fsum(part.total for part in parts),
            rank_error=max(part.rank_error for part in parts),
            kll=kll_text(kll),
        )


def has_quantile(count: int, fraction: float) -> bool:
    """Whether the sample is large enough for the quantile: 20 for the 95th percentile.

    Of fewer it would be little but the largest of them.
    """
    return round(count * min(fraction, 1 - fraction), 9) >= 1


def _kll(text: str) -> Any:
    try:
        from datasketches import kll_doubles_sketch
    except ImportError as error:
        from gpubench_plugin.errors import UsageProblem

        message = "reading a sketch of durations takes datasketches: pip install"
        raise UsageProblem(f"{message} 'pytest-gpubench[sketch]'") from error
    return kll_doubles_sketch.deserialize(b64decode(text))


def kll_text(kll: Any) -> str:
    """Serialize a KLL sketch in base64."""
    return b64encode(kll.serialize()).decode("ascii")


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Times of one benchmark on one rank, or reduced over ranks.

    A *duration* is one call of the step, or the mean of `calls_per_duration` calls where the step
    is too short to be timed alone. A *round* is the smallest group of consecutive durations that
    lasts a millisecond: warm-up and confidence count rounds. A *block* is what runs between two
    decisions of the loop. Nothing is dropped; samples of the warm-up stand apart: `warmup_s` holds
    the seconds of each group of calls that was timed together, so that it adds up to the time
    spent, and `warmup_calls` all calls between the first one and the timed ones.

    Where there were too many durations to keep, `durations_s` are the medians of the rounds, in
    their order, `calls_per_duration` the calls of a round, and `reduced_from` how it was timed in
    fact. `sketch` then is the distribution of the durations themselves, in seconds per call; there
    is none of several ranks together.

    `first_step_s` is None where nobody saw the very first call. Where nobody saw anything of what
    came before the timed calls there is no warm-up either.
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
    reduced_from: Timing | None = None
    sketch: Sketch | None = None

    @property
    def calls(self) -> int:
        """Timed calls of the step."""
        return sum(self.block_calls)

    @property
    def timing(self) -> Timing:
        """How the durations were timed, including those no longer stored."""
        return self.reduced_from or Timing(
            durations=len(self.durations_s),
            calls_per_duration=self.calls_per_duration,
            durations_per_round=self.durations_per_round,
        )

    @property
    def rounds(self) -> int:
        """Complete rounds timed."""
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
    """Work done by one call of the step, on one rank or summed over ranks.

    None is what nobody stated or counted.
    """

    samples: float | None = None
    tokens: float | None = None
    bytes: float | None = None
    flops: float | None = field(default=None, metadata=described("A multiply-add counts as two"))

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

    `correctness` becomes part of the record; `facts` are added to the observation's, `flags` to
    those of its samples.
    """

    correctness: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """Time statistics of one rank.

    `median_s` is the median round, all other statistics are of the `count` single durations, in
    seconds per call; quantiles are interpolated linearly, and None where `has_quantile` of
    `count` says that there are too few for one. `total_s` is the length of all blocks.
    Where a duration is not finite, neither is any statistic.
    """

    rank: int = field(metadata={"ge": 0})
    host: str
    count: int = field(metadata=described("Durations timed", ge=0))
    min_s: float
    p5_s: float | None
    median_s: float = field(metadata=described("Median of the rounds"))
    p95_s: float | None
    p99_s: float | None
    max_s: float
    total_s: float = field(metadata=described("Length of all timed blocks"))


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Everything observed about one benchmark, the only input of metrics.

    `samples` are reduced over the ranks (maximum per duration); `ranks` has a row for each of
    them, or none where there is only one. `work` is summed over the ranks. `precision` is what
    matrix products compute in: fp32, tf32, fp16, …; empty where the benchmark uses none. `facts`
    holds the numbers that are neither durations nor work: ``peak_memory_bytes``,
    ``skipped_steps``, ``data_wait_s`` (inside the timed calls), ``loss_first``, ``loss_last``,
    ``compiled`` (0 or 1), ``confidence`` (the level of intervals), ``processors`` (of the host) and
    whatever a subject adds.
    """

    samples: Samples
    ranks: tuple[RankTimes, ...] = ()
    work: Work
    device: str
    device_name: str
    precision: str
    world_size: int
    facts: Mapping[str, float] = field(default_factory=dict)


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


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Measurement of one launch, for benchmarks with several."""

    samples: Samples | None
    metrics: Mapping[str, Metric]
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What every record of a benchmark has, measured, stored or read.

    `settings` is the configuration by dot key with defaults left out, as far as it makes numbers
    comparable; `limits` are those the gate judges its metrics by. `timer` names the clock:
    ``cuda_events`` and ``cuda_kernel`` take the device's own time, all others are clocks of the
    host.
    """

    id: str = field(metadata=described("pytest's node id", min_length=1))
    outcome: Outcome
    reason: str = field(
        default="", metadata=described("Why it was not measured; empty for measured ones")
    )
    settings: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=described("The configuration by dot key, what is no default and changes numbers"),
    )
    limits: Mapping[str, str] = field(
        default_factory=dict, metadata=described("Limits used by the gate, by metric")
    )
    timer: str = field(default="", metadata=described("The clock"))
    flags: tuple[str, ...] = field(default=(), metadata=described("Flags that qualify the numbers"))


@dataclass(frozen=True, kw_only=True)
class BenchmarkRecord(Benchmark):
    """What a run's files have of a benchmark, in whatever form its numbers are.

    `ranks` has a row for each rank, in their order, where there are several. `work` is that of a
    call, on all ranks together; None where nothing was measured, or before amounts were recorded.
    """

    name: str = field(metadata=described("The test function's name with its parameters"))
    params: Mapping[str, str] = field(metadata=described("Parameters by name"))
    world_size: int = field(metadata=described("World size", gt=0))
    launches: int = field(default=1, metadata=described("Number of fresh processes per rank", gt=0))
    configuration: Mapping[str, Any] = field(
        default_factory=dict, metadata=described("The resolved configuration")
    )
    work: Work | None = field(
        default=None, metadata=described("Work of one call, summed over ranks")
    )
    correctness: Mapping[str, Any] = field(
        default_factory=dict, metadata=described("Results of the untimed checks")
    )
    ranks: tuple[RankTimes, ...] = field(
        default=(), metadata=described("One entry per rank, for several ranks")
    )


@dataclass(frozen=True, kw_only=True)
class Measurement(BenchmarkRecord):
    """Record of one benchmark; only outcome ``measured`` has samples and metrics."""

    samples: Samples | None = field(
        default=None, metadata=described("Every duration, in seconds per call")
    )
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    per_launch: tuple[Launch, ...] = ()

    @property
    def slowest_rank(self) -> RankTimes | None:
        """The rank with the longest median round; None with fewer than two ranks.

        Not the one that was last most often: where the ranks wait for each other that is chance.
        """
        has_several = len(self.ranks) > 1
        return max(self.ranks, key=lambda rank: rank.median_s) if has_several else None

    @property
    def confidence(self) -> float:
        """Confidence level of its intervals."""
        level: float = self.configuration.get("measure", {}).get("confidence", CONFIDENCE)
        return level

    def finite(self) -> Measurement:
        """The same record without numbers that are not finite, which its flags name.

        JSON has no word for them: one metric does not cost the others their place in a file.
        """
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
class RunRecord:
    """One run: command, environment, and the record of every selected benchmark.

    `started`, `resumed` (each time it went on) and `finished` are UTC in ISO 8601; `command` holds
    the arguments of pytest.
    """

    run_id: str
    experiment: str
    status: RunStatus
    started: str
    resumed: tuple[str, ...] = ()
    finished: str
    command: tuple[str, ...]
    environment: Mapping[str, Any]
    benchmarks: tuple[Measurement, ...]


@dataclass(frozen=True, kw_only=True)
class Result(Benchmark):
    """One benchmark of one run, as it is compared.

    `metrics` are those of the whole run; `launches` holds the value of each metric in each launch
    of fresh processes, one mapping per launch, never none for a measured benchmark. `configuration`
    is all of it by dot key, empty where it is unknown. `work` holds the amounts of work in a call
    on all ranks by name, None where nobody recorded whether it has any. `pinned`: somebody has said
    that this is the level of the benchmark, by pinning the run or accepting it. `foreign`: it was
    read from what pytest-benchmark alone wrote of it, which is less.
    """

    metrics: Mapping[str, Metric] = field(default_factory=dict)
    launches: tuple[Mapping[str, float], ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict)
    work: Mapping[str, float] | None = None
    pinned: bool = False
    foreign: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run with its results by node id, as used for comparisons.

    A run directory, a file of pytest-benchmark (ours or anybody's) and the registry all give the
    same record: what is compared does not know where it came from.

    `label` is what messages call it: as the user named it. `started` and `finished` are UTC in ISO
    8601, or empty; of a run without an end `finished` is the time of its last line.
    `machine` holds the facts by dot key that must be equal for numbers to be comparable,
    `environment` other facts worth saying where they differ. `status` is None where the source
    knows none. `path` is the file or folder it was read from. A `foreign` run is a file that
    pytest-benchmark alone has written: it knows fewer facts, and one it lacks is no difference.
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


VerdictKind = Literal[
    "improved",
    "unchanged",
    "regressed",
    "inconclusive",
    "no_baseline",
    "new",
    "removed",
    "incomparable",
    "errored",
    "not_measured",
]
VERDICT_KINDS: Final[tuple[VerdictKind, ...]] = get_args(VerdictKind)
"""In words: ``no_baseline``: nothing to compare with at all, or too little of it; ``new``: the
baseline has no such benchmark; ``removed``: only the baseline has it; ``errored``: it failed,
crashed, hung or ran out of memory; ``not_measured``: it did not run."""

MISSING: Final[frozenset[VerdictKind]] = frozenset({"no_baseline", "new", "incomparable"})
"""What ``--gate-missing`` decides about."""

COMPARED: Final[frozenset[VerdictKind]] = frozenset(
    {"improved", "unchanged", "regressed", "inconclusive"}
)
"""Verdicts for which two numbers, or a number and a fixed bound, were held against each other."""

Method = Literal["paired", "history", "threshold", "exact", "absolute"]
"""How a verdict was found. ``threshold`` is not statistical; ``exact`` is for metrics without any
variance; ``absolute`` compares with a fixed bound instead of a baseline."""

LAST: Final = "last"
"""What ``--baseline`` calls the last comparable run: no baseline is called so any more."""


def is_regression(kind: str, method: str | None, *, base: str) -> bool:
    """Whether a verdict excludes its run from the samples of later ones.

    One beside the last run does not: two runs of the same code differ by more than the threshold
    often enough, and a history without its slower half would find all others slow. `base` is the
    label of what the run was compared with.
    """
    return kind == "regressed" and not (method == "threshold" and base == LAST)


class _Unbounded:
    """What pydantic makes of an interval: JSON has no infinity, an end that is not bounded is null.

    https://docs.pydantic.dev/latest/concepts/types/#customizing-validation-with-__get_pydantic_core_schema__
    """

    @staticmethod
    def __get_pydantic_core_schema__(source: object, handler: Any) -> Any:
        from pydantic_core import core_schema

        def bounded(ends: tuple[float | None, float | None]) -> tuple[float, float]:
            low, high = ends
            return (-inf if low is None else low, inf if high is None else high)

        ends = handler.generate_schema(tuple[float | None, float | None])
        return core_schema.no_info_after_validator_function(bounded, ends)


Interval = Annotated[tuple[float, float], _Unbounded]


@dataclass(frozen=True, kw_only=True)
class VerdictPart:
    """What was found of one number, which may be one of several that a verdict is about.

    `effect` and `interval` are fractions, positive where the head is slower or worse: head/base − 1
    for a metric that should be low, 1 − head/base for one that should be high. `limit` is the text
    of the limit. `metric` is empty where a verdict is about the whole benchmark.
    """

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid", "allow_inf_nan": False}

    metric: str = field(
        default="", metadata=described("Empty if the verdict is about the whole benchmark")
    )
    unit: str = field(default="", metadata=described("Unit of base and head"))
    better: Better = field(default="none", metadata=described("Direction of improvement"))
    kind: VerdictKind = field(metadata={"alias": "verdict"})
    base: float | None = field(default=None, metadata=described("Base value in the unit"))
    head: float | None = field(default=None, metadata=described("Head value in the unit"))
    effect: float | None = field(
        default=None, metadata=described("Fraction, positive if the head is worse")
    )
    interval: Interval | None = field(
        default=None,
        metadata=described(
            "Confidence interval of the effect as fractions; an unbounded end is null"
        ),
    )
    limit: str = field(default="", metadata=described("Limit it was judged by"))


@dataclass(frozen=True, kw_only=True)
class Verdict(VerdictPart):
    """Verdict on one metric of a benchmark, or on its step time as a whole.

    The step time is judged by several metrics at once: its `parts`, of which the verdict's own
    numbers are the one that decided. `moved` are those that made it `regressed` or `improved`.

    `launches` counts the independent samples the verdict rests on. `smallest_visible_effect` is the
    least true effect that could have been called, a fraction. `reason` says why in one line.
    `pairs_needed` estimates how many pairs would decide it, `runs_needed` how many more earlier
    runs there must be before any can.
    """

    id: str = field(metadata=described("pytest's node id", min_length=1))
    method: Method | None = field(
        default=None,
        metadata=described("threshold: not statistical; exact: values without variance"),
    )
    launches: int = field(
        default=0, metadata=described("Independent samples: pairs, earlier runs, or 1", ge=0)
    )
    smallest_visible_effect: float | None = field(
        default=None,
        metadata=described("Smallest true effect that would have been detected, as a fraction"),
    )
    pairs_needed: int | None = field(
        default=None, metadata=described("Estimated number of pairs for a decision", ge=0)
    )
    runs_needed: int | None = field(
        default=None,
        metadata=described("Number of further earlier runs required for a history", ge=0),
    )
    reason: str = field(default="", metadata=described("Reason in one line"))
    parts: tuple[VerdictPart, ...] = field(
        default=(), metadata=described("For a step time: all metrics it is judged by")
    )

    @property
    def changed_metrics(self) -> tuple[str, ...]:
        """Metrics of the parts that have the verdict's kind, or its only metric."""
        return tuple(part.metric for part in self.parts if part.kind == self.kind) or (self.metric,)

    @property
    def is_unchecked(self) -> bool:
        """Whether the limit could not be checked, since the metric is missing or not judgeable."""
        return self.kind in {"not_measured", "errored"} and bool(self.metric)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A fact, by dot key, that differs between base and head; None on a side without it."""

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    key: str
    base: Any
    head: Any


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Verdicts of one head against one base, in the head's order.

    There is one verdict per benchmark and metric, each with its reason.

    `notes` are lines that stand above the verdicts, that incomparable runs were compared for
    example.
    """

    base: str
    head: str
    verdicts: tuple[Verdict, ...] = ()
    environment_differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    def count(self, kind: VerdictKind) -> int:
        """Number of verdicts of that kind."""
        return sum(verdict.kind == kind for verdict in self.verdicts)

    @property
    def all_incomparable(self) -> bool:
        """Whether base and head share benchmarks, but all of them are incomparable.

        A fixed bound compares nothing with a base.
        """
        kinds = {verdict.kind for verdict in self.verdicts if verdict.method != "absolute"}
        return "incomparable" in kinds and kinds.isdisjoint(COMPARED)
