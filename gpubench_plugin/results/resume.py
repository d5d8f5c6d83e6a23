"""Whether an earlier run may go on here and now: same benchmarks, configuration and machine.

One run is one record: what was measured by other code, with another configuration or on another
machine belongs into another run.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpubench_plugin.config import PRECISION_LEFT, former_ids
from gpubench_plugin.environment import (
    ABSENT,
    code,
    described,
    differences,
    fingerprint,
    flat,
    listed,
    recorded_lately,
)
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.records import Json
from gpubench_plugin.results.reader import EarlierRun, intact
from gpubench_plugin.results.run_directory import RunDirectory, tag_of


def reopen(
    directory: RunDirectory,
    *,
    environment: Mapping[str, Any],
    configurations: Mapping[str, Json],
    options: Mapping[str, str],
    rootdir: Path,
) -> EarlierRun:
    """The run in `directory`, open to go on; where it must not, nothing in it is changed.

    Args:
        directory: the folder of the run.
        environment: the facts of ``system.json`` as they are now.
        configurations: the resolved configuration of each benchmark selected now, by node id; a
            benchmark of the run that is not among them stays as it was.
        options: what was asked for on the command line of where the run goes, by flag.
        rootdir: pytest's, below which the code is.

    Raises:
        UsageProblem: naming every key that differs with both values.
        ResultsError: the run cannot be read or written.
    """
    _refuse_other_place(directory, options)
    run = EarlierRun(directory)
    try:
        with intact(directory):
            _refuse_other_benchmarks(run, configurations)
            _refuse_other_conditions(run, configurations, environment, rootdir)
    except BaseException:
        run.journal.close()
        raise
    return run


def _refuse_other_place(directory: RunDirectory, options: Mapping[str, str]) -> None:
    actual = {
        "--results-dir": str(directory.path.parent.parent),
        "--experiment": directory.experiment,
        "--tag": tag_of(directory.run_id),
    }
    for flag, asked in options.items():
        if asked != actual[flag]:
            raise UsageProblem(
                f"{flag}={asked} contradicts it: the run has {actual[flag]!r}; leave the flag away"
            )


def _refuse_other_benchmarks(run: EarlierRun, selected: Iterable[str]) -> None:
    new = [i for i in selected if i not in run.configurations]
    if new:
        command = shlex.join(["pytest", *run.command])
        raise UsageProblem(
            f"not selected in the run: {listed(new)}; a run keeps the benchmarks it was started "
            f"with: {command}{_former(run, new)}"
        )


def _former(run: EarlierRun, new: Sequence[str]) -> str:
    """A hint where the run has benchmarks under the ids of earlier versions."""
    renamed = [f"{now} was {old}" for now, old in former_ids(run.configurations, new).items()]
    return (
        f"; {listed(renamed)}: {PRECISION_LEFT}; measure a new run without --resume"
        if renamed
        else ""
    )


def _refuse_other_conditions(
    run: EarlierRun,
    configurations: Mapping[str, Json],
    environment: Mapping[str, Any],
    rootdir: Path,
) -> None:
    said = [
        *_in_configuration(run, configurations),
        *_in_environment(run, environment),
        *_in_code(run, configurations, rootdir),
    ]
    if said:
        raise UsageProblem("\n  ".join(["this is not what the run was measured with", *said]))


def _in_configuration(run: EarlierRun, configurations: Mapping[str, Json]) -> Iterator[str]:
    """Each difference once, with the benchmarks that have it."""
    differing: dict[str, list[str]] = {}
    for node_id, now in configurations.items():
        before = flat(run.configurations[node_id])
        for key, pair in differences(before, flat(now)).items():
            differing.setdefault(f"{key}: {described(pair)}", []).append(node_id)
    return (f"{text} ({listed(ids)})" for text, ids in differing.items())


def _in_environment(run: EarlierRun, environment: Mapping[str, Any]) -> Iterator[str]:
    now = fingerprint(environment)
    before = {
        key: fact
        for key, fact in fingerprint(run.environment).items()
        if key in now or not key.startswith("devices.")  # a run may go on with some of its devices
    }
    return (
        f"{key}: {described(pair)}"
        for key, pair in differences(before, now).items()
        if not (pair[0] is ABSENT and recorded_lately(key))
    )


def _in_code(run: EarlierRun, selected: Iterable[str], rootdir: Path) -> Iterator[str]:
    """The files that are not what they were; nothing where the run has not recorded any."""
    if run.code is None:
        return
    files = code.changes(rootdir, selected, run.code)
    if files:
        yield (
            f"code: {listed(files)}; put it back as it was, or measure a new run without --resume"
        )
