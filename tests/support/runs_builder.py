"""Run directories as sessions leave them, made in milliseconds: for whatever reads runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gpubench_plugin.core.records import Measurement, Metric, RunRecord
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.results import verdicts as verdict_document
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.results.summary import write_summary
from gpubench_plugin.system import json_files, stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gpubench_plugin.core.records import Outcome, RunStatus

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
"""When run number 0 was started; the others follow it by an hour each."""

MLP = "benchmarks/training/test_mlp.py::test_mlp_train[amp]"
RESNET = "benchmarks/training/test_resnet18.py::test_resnet18_train[fp32]"

ENVIRONMENT: dict[str, Any] = {
    "schema_version": 1,
    "hostname": "here",
    "platform": {"system": "Linux", "machine": "x86_64", "release": "6.1"},
    "python": {"implementation": "CPython", "version": "3.12.1"},
    "cpu": {"model": "A processor", "usable_cores": 2, "physical_cores": 1},
    "torch": {"version": "2.13.0", "threads": 1},
    "packages": {"numpy": "2.3.0", "pytest-gpubench": "0.1.0"},
}


def started(number: int) -> datetime:
    """When run `number` was started."""
    return FIRST + timedelta(hours=number)


def run_id(number: int, tag: str = "run") -> str:
    """The id of run `number`: ids sort as numbers do."""
    return f"{started(number):%Y%m%dT%H%M%SZ}_{tag}_{number:06x}"


def measurement(
    node_id: str = MLP,
    step_time_s: float = 0.010,
    *,
    outcome: Outcome = "measured",
    timer: str = "perf_counter",
    settings: Mapping[str, Any] = {},
    limits: Mapping[str, str] = {},
    metrics: Mapping[str, tuple[float, str, Any]] = {},
    **fields: Any,
) -> Measurement:
    """A benchmark whose every step took `step_time_s`; `metrics` adds or replaces numbers.

    `metrics` are (value, unit, better) by name.
    """
    numbers: dict[str, tuple[float, str, Any]] = {
        "step_time_s": (step_time_s, "s", "lower"),
        "step_time_min_s": (step_time_s, "s", "lower"),
        "samples_per_s": (8 / step_time_s, "samples/s", "higher"),
        "peak_memory_bytes": (1_000_000.0, "B", "lower"),
        **metrics,
    }
    return Measurement(
        id=node_id,
        name=node_id.rpartition("::")[2],
        params={"precision": "amp", "world_size": "1"},
        world_size=1,
        outcome=outcome,
        reason="" if outcome == "measured" else "said why",
        configuration={"distributed": {"world_size": 1}},
        settings=settings,
        limits=limits,
        timer=timer if outcome == "measured" else "",
        metrics={
            name: Metric(name=name, value=value, unit=unit, better=better)
            for name, (value, unit, better) in numbers.items()
        }
        if outcome == "measured"
        else {},
        **fields,
    )


def environment(
    *, branch: str | None = "main", commit: str = "c0ffee", dirty: bool = False, **facts: Any
) -> dict[str, Any]:
    """The facts of ``system.json``; `facts` replaces whole groups, `branch` None: not in git."""
    git = {"commit": commit, "branch": branch, "dirty": dirty, "changes": None, "remote": None}
    return {**ENVIRONMENT, "git": git if branch is not None else None, **facts}


def write_run(
    results: Path,
    number: int,
    benchmarks: Sequence[Measurement] | Mapping[str, float] | float = 0.010,
    *,
    experiment: str = "default",
    tag: str = "run",
    status: RunStatus | None = "complete",
    branch: str | None = "main",
    commit: str | None = None,
    dirty: bool = False,
    facts: Mapping[str, Any] = {},
    regressed: Iterable[str] = (),
    command: Sequence[str] = ("benchmarks", "-k", "mlp"),
) -> RunDirectory:
    """Run `number` below `results`.

    Args:
        results: the folder of all runs.
        number: ids and times sort as numbers do.
        benchmarks: measurements, or step times in seconds by node id, or that of :data:`MLP`.
        experiment, tag: as the flags are called.
        status: None leaves the run without a summary, as one that was killed.
        branch, commit, dirty: what git said; the default commit differs from run to run.
        facts: groups of ``system.json`` that are other than in :data:`ENVIRONMENT`.
        regressed: node ids that were found to have regressed, in ``verdicts.json``.
        command: arguments of pytest.
    """
    if isinstance(benchmarks, float | int):
        benchmarks = {MLP: benchmarks}
    if isinstance(benchmarks, Mapping):
        benchmarks = [measurement(name, value) for name, value in benchmarks.items()]
    about = environment(branch=branch, commit=commit or f"{number:040x}", dirty=dirty, **facts)
    directory = RunDirectory(path=results.resolve() / experiment / run_id(number, tag))
    directory.path.mkdir(parents=True)
    began, ended = (_text(started(number) + timedelta(minutes=m)) for m in (0, 5))
    configurations = {one.id: {"distributed": {"world_size": 1}} for one in benchmarks}
    json_files.write_json(directory.config_resolved, configurations)
    json_files.write_json(directory.system, about)
    _write_journal(directory, began, command, benchmarks, status)
    if status is not None:
        record = RunRecord(
            run_id=directory.run_id,
            experiment=experiment,
            status=status,
            started=began,
            finished=ended,
            command=tuple(command),
            environment=about,
            benchmarks=tuple(benchmarks),
        )
        write_summary(directory.summary, record)
    if names := list(regressed):
        write_verdicts(directory, [_regression(name) for name in names])
    return directory


def write_verdicts(directory: RunDirectory, verdicts: Sequence[Verdict]) -> None:
    """The run's ``verdicts.json``."""
    comparison = Comparison(base="main", head=directory.run_id, verdicts=tuple(verdicts))
    json_files.write_text(directory.verdicts, verdict_document.to_text([comparison]))


def _regression(node_id: str) -> Verdict:
    return Verdict(
        id=node_id,
        metric="step_time_s",
        unit="s",
        better="lower",
        kind="regressed",
        method="history",
        base=0.010,
        head=0.011,
        effect=0.1,
        interval=(0.08, 0.12),
        launches=20,
        smallest_visible_effect=0.02,
        limit="2%",
        reason="10% slower, 8 to 12%",
    )


def _write_journal(
    directory: RunDirectory,
    began: str,
    command: Sequence[str],
    benchmarks: Sequence[Measurement],
    status: RunStatus | None,
) -> None:
    params = {one.id: dict(one.params) for one in benchmarks}
    with Journal(directory.journal, now=lambda: began) as journal:
        journal.append(
            {
                "event": "run_started",
                "code": {},
                "run_id": directory.run_id,
                "command": list(command),
                "params": params,
            }
        )
        for one in benchmarks:
            if status is not None or one.outcome == "measured":
                journal.append({"event": "benchmark", **stored.dump(one)})
        if status is not None:
            journal.append({"event": "run_finished", "status": status})


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
