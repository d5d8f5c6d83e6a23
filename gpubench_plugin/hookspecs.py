"""Hooks by which a project's conftest or another plugin takes part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pytest

from gpubench_plugin.records import Measurement, Metric, Observation

LAUNCHER: Final = "gpubench-launcher"
"""Name of the one plugin that runs a session's benchmarks (:mod:`gpubench_plugin.launchers`)."""


@pytest.hookspec
def pytest_gpubench_environment(config: pytest.Config) -> Mapping[str, Any] | None:
    """Facts to add to ``system.json`` and to the run's summary, as JSON values.

    Called once per run where the results are written. Never return a secret: the facts are
    published with the results.
    """


@pytest.hookspec
def pytest_gpubench_metrics(item: pytest.Item, observation: Observation) -> Iterable[Metric] | None:
    """Metrics to add to a benchmark, computed from what was observed.

    Called after the measurement, outside the timed region. A name that exists already replaces
    the built-in metric.
    """


@pytest.hookspec(firstresult=True)
def pytest_gpubench_measurement(item: pytest.Item, measurement: Measurement) -> Measurement | None:
    """A changed measurement to record instead of `measurement`, or None to leave it.

    Called once per measured benchmark, before anything is recorded; the first implementation that
    returns a measurement wins.
    """
