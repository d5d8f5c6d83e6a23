"""The run of a session: a new one, or an earlier one to resume.

A run has the same benchmarks, configuration, code and machine throughout.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench_plugin.config.options import RUN_FILE
from gpubench_plugin.config.settings import Settings, option_dest
from gpubench_plugin.core.errors import GpubenchError, ResultsError, UsageProblem
from gpubench_plugin.core.format import grouped, listed
from gpubench_plugin.core.hookspecs import wrong_result
from gpubench_plugin.environment import code
from gpubench_plugin.environment.fingerprints import (
    ABSENT,
    change_text,
    differences,
    flat,
    resume_facts,
    tolerates_unknown,
)
from gpubench_plugin.launchers.context import context_of
from gpubench_plugin.results import pytest_benchmark
from gpubench_plugin.results.reader import RunToResume, intact
from gpubench_plugin.results.recorder import Recorder
from gpubench_plugin.results.run_directory import RunDirectory, find_run, new_run_id, tag_of

if TYPE_CHECKING:
    import pytest

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.core.records import Json, Measurement


@dataclass(frozen=True, kw_only=True)
class RunToWrite:
    """A run open for writing.

    Of a resumed run, `earlier_measurements` are the latest records of its benchmarks without
    samples, in the order of the run, and `carried_over` those that need not run again.
    """

    recorder: Recorder
    earlier_measurements: Mapping[str, Measurement] = field(default_factory=dict)
    carried_over: frozenset[str] = frozenset()


def open_run(config: pytest.Config, settings: Settings, cases: Mapping[str, Case]) -> RunToWrite:
    """Open the run that records the benchmarks `cases`.

    Raises:
        UsageProblem: the results could not be written, or the run cannot be resumed here.
    """
    run = (_resumed if settings.resume else _new)(config, settings, cases)
    # Removed from the environment, so that a session started by a test does not write it, too.
    if file := os.environ.pop(RUN_FILE, ""):
        Path(file).write_text(str(run.recorder.directory.path), encoding="utf-8")
    return run


def _new(config: pytest.Config, settings: Settings, cases: Mapping[str, Case]) -> RunToWrite:
    from gpubench_plugin.config.yaml_reader import to_yaml

    environment = _environment(config, cases)  # first, since a hook may fail
    run_id = new_run_id(settings.tag, datetime.now(UTC))
    directory = RunDirectory.create(settings.results_dir, settings.experiment, run_id)
    try:
        recorder = Recorder.start(
            directory,
            command=_command(config),
            environment=environment,
            configurations=to_yaml({i: case.configuration for i, case in cases.items()}),
            params={i: case.params for i, case in cases.items()},
            code=code.digests(config.rootpath),
        )
    except ResultsError as error:
        raise UsageProblem(f"--results-dir: {error}") from error
    return RunToWrite(recorder=recorder)


def _resumed(config: pytest.Config, settings: Settings, cases: Mapping[str, Case]) -> RunToWrite:
    try:
        directory = find_run(
            settings.results_dir, settings.resume, cwd=config.invocation_params.dir
        )
        refuse_other_place(directory, config, settings)
        run = open_to_resume(
            directory,
            environment=_environment(config, cases),
            configurations={i: c.configuration.model_dump(mode="json") for i, c in cases.items()},
            rootdir=config.rootpath,
        )
        carried_over = run.measured(cases, launches=settings.launches)
        unselected = run.measured(run.measurements.keys() - cases.keys(), launches=1)
        results = context_of(config).fixture_metadata
        for node_id in [i for i in run.measurements if i in carried_over | unselected]:
            pytest_benchmark.store_foreign_result(config, run.measurements[node_id], results)
        recorder = Recorder.resume(run, command=_command(config), carried_over=len(carried_over))
    except GpubenchError as error:
        raise UsageProblem(f"--resume={settings.resume}: {error}") from error
    return RunToWrite(
        recorder=recorder,
        earlier_measurements={i: m.without_samples() for i, m in run.measurements.items()},
        carried_over=carried_over,
    )


def _command(config: pytest.Config) -> list[str]:
    return [str(argument) for argument in config.invocation_params.args]


def _environment(config: pytest.Config, cases: Mapping[str, Case]) -> Json:
    from gpubench_plugin.environment.system_facts import collect
    from gpubench_plugin.measure.record_builder import MEASURING_METHOD

    facts: dict[str, Any] = {
        "gpubench": {"measuring_method": MEASURING_METHOD},
        "devices": {case.device.torch_name: case.device.model for case in cases.values()},
    }
    hook = config.hook.pytest_gpubench_environment
    for extra_facts in hook(config=config):
        if not isinstance(extra_facts, Mapping):
            raise wrong_result(hook, extra_facts, expected="a mapping of facts, or None")
        facts.update(extra_facts)
    return collect(config.rootpath, extra_facts=facts)


def open_to_resume(
    directory: RunDirectory,
    *,
    environment: Mapping[str, Any],
    configurations: Mapping[str, Json],
    rootdir: Path,
) -> RunToResume:
    """Open the run in `directory` to resume it; refuses without changing anything.

    Args:
        directory: folder of the run.
        environment: current facts of ``system.json``.
        configurations: resolved configuration of each selected benchmark, by node id; other
            benchmarks of the run stay unchanged.
        rootdir: pytest's rootdir, which contains the code.

    Raises:
        UsageProblem: the conditions differ; names every key with both values.
        ResultsError: the run cannot be read or written.
    """
    run = RunToResume(directory)
    with ExitStack() as stack, intact(directory):
        stack.callback(run.journal.close)
        _refuse_other_benchmarks(run, configurations)
        mismatches = [
            *_configuration_differences(run, configurations),
            *_environment_differences(run, environment),
        ]
        if files := code.changes(rootdir, run.start_event["code"]):
            remedy = "restore it, or start a new run without --resume"
            mismatches.append(f"code: {listed(files)}; {remedy}")
        if mismatches:
            first = "the conditions differ from those of the resumed run"
            raise UsageProblem("\n  ".join([first, *mismatches]))
        stack.pop_all()
    return run


def refuse_other_place(directory: RunDirectory, config: pytest.Config, settings: Settings) -> None:
    """Refuse options of the command line for another `directory` than that of the resumed run."""
    for name, requested, actual in (
        ("results-dir", os.path.realpath(settings.results_dir), str(directory.path.parent.parent)),
        ("experiment", settings.experiment, directory.experiment),
        ("tag", settings.tag, tag_of(directory.run_id)),
    ):
        if config.getoption(option_dest(name)) is not None and requested != actual:
            text = f"--{name}={requested} conflicts with the resumed run, which has {actual!r}"
            raise UsageProblem(f"{text}; omit the option")


def _refuse_other_benchmarks(run: RunToResume, selected: Iterable[str]) -> None:
    new_ids = [i for i in selected if i not in run.configurations]
    if new_ids:
        raise UsageProblem(
            f"not part of the resumed run: {listed(new_ids)}; a run keeps the benchmarks it was "
            f"started with: {shlex.join(['pytest', *run.facts.command])}"
        )


def _configuration_differences(
    run: RunToResume, configurations: Mapping[str, Json]
) -> Iterator[str]:
    """Each configuration difference once, with the affected benchmarks."""
    ids_by_difference = grouped(
        (f"{key}: {change_text(pair)}", node_id)
        for node_id, current in configurations.items()
        for key, pair in differences(flat(run.configurations[node_id]), flat(current)).items()
    )
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
