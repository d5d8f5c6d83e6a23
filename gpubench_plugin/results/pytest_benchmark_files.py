"""Reader of pytest-benchmark's files, as version 5.3.1 writes them.

Our files have the data of ``summary.json`` under ``gpubench``, so the run equals the one read from
its directory. Others have times, clock, pytest-benchmark's options and part of the machine facts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from gpubench_plugin.core.records import Metric, Result, Run
from gpubench_plugin.environment.fingerprints import informative_facts, machine_facts
from gpubench_plugin.results.pytest_benchmark import SECTION as OURS
from gpubench_plugin.results.pytest_benchmark import STATISTICS, Statistics
from gpubench_plugin.results.reader import result_of_summary
from gpubench_plugin.results.summary import SummaryBenchmark
from gpubench_plugin.system import stored

SECTION: Final = "pytest_benchmark"
"""Prefix of the dot keys."""

_DEFAULTS: Final[Mapping[str, Any]] = {
    "disable_gc": False,
    "min_rounds": 5,
    "min_time": 0.000005,
    "max_time": 1.0,
    "calibration_precision": 10,
    "precision": None,
    "confidence": 0.99,
    "warmup": False,
    "warmup_iterations": 100_000,
    "iterations": 1,
    "warmup_rounds": 0,
}
"""Default options. ``rounds`` has no default: only pedantic tests have it."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    fullname: str
    stats: Statistics
    options: Mapping[str, Any] = field(default_factory=dict)
    gpubench: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class _File:
    machine_info: Mapping[str, Any]
    benchmarks: tuple[_Entry, ...]
    commit_info: Mapping[str, Any] = field(default_factory=dict)
    datetime: str = ""
    gpubench: Mapping[str, Any] | None = None


def relevant_options(
    options: Mapping[str, Any], *, in_pedantic_mode: bool = False
) -> dict[str, Any]:
    """`options` that affect the numbers, including defaults but not empty values.

    Empty for our own options, which files of ours have in their place. With `in_pedantic_mode` the
    number of rounds is fixed, so stopping rules are irrelevant.
    """
    if "disable_gc" not in options:
        return {}
    relevant: dict[str, Any] = {"disable_gc": options["disable_gc"]}
    if in_pedantic_mode:
        return relevant
    for name in ("min_rounds", "min_time", "max_time", "calibration_precision"):
        if options.get(name) is not None:
            relevant[name] = options[name]
    relevant["precision"] = options.get("precision")
    if relevant["precision"] is not None:
        relevant["confidence"] = options.get("confidence")
    warmup = options.get("warmup")  # the number of calls, or none
    return {**relevant, "warmup": bool(warmup), **({"warmup_iterations": warmup} if warmup else {})}


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Non-default options among :func:`relevant_options`, by dot key."""
    return _by_dot_key(
        {n: value for n, value in options.items() if n not in _DEFAULTS or value != _DEFAULTS[n]}
    )


def _by_dot_key(options: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{SECTION}.{name}": value for name, value in options.items()}


def is_pytest_benchmark_file(document: object) -> bool:
    """Whether `document` looks like a file of pytest-benchmark."""
    return isinstance(document, Mapping) and {"machine_info", "benchmarks"} <= document.keys()


def parse_run(document: Mapping[str, Any], label: str, path: Path) -> Run:
    """Convert `document`, read from `path`, to a run.

    A benchmark that is contained twice, or with impossible statistics, is ``failed`` with the
    reason.

    Raises:
        BrokenFile: the file has another form, or is of another version of gpubench.
    """
    file = stored.restore(_File, document, str(path))
    own_part = {} if file.gpubench is None else OURS.check(file.gpubench, f"{path}: gpubench")
    environment = own_part.get("environment") or _environment(file)
    commit = file.commit_info
    return Run(
        label=label,
        run_id=own_part.get("run_id", ""),
        started=own_part.get("started") or _utc(file.datetime),
        commit=commit.get("id"),
        branch=commit.get("branch"),
        dirty=commit.get("dirty"),
        machine=machine_facts(environment),
        environment=informative_facts(environment),
        results=_results(file.benchmarks, str(path)),
        path=path,
        foreign=not own_part.get("environment"),
    )


def _results(entries: tuple[_Entry, ...], path: str) -> dict[str, Result]:
    times = Counter(entry.fullname for entry in entries)
    results = {}
    for entry in entries:
        # Our mean is that of blocks where durations are a sample, and may exceed them.
        stats = entry.stats if entry.gpubench is None else replace(entry.stats, mean=None)
        name, fault = entry.fullname, stats.fault
        if times[name] > 1:
            fault = f"the file contains it {times[name]} times; ambiguous"
        if fault:
            results[name] = Result(id=name, outcome="failed", reason=fault, foreign=True)
        elif entry.gpubench is not None:
            results[name] = _own_result(entry, entry.gpubench, path)
        else:
            results[name] = _foreign_result(entry)
    return results


def _foreign_result(entry: _Entry) -> Result:
    metrics = {metric.name: metric for metric in _metrics(entry.stats)}
    options = relevant_options(entry.options)
    return Result(
        id=entry.fullname,
        outcome="measured",
        timer=str(entry.options.get("timer", "perf_counter")),
        metrics=metrics,
        launches=({name: metric.value for name, metric in metrics.items()},),
        settings=settings_of(options),
        configuration=_by_dot_key(options),
        foreign=True,
    )


def _own_result(entry: _Entry, own_part: Mapping[str, Any], path: str) -> Result:
    """Result of one of our benchmarks, with full comparison data.

    pytest-benchmark's options have the defaults of an adopted one.
    """
    name = entry.fullname
    elsewhere = {"id": name, "name": name, "params": {}, "world_size": 1, "outcome": "measured"}
    benchmark = stored.restore(
        SummaryBenchmark, {**own_part, **elsewhere}, f"{path}: {name}", strict=True
    )
    is_pedantic = f"{SECTION}.rounds" in benchmark.settings
    options = relevant_options(entry.options, in_pedantic_mode=is_pedantic)
    return replace(result_of_summary(benchmark), configuration=_by_dot_key(options))


def _metrics(stats: Statistics) -> Iterator[Metric]:
    for their_name, our_name in STATISTICS.items():
        if (value := getattr(stats, their_name)) is not None:
            yield Metric(name=our_name, value=value, unit="s", better="lower")
    if stats.rounds is not None:
        yield Metric(name="rounds", value=stats.rounds, unit="count")


def _environment(file: _File) -> dict[str, Any]:
    """Facts known to pytest-benchmark, under ``system.json`` names."""
    machine = file.machine_info
    cpu = machine.get("cpu", {})
    return {
        "hostname": machine.get("node"),
        "platform": {name: machine.get(name) for name in ("system", "release", "machine")},
        "python": {
            "version": machine.get("python_version"),
            "implementation": machine.get("python_implementation"),
        },
        "cpu": {"model": cpu.get("brand_raw"), "logical_cores": cpu.get("count")},
        "git": {name: file.commit_info.get(key) for name, key in _GIT_KEYS.items()},
    }


_GIT_KEYS: Final = {"commit": "id", "branch": "branch", "dirty": "dirty"}


def _utc(text: str) -> str:
    """ISO 8601 time in UTC, or empty."""
    if not text:
        return ""
    time = datetime.fromisoformat(text).astimezone(UTC)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
