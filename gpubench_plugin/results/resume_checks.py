"""Resume checks: a run has the same benchmarks, configuration, code and machine throughout."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import listed
from gpubench_plugin.core.records import Json
from gpubench_plugin.environment import code
from gpubench_plugin.environment.fingerprints import (
    ABSENT,
    change_text,
    differences,
    flat,
    resume_facts,
    tolerates_unknown,
)
from gpubench_plugin.results.reader import RunToResume, intact
from gpubench_plugin.results.run_directory import RunDirectory, tag_of


def open_to_resume(
    directory: RunDirectory,
    *,
    environment: Mapping[str, Any],
    configurations: Mapping[str, Json],
    options: Mapping[str, str],
    rootdir: Path,
) -> RunToResume:
    """Open the run in `directory` to resume it; refuses without changing anything.

    Args:
        directory: folder of the run.
        environment: current facts of ``system.json``.
        configurations: resolved configuration of each selected benchmark, by node id; other
            benchmarks of the run stay unchanged.
        options: command line options for the run directory, by flag.
        rootdir: pytest's rootdir, which contains the code.

    Raises:
        UsageProblem: the conditions differ; names every key with both values.
        ResultsError: the run cannot be read or written.
    """
    _refuse_other_options(directory, options)
    run = RunToResume(directory)
    try:
        with intact(directory):
            _refuse_other_benchmarks(run, configurations)
            _refuse_other_conditions(run, configurations, environment, rootdir)
    except BaseException:
        run.journal.close()
        raise
    return run


def _refuse_other_options(directory: RunDirectory, options: Mapping[str, str]) -> None:
    actual = {
        "--results-dir": str(directory.path.parent.parent),
        "--experiment": directory.experiment,
        "--tag": tag_of(directory.run_id),
    }
    for flag, requested in options.items():
        if requested != actual[flag]:
            raise UsageProblem(
                f"{flag}={requested} conflicts with the resumed run, which has "
                f"{actual[flag]!r}; omit the option"
            )


def _refuse_other_benchmarks(run: RunToResume, selected: Iterable[str]) -> None:
    new_ids = [i for i in selected if i not in run.configurations]
    if new_ids:
        command = shlex.join(["pytest", *run.facts.command])
        raise UsageProblem(
            f"not part of the resumed run: {listed(new_ids)}; a run keeps the benchmarks it was "
            f"started with: {command}"
        )


def _refuse_other_conditions(
    run: RunToResume,
    configurations: Mapping[str, Json],
    environment: Mapping[str, Any],
    rootdir: Path,
) -> None:
    mismatches = [
        *_configuration_differences(run, configurations),
        *_environment_differences(run, environment),
    ]
    if files := code.changes(rootdir, run.code):
        mismatches.append(f"code: {listed(files)}; restore it, or start a new run without --resume")
    if mismatches:
        raise UsageProblem(
            "\n  ".join(["the conditions differ from those of the resumed run", *mismatches])
        )


def _configuration_differences(
    run: RunToResume, configurations: Mapping[str, Json]
) -> Iterator[str]:
    """Each configuration difference once, with the affected benchmarks."""
    ids_by_difference: dict[str, list[str]] = {}
    for node_id, current in configurations.items():
        recorded = flat(run.configurations[node_id])
        for key, pair in differences(recorded, flat(current)).items():
            ids_by_difference.setdefault(f"{key}: {change_text(pair)}", []).append(node_id)
    return (f"{text} ({listed(ids)})" for text, ids in ids_by_difference.items())


def _environment_differences(run: RunToResume, environment: Mapping[str, Any]) -> Iterator[str]:
    current = resume_facts(environment)
    recorded = {
        key: fact
        for key, fact in resume_facts(run.environment).items()
        if key in current
        or not key.startswith("devices.")  # a run may be resumed with some of its devices
    }
    return (
        f"{key}: {change_text(pair)}"
        for key, pair in differences(recorded, current).items()
        if not (ABSENT in pair and tolerates_unknown(key))
    )
