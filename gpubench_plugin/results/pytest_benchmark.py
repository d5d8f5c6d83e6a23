"""Adapter to pytest-benchmark's private API, versions 5.x.

Its ``benchmark`` fixture runs a no-op whose samples are replaced by ours, so that its tables, JSON,
comparisons and histograms work. Only this module uses ``BenchmarkFixture.has_error``, ``cprofile``,
``extra_info``, ``group``, ``_mode``, ``_timer``, ``_raw`` and ``_raw_pedantic``;
``Metadata`` with its names, ``stats``, ``iterations`` and ``options``; ``Stats`` with all fields;
``Config._benchmarksession`` with its ``save``, ``autosave``, ``json``, ``quiet`` and ``groups``.
"""

from __future__ import annotations

import math
import os
from copy import copy
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.errors import Misuse, error_text
from gpubench_plugin.environment.redaction import redact, redact_facts
from gpubench_plugin.system import json_files, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pytest

    # Not public, so that only this module knows where they are: the others import them from here.
    from pytest_benchmark.fixture import BenchmarkFixture as BenchmarkFixture  # noqa: PLC0414
    from pytest_benchmark.stats import Metadata as Metadata  # noqa: PLC0414

    from gpubench_plugin.core.records import Json, Measurement, Samples

    Timer = Callable[[], float]

SECTION: Final = stored.Format(kind="gpubench section", newest=1)
"""The ``gpubench`` part of its files."""

TWO_MEASUREMENTS: Final = (
    "requests both gpubench and pytest-benchmark's benchmark, but a test has one measurement: "
    "remove `benchmark`; what gpubench measures is in pytest-benchmark's files as well"
)
"""What is wrong with a test, after its name."""

DATA_LIMIT: Final = 1000
"""Durations per benchmark: 20 KB per file. Statistics and journal have all."""

_ROUNDING: Final = 1e-9
"""Share by which rounding may move a mean beyond the extremes."""

_ELSEWHERE: Final = frozenset(
    {
        *("id", "name", "params", "world_size", "launches", "outcome", "reason"),
        *("configuration", "correctness", "ranks", "slowest_rank", "group", "extra_info"),
    }
)
"""Fields of the summary that a file omits or has under pytest-benchmark's names."""

STATISTICS: Final[Mapping[str, str]] = {
    "min": "step_time_min_s",
    "max": "step_time_max_s",
    "mean": "step_time_mean_s",
    "median": "step_time_s",
}
"""Our metrics by the names of pytest-benchmark's statistics, with the same values."""


def measuring_disabled(benchmark: BenchmarkFixture) -> bool:
    """Whether measuring is disabled (``--benchmark-disable``, xdist)."""
    return bool(benchmark.disabled)


def run_once(
    benchmark: BenchmarkFixture,
    step: Callable[[], object],
    setup: Callable[[], object] | None = None,
    teardown: Callable[[], object] | None = None,
) -> object:
    """Run `step` once, with measuring disabled, and return its result."""
    if setup is not None:
        setup()
    try:
        return _pedantic(benchmark, step)
    finally:
        if teardown is not None:  # a disabled `pedantic` skips it
            teardown()


def store_result(benchmark: BenchmarkFixture, measurement: Measurement) -> None:
    """Store `measurement` as the result of the test that requested `benchmark`.

    pytest-benchmark's round of n iterations is our duration: seconds per call of n calls timed
    together. Minimum, maximum, mean and median are our metrics; the standard deviation is over all
    durations, of which at most :data:`DATA_LIMIT` are stored (see :func:`subsample`).
    """
    samples = measurement.samples
    assert samples is not None  # it was measured
    stats, iterations = _stats(measurement, samples)
    benchmark.cprofile = False  # it would profile the no-op
    _pedantic(benchmark, _no_op)
    metadata: Metadata = benchmark.stats
    metadata.stats, metadata.iterations = stats, iterations
    sections: Mapping[str, Mapping[str, Any]] = measurement.configuration
    metadata.options = {**sections.get("measure", {}), "timer": samples.timer}
    vars(metadata).update(_names(measurement))


def _names(measurement: Measurement) -> Json:
    """What records, which have no secrets, call a benchmark, by pytest-benchmark's attributes."""
    variant = measurement.name.partition("[")[2].removesuffix("]") or None
    names = {"name": measurement.name, "fullname": measurement.id, "param": variant}
    return {**names, "params": dict(measurement.params) or None}


