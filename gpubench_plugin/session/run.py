"""The run that a session writes: a new one, or an earlier one that goes on."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.config import RUN_FILE, destination
from gpubench_plugin.environment import code, json_files
from gpubench_plugin.errors import GpubenchError, ResultsError, UsageProblem
from gpubench_plugin.launchers import context_of
from gpubench_plugin.results import (
    Recorder,
    RunDirectory,
    find_run,
    new_run_id,
    pytest_benchmark,
    reopen,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from gpubench_plugin.config import Case, Settings
    from gpubench_plugin.records import Json, Measurement


_CODE_UNKNOWN: Final = (
    "the run recorded no contents of its files: its code was compared by git's facts alone"
)


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """A run that is open for writing.

    Of a run that goes on, `earlier` holds the latest record of each of its benchmarks without its
    samples, in the order of the run, and `kept` those that need not run again. `notes` are for the
    user.
    """

    recorder: Recorder
    earlier: Mapping[str, Measurement] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def open_run(config: pytest.Config, settings: Settings, cases: Mapping[str, Case]) -> OpenRun:
    """The run into which the benchmarks `cases` are measured.

    Raises:
        UsageProblem: the results, or ``--benchmark-json``, could not be written, or the run that
            was asked for cannot go on here.
    """
    _require_writable_json(config)
    opened = (_resumed if settings.resume else _new)(config, settings, cases)
    # For whoever started this session and asked where the run is, and for nobody below it.
    if file := os.environ.pop(RUN_FILE, ""):
        Path(file).write_text(str(opened.recorder.directory.path), encoding="utf-8")
    return opened


def _new(config: pytest.Config, settings: Settings, cases: Mapping[str, Case]) -> OpenRun:
    from gpubench_plugin.config import to_yaml

    run_id = new_run_id(settings.tag, datetime.now(UTC))
    directory = RunDirectory.create(settings.results_dir, settings.experiment, run_id)
    try:
        recorder = Recorder.start(
            directory,
            command=_command(config),
            environment=_environment(config, cases),
            configurations=to_yaml({i: case.configuration for i, case in cases.items()}),
            params={i: case.params for i, case in cases.items()},
            code=code.digests(config.rootpath, cases),
        )
    except ResultsError as error:
        raise UsageProblem(f"--results-dir: {error}") from error
    return OpenRun(recorder=recorder)


def _resumed(config: pytest.Config, settings: Settings, cases: Mapping[str, Case]) -> OpenRun:
    try:
        run = reopen(
            find_run(settings.results_dir, settings.resume, here=config.invocation_params.dir),
            environment=_environment(config, cases),
            configurations={i: c.configuration.model_dump(mode="json") for i, c in cases.items()},
            options=_place(config, settings),
            rootdir=config.rootpath,
        )
        kept = run.measured(cases, launches=settings.launches)
        untouched = run.measured(run.measurements.keys() - cases.keys(), launches=1)
        carried = context_of(config).carried
        for node_id in [i for i in run.measurements if i in kept | untouched]:
            carrier = pytest_benchmark.recall(config, run.measurements[node_id])
            if carrier is not None:
                carried[node_id] = carrier
        recorder = Recorder.resume(run, command=_command(config), kept=len(kept))
    except GpubenchError as problem:
        raise UsageProblem(f"--resume={settings.resume}: {problem}") from problem
    except json_files.MALFORMED as error:
        said = f"the run is not as it was written: {error!r:.200}"
        raise UsageProblem(f"--resume={settings.resume}: {said}") from error
    notes = (_CODE_UNKNOWN,) if run.code is None else ()
    earlier = {i: measurement.without_samples() for i, measurement in run.measurements.items()}
    return OpenRun(recorder=recorder, earlier=earlier, kept=kept, notes=notes)


def _command(config: pytest.Config) -> list[str]:
    return [str(argument) for argument in config.invocation_params.args]


def _environment(config: pytest.Config, cases: Mapping[str, Case]) -> Json:
    from gpubench_plugin.environment import collect
    from gpubench_plugin.measure import MEASURING_METHOD

    told = config.hook.pytest_gpubench_environment(config=config)
    device = next(iter(cases.values())).device
    facts: dict[str, Any] = {
        "gpubench": {"measuring_method": MEASURING_METHOD},
        "device": {"name": device.torch_name, "model": device.model},
        "devices": {case.device.torch_name: case.device.model for case in cases.values()},
    }
    for more in told:
        facts.update(more)
    return collect(config.rootpath, more=facts)


def _place(config: pytest.Config, settings: Settings) -> dict[str, str]:
    """Where the command line wants the run, by flag."""
    asked = {
        "results-dir": os.path.realpath(settings.results_dir),
        "experiment": settings.experiment,
        "tag": settings.tag,
    }
    given = (name for name in asked if config.getoption(destination(name)) is not None)
    return {f"--{name}": asked[name] for name in given}


def _require_writable_json(config: pytest.Config) -> None:
    """``--benchmark-json`` into a folder that is not there fails after the run, unasked."""
    given = config.getoption("benchmark_json", None)
    if given is None:
        return
    file = Path(given).absolute()
    if file.is_dir():
        raise UsageProblem(f"--benchmark-json={given}: a folder; give the name of a file")
    if file.exists() and not os.access(file, os.W_OK):
        raise UsageProblem(f"--benchmark-json={given}: the file is not writable")
    if not file.parent.is_dir():
        raise UsageProblem(f"--benchmark-json={given}: the folder {file.parent} does not exist")
    if not os.access(file.parent, os.W_OK):
        raise UsageProblem(f"--benchmark-json={given}: the folder {file.parent} is not writable")
