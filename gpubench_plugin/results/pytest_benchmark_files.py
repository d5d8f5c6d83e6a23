"""Reader of pytest-benchmark files, versions 3.2.3 to 5.3.1.

Our files have the data of ``summary.json`` under ``gpubench``, so the run equals the one read from
its directory. Others have times, clock, pytest-benchmark's options and part of the machine facts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from gpubench_plugin.core.errors import BrokenFile, UsageProblem, suggest
from gpubench_plugin.core.records import Metric, Result, Run
from gpubench_plugin.environment import stored
from gpubench_plugin.environment.fingerprints import informative_facts, machine_facts
from gpubench_plugin.results.plausibility import implausible, is_finite
from gpubench_plugin.results.pytest_benchmark import SECTION as OURS
from gpubench_plugin.results.reader import result_of_summary

TIMER: Final = "perf_counter"
"""pytest-benchmark's default clock, wall time of the host."""

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


def timer_of(options: Mapping[str, Any]) -> str:
    """Name of the clock in a benchmark's `options`."""
    timer = options.get("timer")
    return timer if isinstance(timer, str) and timer else TIMER


def relevant_options(
    options: Mapping[str, Any], *, in_pedantic_mode: bool = False
) -> dict[str, Any]:
    """`options` that affect the numbers, including defaults but not empty values.

    Empty for our own options, which files of ours have in their place. With `in_pedantic_mode` the
    number of rounds is fixed, so stopping rules are irrelevant.
    """
    if not isinstance(options.get("disable_gc"), bool):
        return {}
    relevant: dict[str, Any] = {"disable_gc": options["disable_gc"]}
    if in_pedantic_mode:
        return relevant
    for name in ("min_rounds", "min_time", "max_time", "calibration_precision"):
        if _finite(options.get(name)):
            relevant[name] = options[name]
    return {**relevant, **_until_precise(options), **_warmup(options)}


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Non-default options among :func:`relevant_options`, by dot key."""
    non_default = {
        n: value for n, value in options.items() if n not in _DEFAULTS or value != _DEFAULTS[n]
    }
    return by_dot_key(non_default)


def by_dot_key(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by dot key."""
    return {f"{SECTION}.{name}": value for name, value in options.items()}


def is_pedantic(settings: Mapping[str, Any]) -> bool:
    """Whether `settings` are those of a pedantic test."""
    return f"{SECTION}.rounds" in settings