def store_foreign_result(
    config: pytest.Config, measurement: Measurement, results: dict[str, Metadata]
) -> None:
    """Add `measurement` of another process or session, unless measuring is disabled.

    Also to the `results` by id. One whose samples are lost is not added.
    """
    from pytest_benchmark.fixture import BenchmarkFixture

    session: Any = config._benchmarksession  # type: ignore[attr-defined] # pytest-benchmark's
    if session.skip or session.disabled or measurement.samples is None:
        return
    benchmark = BenchmarkFixture(
        SimpleNamespace(name=measurement.name, nodeid=measurement.id),
        add_stats=session.benchmarks.append,
        logger=session.logger,
        warner=None,
        disabled=False,
        group=measurement.group or None,
        **session.options,
    )
    benchmark.extra_info = measurement.extra_info
    store_result(benchmark, measurement)
    results[measurement.id] = benchmark.stats


_RESULT: Final = ("name", "fullname", "group", "param", "params", "extra_info", "iterations")
"""Attributes of a :class:`Metadata` that say what it is of."""


def taken_results(config: pytest.Config) -> list[Json]:
    """Results of this session so far as JSON, which are taken out of it."""
    session: Any = config._benchmarksession  # type: ignore[attr-defined] # pytest-benchmark's
    results = [
        {
            **{name: getattr(metadata, name) for name in _RESULT},
            "options": {n: getattr(v, "__name__", v) for n, v in metadata.options.items()},
            "data": metadata.stats.data,
        }
        for metadata in session.benchmarks
        if not metadata.has_error
    ]
    del session.benchmarks[:]
    return [json_files.jsonable(result) for result in results]


def add_result(config: pytest.Config, result: Json) -> Metadata:
    """Add a result that another process took out of its session."""
    from pytest_benchmark.stats import Metadata

    session: Any = config._benchmarksession  # type: ignore[attr-defined] # pytest-benchmark's
    fixture = SimpleNamespace(**result, has_error=False, cprofile_stats=None, cprofile=False)
    metadata: Metadata = Metadata(fixture, result["iterations"], result["options"])
    for duration in result["data"]:
        metadata.stats.update(duration)
    session.benchmarks.append(metadata)
    return metadata


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """pytest-benchmark's statistics of a benchmark, None where unknown."""

    median: float
    min: float
    mean: float | None = None
    max: float | None = None
    stddev: float | None = None
    rounds: float | None = None
    iterations: float | None = None

    @property
    def fault(self) -> str:
        """The field that no measurement has, with its value; empty if there is none."""
        for name, value in vars(self).items():
            is_possible = value is None or 0 < value < math.inf or (name, value) == ("stddev", 0)
            if not is_possible or (name in {"rounds", "iterations"} and (value or 0) % 1):
                return f"{name} {value} is impossible"
        low, high = self.min * (1 - _ROUNDING), (self.max or math.inf) * (1 + _ROUNDING)
        for name, value in (("median", self.median), ("mean", self.mean)):
            if not low <= (value or low) <= high:
                return f"{name} {value} is not between min {self.min} and max {self.max}"
        return ""


@dataclass(frozen=True, kw_only=True)
class PytestBenchmarkTiming:
    """pytest-benchmark's own measurement: seconds per call over `iterations` calls."""

    durations_s: tuple[float, ...]
    iterations: int
    timer: str

    @property
    def fault(self) -> str:
        """What of its statistics is impossible; a NaN shows in the mean, wherever it is."""
        times = self.durations_s
        mean = sum(times) / len(times)
        return Statistics(median=median(times), min=min(times), mean=mean, max=max(times)).fault


def is_fixture(value: object) -> bool:
    """Whether `value` is pytest-benchmark's fixture ``benchmark``."""
    from pytest_benchmark.fixture import BenchmarkFixture

    return issubclass(type(value), BenchmarkFixture)  # whatever class it claims to be


def label(benchmark: BenchmarkFixture, **values: object) -> None:
    """Set its group, or what the test notes; also once it has measured."""
    for labelled in filter(None, (benchmark, benchmark.stats)):
        vars(labelled).update(values)


def labels(benchmark: BenchmarkFixture) -> Json:
    """Its group, and what the test noted, as fields of a record: what is no JSON is text."""
    try:
        extra_info = json_files.jsonable(dict(benchmark.extra_info))
    except Exception as error:  # it contains itself, or an object's text fails
        extra_info = {"not_json": f"{type(error).__name__}: {error_text(error)}"}
    return {"group": redact(str(benchmark.group or "")), "extra_info": redact_facts(extra_info)}


