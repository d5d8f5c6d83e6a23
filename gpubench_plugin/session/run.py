"""The run of a session: a new one, or an earlier one to resume."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench_plugin.config.options import RUN_FILE
from gpubench_plugin.config.settings import Settings, option_dest
from gpubench_plugin.core.errors import GpubenchError, ResultsError, UsageProblem
from gpubench_plugin.core.hookspecs import wrong_result
from gpubench_plugin.environment import code
from gpubench_plugin.launchers.context import context_of
from gpubench_plugin.results import pytest_benchmark
from gpubench_plugin.results.recorder import Recorder
from gpubench_plugin.results.resume_checks import open_to_resume
from gpubench_plugin.results.run_directory import RunDirectory, find_run, new_run_id
from gpubench_plugin.system import json_files

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
        UsageProblem: the results, or ``--benchmark-json``, could not be written, or the run cannot
            be resumed here.
    """
    _require_writable_json(config)
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
        run = open_to_resume(
            find_run(settings.results_dir, settings.resume, cwd=config.invocation_params.dir),
            environment=_environment(config, cases),
            configurations={i: c.configuration.model_dump(mode="json") for i, c in cases.items()},
            options=_location_options(config, settings),
            rootdir=config.rootpath,
        )
        carried_over = run.measured(cases, launches=settings.launches)
        unselected = run.measured(run.measurements.keys() - cases.keys(), launches=1)
        results = context_of(config).fixture_metadata
        for node_id in [i for i in run.measurements if i in carried_over | unselected]:
            result = pytest_benchmark.store_foreign_result(config, run.measurements[node_id])
            if result is not None:
                results[node_id] = result
        recorder = Recorder.resume(run, command=_command(config), carried_over=len(carried_over))
    except (GpubenchError, *json_files.MALFORMED) as error:
        is_known = isinstance(error, GpubenchError)
        message = str(error) if is_known else f"the run is malformed: {error!r:.200}"
        raise UsageProblem(f"--resume={settings.resume}: {message}") from error
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


def _location_options(config: pytest.Config, settings: Settings) -> dict[str, str]:
    """Location options given on the command line."""
    options = {
        "results-dir": os.path.realpath(settings.results_dir),
        "experiment": settings.experiment,
        "tag": settings.tag,
    }
    return {
        f"--{name}": value
        for name, value in options.items()
        if config.getoption(option_dest(name)) is not None
    }


def _require_writable_json(config: pytest.Config) -> None:
    """Refuse an unwritable ``--benchmark-json`` path before the run."""
    path_text = config.getoption("benchmark_json", None)
    if path_text is None:
        return
    file = Path(path_text).absolute()
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        allowed = "allowed: a writable file, not a folder, in a folder that exists"
        raise UsageProblem(f"--benchmark-json={path_text}: not writable; {allowed}")
