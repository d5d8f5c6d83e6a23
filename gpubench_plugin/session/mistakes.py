"""Mistakes that options tell, answered before tests are imported, and torch with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.environment import devices
from gpubench_plugin.reports.terminal import check_columns
from gpubench_plugin.results.run_directory import (
    find_run,
    path_component,
    require_writable,
    writable_file,
)
from gpubench_plugin.session.ending import has_workers

if TYPE_CHECKING:
    from gpubench_plugin.config.settings import Settings
    from gpubench_plugin.session.gate.lookup import BaselineLookup

LOOKUP: Final[pytest.StashKey[BaselineLookup | None]] = pytest.StashKey()
"""What ``--baseline`` names, once the options have been checked."""


def check_options(config: pytest.Config, settings: Settings) -> None:
    """Check, once, what needs no test: keys, files, folders, runs and names.

    Raises:
        UsageProblem: naming the option.
    """
    if LOOKUP in config.stash:
        return
    cwd = config.invocation_params.dir
    for name in settings.devices:
        devices.check_name(name)
    path_component("--experiment", settings.experiment)
    path_component("--tag", settings.tag or "run")
    check_columns(settings.table)
    if settings.on and has_workers(config):
        raise UsageProblem("--on: the shards are the workers; run without -n (pytest-xdist)")
    if settings.overrides or settings.configs:
        from gpubench_plugin.config.resolution import check_stated

        check_stated(settings.configs, settings.overrides, rootdir=config.rootpath)
    for option, file in (
        ("--benchmark-json", config.getoption("benchmark_json", None)),
        ("--report", settings.report),
    ):
        if file is not None:
            writable_file(option, str(file), cwd)
    require_writable("--results-dir", settings.results_dir)
    if settings.repro is not None:
        require_writable("--repro", settings.repro)
    if settings.resume:
        try:
            find_run(settings.results_dir, settings.resume, cwd=cwd)
        except GpubenchError as error:
            raise UsageProblem(f"--resume={settings.resume}: {error}") from error
    lookup = None
    if settings.baseline:
        from gpubench_plugin.session.gate.lookup import BaselineLookup

        lookup = BaselineLookup.look_up(settings, cwd)
    config.stash[LOOKUP] = lookup