def observe(
    benchmark: BenchmarkFixture,
    make_context: Callable[[], AbstractContextManager[object]],
    on_result: Callable[[object, Callable[..., object], Mapping[str, Any]], object],
) -> None:
    """Let `benchmark`, but none of its copies, measure inside the context from `make_context`.

    `on_result` then gets the function's result, the function, and the options of ``pedantic``.
    """
    fixture: Any = type(benchmark)

    def observed(name: str) -> Callable[..., Any]:
        measure = getattr(fixture, name)

        def measuring(self: Any, function: Callable[..., object], /, *args: Any, **kw: Any) -> Any:
            if self is not benchmark:
                return measure(self, function, *args, **kw)
            with make_context():
                result = measure(self, function, *args, **kw)
            # By keyword; not stored. Those of a call are the function's.
            on_result(result, function, {} if name == "_raw" else kw)
            return result

        return measuring

    methods = {name: observed(name) for name in ("_raw", "_raw_pedantic")}
    benchmark.__class__ = type("ObservedFixture", (fixture,), methods)


def change_timer(benchmark: BenchmarkFixture, change: Callable[[Timer], Timer]) -> None:
    """Replace the timer of `benchmark` using `change`."""
    benchmark._timer = change(benchmark._timer)


def own_measurement(benchmark: BenchmarkFixture) -> PytestBenchmarkTiming | str:
    """Measurement of `benchmark`, or why there is none."""
    metadata: Metadata | None = benchmark.stats
    if measuring_disabled(benchmark):
        return "measuring is disabled (--benchmark-disable)"
    if benchmark.has_error or metadata is None or not metadata.stats.data:
        return "the measured function raised an error"
    timer = metadata.options.get("timer")
    return PytestBenchmarkTiming(
        durations_s=tuple(map(float, metadata.stats.data)),
        iterations=metadata.iterations,
        timer=getattr(timer, "__name__", str(timer)),
    )


def mark_failed(benchmark: BenchmarkFixture) -> None:
    """Exclude a failed test from the saved results."""
    benchmark.has_error = True
    mark_ended(benchmark)


def mark_ended(benchmark: BenchmarkFixture) -> None:
    """Avoid the warning about an unused fixture of a test that ended early."""
    benchmark._mode = benchmark._mode or "gpubench"


def reserve(benchmark: BenchmarkFixture) -> None:
    """Keep `benchmark` for what gpubench measures: calls by the test raise :class:`Misuse`."""
    fixture: Any = type(benchmark)  # to mypy a class of an untyped package has no hash
    benchmark.__class__ = _reserved_class(fixture)


@cache
def _reserved_class(fixture: type[BenchmarkFixture]) -> type[BenchmarkFixture]:
    class ReservedFixture(fixture):  # type: ignore[misc] # pytest-benchmark has no types
        unreserved = fixture.pedantic

        def __call__(self, *_arguments: object, **_keywords: object) -> None:
            raise Misuse(f"the test {TWO_MEASUREMENTS}")

        pedantic = __call__

    return ReservedFixture


def _pedantic(benchmark: BenchmarkFixture, function: Callable[[], object]) -> object:
    """Have `benchmark`, which may be reserved, measure `function`."""
    return getattr(benchmark, "unreserved", benchmark.pedantic)(function)


def claim_unused(benchmark: BenchmarkFixture) -> bool:
    """Whether a test that passed measured nothing; pytest-benchmark then does not warn of it."""
    is_unused = benchmark._mode is None and not (benchmark.has_error or benchmark.skipped)
    if is_unused:
        benchmark._mode = "gpubench"
    return bool(is_unused)


def disable_output(config: pytest.Config) -> None:
    """Disable saving and reporting on ranks other than zero, after ``pytest_configure``."""
    session: Any = config._benchmarksession  # type: ignore[attr-defined] # pytest-benchmark's
    session.save = session.autosave = session.json = None
    session.compare_fail = None
    session.histogram = False
    session.quiet = True


_DISPLAY_OPTIONS: Final = (
    *("columns", "sort", "group-by", "name", "time-unit", "histogram", "verbose", "cprofile"),
    *("compare", "compare-fail"),
)
"""Options that ask for its table, or for what it prints with it, without ``--benchmark-``."""


def hide_table(config: pytest.Config, own_ids: Collection[str]) -> None:
    """Leave the benchmarks `own_ids` out of its table, unless one of its display options is used.

    What it saves, and what it warns of, stays. Called before its ``pytest_terminal_summary``.
    """
    session: Any = config._benchmarksession  # type: ignore[attr-defined] # pytest-benchmark's
    if not session.groups or _asks_for_table(config):
        return
    groups = [
        (title, [b for b in benchmarks if b["fullname"] not in own_ids])
        for title, benchmarks in session.groups
    ]
    session.groups = [(title, benchmarks) for title, benchmarks in groups if benchmarks]


