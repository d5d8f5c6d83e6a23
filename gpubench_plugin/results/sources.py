"""Runs read from anywhere: a run's folder, id or summary, or a file of pytest-benchmark."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gpubench_plugin.config import comparable_part
from gpubench_plugin.environment import flat, json_files, machine_facts, told_facts
from gpubench_plugin.errors import BrokenFile, ResultsError, UsageProblem, nearest
from gpubench_plugin.flags import UNFINISHED
from gpubench_plugin.records import Benchmark, Metric, Result, Run
from gpubench_plugin.results import pytest_benchmark_files
from gpubench_plugin.results.plausibility import untrue
from gpubench_plugin.results.reader import environment_of, events_of, has_ended, recorded, status_of
from gpubench_plugin.results.run_directory import RunDirectory, find_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpubench_plugin.records import BenchmarkRecord, Json, Measurement
    from gpubench_plugin.results.summary import SummaryBenchmark

_Kind = TypeVar("_Kind")

_UNFINISHED: Final = "the run has no end and no record of this: it was killed, or still runs"


def read_run(text: str, *, results_dir: Path, here: Path) -> Run:
    """The run that `text` names; its label is `text`.

    That is a run's folder, a file in it (``summary.json``, ``metrics.jsonl``), a file of
    pytest-benchmark, or the id of a run below `results_dir` or its beginning. A path is seen from
    `here`, a folder also from `results_dir`.

    Raises:
        UsageProblem: there is no such run, or the file is broken or of another kind, and why.
        ResultsError: the operating system does not let it be read.
    """
    path = here / text
    try:
        is_folder = path.is_dir() or (results_dir / text).is_dir()
        if text and path.exists() and not path.is_dir():
            return _whole(path, text)
        if text.endswith((".json", ".jsonl")) and not is_folder:
            json_files.load(path)  # says why not
    except ValueError as error:  # a path with a null character
        raise UsageProblem(f"{text!r} is no path: {error}") from None
    except OSError as error:  # a name too long, a folder that is closed
        raise ResultsError(f"{text} cannot be read: {error.strerror}") from error
    return run_in(find_run(results_dir, text, here=here), label=text)


def run_in(directory: RunDirectory, *, label: str = "") -> Run:
    """The run in `directory`: from its summary, else from its journal.

    Without a summary it was killed or is still being written: then its status is ``interrupted``,
    and a benchmark without a line in the journal is ``not_measured``, with the flag
    :data:`~gpubench_plugin.flags.UNFINISHED`. Of a summary of version 1 or 2, which knows no
    settings, a benchmark's settings are its whole configuration, as far as it changes numbers:
    defaults are among them, so that a later version's settings differ from these.

    Raises:
        UsageProblem: a file of it is broken or of a newer version, and which.
        ResultsError: the operating system does not let it be read.
    """
    label = label or directory.run_id
    try:
        if directory.summary.exists():
            return _from_summary(directory.summary, json_files.load(directory.summary), label)
        return _from_journal(directory, label)
    except json_files.MALFORMED as error:  # one run of many: the others are read all the same
        raise BrokenFile(f"{directory} is not as it was written: {error!r:.200}") from error


def run_of(
    label: str,
    measurements: Iterable[Measurement],
    environment: Mapping[str, Any],
    *,
    started: str = "",
    run_id: str = "",
) -> Run:
    """The run that a session has measured itself: `environment` are the facts of its machine."""
    results = {measurement.id: _of_measurement(measurement) for measurement in measurements}
    return _run(label, results, environment, started=started, run_id=run_id)


def _whole(path: Path, text: str) -> Run:
    try:
        return _run_in_file(path, text)
    except json_files.MALFORMED as error:
        raise BrokenFile(f"{path} is not as it was written: {error!r:.200}") from error


def _run_in_file(path: Path, text: str) -> Run:
    directory = RunDirectory(path=Path(os.path.realpath(path)).parent)
    if path.name == directory.journal.name:
        return _from_journal(directory, text)
    document = json_files.load(path)
    if pytest_benchmark_files.written_by_pytest_benchmark(document):
        return pytest_benchmark_files.run_from(document, text, path)
    if isinstance(document, Mapping) and {"schema_version", "run_id"} <= document.keys():
        return _from_summary(path, document, text)
    raise BrokenFile(
        f"{path} is neither a file of pytest-benchmark nor a run's summary: it {_has(document)}"
    )


def _has(document: object) -> str:
    """What stands there instead of results."""
    if not isinstance(document, Mapping):
        kinds = {list: "is a list", str: "is a text", type(None): "is null"}
        return kinds.get(type(document), "is a number")
    if document.get("benchmarks") == []:
        return "has no benchmarks: the list of them is empty"
    if isinstance(document.get("benchmarks"), list):
        return "has benchmarks without the stats of pytest-benchmark"
    return "has no benchmarks" + nearest("benchmarks", map(str, document))


def _from_summary(path: Path, document: object, label: str) -> Run:
    from gpubench_plugin.results.summary import parsed

    wrong = _untrue(document)
    summary = parsed(document, str(path))
    results = {benchmark.id: _of_summary(benchmark) for benchmark in summary.benchmarks}
    for node_id, reason in wrong.items():
        results[node_id] = Result(id=node_id, outcome="failed", reason=reason)
    return _run(
        label,
        results,
        summary.environment,
        started=summary.started,
        finished=summary.finished,
        run_id=summary.run_id,
        status=summary.status,
        path=path.parent,
    )


def _untrue(document: object) -> dict[str, str]:
    """Why the numbers of a benchmark in a summary cannot be true, by id; they are taken out."""
    entries = document.get("benchmarks") if isinstance(document, Mapping) else None
    found: dict[str, str] = {}
    seen: set[str] = set()
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("metrics"), dict):
            continue  # the model says what is wrong with it
        node_id = str(entry.get("id"))
        if node_id in seen:
            found[node_id] = "the file has it twice, which is meant is not known"
        seen.add(node_id)
        values = {n: m.get("value") for n, m in entry["metrics"].items() if isinstance(m, dict)}
        launches = entry.get("per_launch")
        launches = launches if isinstance(launches, list) else []
        if problem := untrue(values, (one for one in launches if isinstance(one, dict))):
            found[node_id] = problem
            entry["metrics"], entry["per_launch"] = {}, []
    return found


def _of_summary(benchmark: SummaryBenchmark) -> Result:
    metrics = {
        name: Metric(name=name, value=m.value, unit=m.unit, better=m.better)
        for name, m in benchmark.metrics.items()
    }
    return _result(benchmark, metrics, benchmark.per_launch)


def _of_measurement(measurement: Measurement) -> Result:
    """The same as what the summary says of `measurement`: numbers that are none are left out."""
    finite = {n: m for n, m in measurement.metrics.items() if math.isfinite(m.value)}
    lost = tuple(f"not_finite:{n}" for n in measurement.metrics if n not in finite)
    per_launch = [
        {n: m.value for n, m in launch.metrics.items() if math.isfinite(m.value)}
        for launch in measurement.per_launch
    ]
    return _result(replace(measurement, flags=measurement.flags + lost), finite, per_launch)


def _result(
    record: BenchmarkRecord,
    metrics: Mapping[str, Metric],
    per_launch: Sequence[Mapping[str, float]],
) -> Result:
    values = {name: metric.value for name, metric in metrics.items()}
    return Result(
        **{shared.name: getattr(record, shared.name) for shared in fields(Benchmark)},
        metrics=metrics,
        launches=tuple(per_launch) or ((values,) if values else ()),
        configuration=flat(record.configuration) if record.configuration else {},
        work=None if record.work is None else record.work.known,
    )


def _run(
    label: str, results: Mapping[str, Result], environment: Mapping[str, Any], **more: Any
) -> Run:
    git = environment.get("git")
    git = git if isinstance(git, Mapping) else {}
    return Run(
        label=label,
        commit=_of_kind(str, git.get("commit")),
        branch=_of_kind(str, git.get("branch")),
        dirty=_of_kind(bool, git.get("dirty")),
        machine=machine_facts(environment),
        environment=told_facts(environment),
        results=results,
        **more,
    )


def _of_kind(kind: type[_Kind], value: object) -> _Kind | None:
    return value if isinstance(value, kind) else None


def _from_journal(directory: RunDirectory, label: str) -> Run:
    events = events_of(directory)
    beginning = next((event for event in events if event.get("event") == "run_started"), None)
    if beginning is None:
        raise BrokenFile(f"{directory.journal} has no beginning: the run never started")
    environment = environment_of(directory)
    try:
        results = _recorded(
            beginning, events, ended=has_ended(events) or directory.summary.exists()
        )
    except (BrokenFile, *json_files.MALFORMED) as error:
        raise BrokenFile(f"{directory.journal} is not as it was written: {error}") from error
    return _run(
        label,
        results,
        environment,
        started=str(beginning.get("time", "")),
        finished=str(events[-1].get("time", "")),
        run_id=directory.run_id,
        status=status_of(events),
        path=directory.path,
    )


def _recorded(beginning: Json, events: Sequence[Json], *, ended: bool) -> dict[str, Result]:
    """Every benchmark the run was started with: its latest line, or that there is none."""
    latest = {event["id"]: event for event in events if event.get("event") == "benchmark"}
    results = {}
    selected = beginning.get("params") or {}
    for node_id in dict.fromkeys((*selected.keys(), *latest)):
        if node_id in latest:
            measurement = recorded(latest[node_id])
            if "settings" not in latest[node_id]:
                known = comparable_part(flat(measurement.configuration))
                measurement = replace(measurement, settings=known)
            results[node_id] = _of_measurement(measurement)
        else:
            results[node_id] = Result(
                id=node_id,
                outcome="not_measured",
                reason="the run ended before it" if ended else _UNFINISHED,
                flags=() if ended else (UNFINISHED,),
            )
    return results