def _until_precise(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the precision rule, which old versions lack."""
    if "precision" not in options:
        return {}
    if not _finite(options["precision"]):
        return {"precision": None}
    names = ("precision", "confidence")
    return {name: options[name] for name in names if _finite(options.get(name))}


def _warmup(options: Mapping[str, Any]) -> dict[str, Any]:
    """Number of warm-up calls, or false."""
    warmup = options.get("warmup")
    if isinstance(warmup, bool) or warmup == 0:
        return {"warmup": bool(warmup)}
    return {"warmup": True, "warmup_iterations": warmup} if _finite(warmup) else {}


_TIMES: Final = {
    "median": "step_time_s",
    "min": "step_time_min_s",
    "mean": "step_time_mean_s",
    "max": "step_time_max_s",
}
"""Our metrics by pytest-benchmark's statistics; the first two are required."""


def written_by_pytest_benchmark(document: object) -> bool:
    """Whether `document` looks like a pytest-benchmark file."""
    if not isinstance(document, Mapping) or not isinstance(document.get("benchmarks"), list):
        return False
    if "machine_info" in document or "commit_info" in document:
        return True
    entries = document["benchmarks"]
    return bool(entries) and all(isinstance(e, Mapping) and "stats" in e for e in entries)


def parse_run(document: Mapping[str, Any], label: str, path: Path) -> Run:
    """Convert `document`, read from `path`, to a run.

    A benchmark with impossible numbers, NaN or zero for example, or contained twice, is ``failed``
    with the reason.

    Raises:
        UsageProblem: an entry is not a benchmark, or the file is of a newer version.
    """
    own_part = _mapping(document.get("gpubench"))
    if own_part:
        OURS.check(own_part, f"{path}: gpubench")
    environment = _mapping(own_part.get("environment")) or _environment(document)
    commit = _mapping(document.get("commit_info"))
    return Run(
        label=label,
        run_id=str(own_part.get("run_id") or ""),
        started=str(own_part.get("started") or _utc(document.get("datetime"))),
        commit=_text(commit.get("id")),
        branch=_text(commit.get("branch")),
        dirty=commit.get("dirty") if isinstance(commit.get("dirty"), bool) else None,
        machine=machine_facts(environment),
        environment=informative_facts(environment),
        results=_results(document["benchmarks"], path),
        path=path,
        foreign=not own_part.get("environment"),
    )


def _results(entries: list[Any], path: Path) -> dict[str, Result]:
    named_entries = [(_name(entry, number, path), entry) for number, entry in enumerate(entries)]
    times = Counter(name for name, _ in named_entries)
    return {
        name: _result(name, entry)
        if times[name] == 1
        else _failed(name, f"the file contains it {times[name]} times; ambiguous")
        for name, entry in named_entries
    }


def _name(entry: object, number: int, path: Path) -> str:
    if isinstance(entry, Mapping):
        name = entry.get("fullname") or entry.get("name")
        if isinstance(name, str) and name:
            return name
        hint = suggest("fullname", map(str, entry))
        raise UsageProblem(f"{path}: benchmarks.{number} has no fullname{hint}")
    raise UsageProblem(f"{path}: benchmarks.{number} is not a benchmark but {type(entry).__name__}")


def _result(name: str, entry: Mapping[str, Any]) -> Result:
    if entry.get("has_error") or entry.get("error"):
        return _failed(name, "the file marks it as failed")
    own_part, stats = entry.get("gpubench"), _mapping(entry.get("stats"))
    if not stats:
        return _failed(name, "the file has no stats for it")
    error_text = _implausible_reason(stats)
    if error_text:
        return _failed(name, error_text)
    if own_part is not None:
        try:
            return _own_result(name, own_part, _mapping(entry.get("options")))
        except (BrokenFile, AttributeError, KeyError, OverflowError, TypeError, ValueError):
            return _failed(name, "its gpubench part is malformed")
    metrics = {m.name: m for m in _metrics(stats)}
    options = _mapping(entry.get("options"))
    return Result(
        id=name,
        outcome="measured",
        timer=timer_of(options),
        metrics=metrics,
        launches=({name: metric.value for name, metric in metrics.items()},),
        settings=settings_of(relevant_options(options)),
        configuration=by_dot_key(relevant_options(options)),
        foreign=True,
    )


def _own_result(name: str, own_part: Mapping[str, Any], options: Mapping[str, Any]) -> Result:
    """Result of one of our benchmarks, with full comparison data.

    pytest-benchmark's `options` have the defaults of an adopted one. Null, a non-finite number, is
    omitted. Raises AttributeError, BrokenFile, KeyError, OverflowError, TypeError or ValueError if
    malformed.
    """
    from gpubench_plugin.results.summary import SummaryBenchmark

    metrics = {metric: m for metric, m in own_part["metrics"].items() if m["value"] is not None}
    launches = [
        {metric: value for metric, value in launch.items() if value is not None}
        for launch in own_part.get("per_launch", [])
    ]
    error_text = implausible({metric: m["value"] for metric, m in metrics.items()}, launches)
    if error_text:
        return _failed(name, error_text)
    names = {part.name for part in fields(SummaryBenchmark)}
    benchmark = stored.restore(
        SummaryBenchmark,
        {
            "name": name,
            "params": {},
            "world_size": 1,
            **{key: value for key, value in own_part.items() if key in names},
            "id": name,
            "outcome": "measured",
            "metrics": metrics,
            "per_launch": launches,
        },
        name,
        strict=True,
    )
    configuration = by_dot_key(
        relevant_options(options, in_pedantic_mode=is_pedantic(benchmark.settings))
    )
    return replace(result_of_summary(benchmark), configuration=configuration)


def _metrics(stats: Mapping[str, Any]) -> Iterator[Metric]:
    for their_name, name in _TIMES.items():
        if _finite(stats.get(their_name)):
            yield Metric(name=name, value=float(stats[their_name]), unit="s", better="lower")
    if _finite(stats.get("rounds")):
        yield Metric(name="rounds", value=float(stats["rounds"]), unit="count")


def _implausible_reason(stats: Mapping[str, Any]) -> str:
    """Reason the times are impossible; empty if they are plausible."""
    for name in ("median", "min"):
        value: Any = stats.get(name)
        if not _is_number(value):
            return f"the file's {name} is {value!r:.40}, not a number"
        if not (_finite(value) and value > 0):
            return f"a {name} of {value} s is impossible"
    return ""


def _failed(name: str, reason: str) -> Result:
    return Result(id=name, outcome="failed", reason=reason)


def _environment(document: Mapping[str, Any]) -> dict[str, Any]:
    """Facts known to pytest-benchmark, under ``system.json`` names."""
    machine_info = _mapping(document.get("machine_info"))
    cpu = _mapping(machine_info.get("cpu"))
    commit = _mapping(document.get("commit_info"))
    return {
        "hostname": machine_info.get("node"),
        "platform": {name: machine_info.get(name) for name in ("system", "release", "machine")},
        "python": {
            "version": machine_info.get("python_version"),
            "implementation": machine_info.get("python_implementation"),
        },
        # Older versions of py-cpuinfo call it ``brand``.
        "cpu": {
            "model": cpu.get("brand_raw") or cpu.get("brand"),
            "logical_cores": cpu.get("count"),
        },
        "git": {
            "commit": commit.get("id"),
            "branch": commit.get("branch"),
            "dirty": commit.get("dirty"),
        },
    }


def _utc(text: object) -> str:
    """ISO 8601 time in UTC, or empty; old versions omit the UTC suffix."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return ""
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: Any) -> bool:
    """Whether `value` is a finite number and not a boolean."""
    return _is_number(value) and is_finite(value)