def _asks_for_table(config: pytest.Config) -> bool:
    """Whether a display option is given, with its default, too."""
    given_words = [
        *map(str, config.invocation_params.args),
        *map(str, config.getini("addopts")),
        *os.environ.get("PYTEST_ADDOPTS", "").split(),
    ]
    given_names = {word.partition("=")[0] for word in given_words}
    return any(f"--benchmark-{option}" in given_names for option in _DISPLAY_OPTIONS)


def add_metrics(output_json: Json, measurements: Mapping[str, Measurement]) -> None:
    """Add our metrics to the ``stats`` of pytest-benchmark's JSON, by node id.

    Its comparisons read only ``stats``; ours also read ``gpubench``.
    """
    for benchmark in output_json["benchmarks"]:
        measurement = measurements.get(benchmark["fullname"])
        if measurement is not None:
            own_values = {name: metric.value for name, metric in measurement.metrics.items()}
            benchmark["stats"] = {**own_values, **benchmark["stats"]}
            benchmark["gpubench"] = _comparison_data(measurement)


def _comparison_data(measurement: Measurement) -> Json:
    """Fields of ``summary.json`` needed for comparisons that the file has nowhere else."""
    from gpubench_plugin.results.summary import fields_of

    compared = {name: v for name, v in fields_of(measurement).items() if name not in _ELSEWHERE}
    section: Json = json_files.jsonable(
        {**compared, "work": measurement.work and measurement.work.known_amounts}
    )
    return section


def benchmark_json(
    config: pytest.Config, metadata: Mapping[str, Metadata], measurements: Mapping[str, Measurement]
) -> Json:
    """Contents of ``--benchmark-json``, restricted to the `metadata` benchmarks.

    `metadata` holds the ``stats`` of their fixtures by the measurement's id. pytest-benchmark's
    hooks are called as usual.
    """
    hook = config.hook
    results = [copy(result) for result in metadata.values()]
    for node_id, result in zip(metadata, results, strict=True):
        m = measurements[node_id]
        vars(result).update(_names(m), group=m.group or None, extra_info=m.extra_info)
    machine = hook.pytest_benchmark_generate_machine_info(config=config)
    hook.pytest_benchmark_update_machine_info(config=config, machine_info=machine)
    commit = hook.pytest_benchmark_generate_commit_info(config=config)
    hook.pytest_benchmark_update_commit_info(config=config, commit_info=commit)
    document: Json = hook.pytest_benchmark_generate_json(
        config=config,
        benchmarks=results,
        include_data=True,
        machine_info=machine,
        commit_info=commit,
    )
    hook.pytest_benchmark_update_json(config=config, benchmarks=results, output_json=document)
    add_metrics(document, measurements)
    json_document: Json = json_files.jsonable(document)
    return json_document


def _no_op() -> None:
    """No-op whose samples are replaced."""


def _stats(measurement: Measurement, samples: Samples) -> tuple[Any, int]:
    """Statistics over all launches, and the calls per duration."""
    import numpy as np
    from pytest_benchmark.stats import Stats

    launches = [launch.samples for launch in measurement.per_launch]
    parts = [part for part in launches if part is not None] or [samples]
    durations = [duration for part in parts for duration in part.spread_s]
    exact_values: dict[str, float] = {
        their_name: measurement.metrics[our_name].value
        for their_name, our_name in STATISTICS.items()
        if our_name in measurement.metrics
    }
    mean = exact_values.get("mean", fmean(durations))
    rounds = sum(part.timing.durations for part in parts)
    stats: Any = Stats()
    stats.data = subsample(durations, DATA_LIMIT)
    # `Stats` caches its properties under their names. The quartiles require as many values as
    # rounds, so they are computed before the true number of rounds is set.
    vars(stats).update(
        q1=stats.q1,
        q3=stats.q3,
        rounds=rounds,
        total=mean * rounds,
        ops=1 / mean,
        # statistics.stdev takes a second for a million values.
        stddev=float(np.std(durations, ddof=1)) if len(durations) > 1 else 0.0,
        **exact_values,
    )
    return stats, max(part.timing.calls_per_duration for part in parts)


def subsample(durations: Sequence[float], limit: int) -> list[float]:
    """At most `limit` of `durations`, evenly by rank, in time order."""
    if len(durations) <= limit:
        return list(durations)
    by_rank = sorted(range(len(durations)), key=durations.__getitem__)
    last_index = len(durations) - 1
    kept_indices = {by_rank[round(i * last_index / (limit - 1))] for i in range(limit)}
    return [durations[i] for i in sorted(kept_indices)]
