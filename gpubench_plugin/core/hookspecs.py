"""Hook specifications for conftest files and plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.core.errors import Misuse

if TYPE_CHECKING:
    import pluggy

    from gpubench_plugin.core.records import Measurement, Metric, Observation

LEFT_OUT: Final = pytest.StashKey[set[str]]()
"""Ids of tests that were collected and that conftests left out."""
LAUNCHER: Final = "gpubench-launcher"
"""Name of the one plugin that runs a session's benchmarks (:mod:`gpubench_plugin.launchers`)."""


@pytest.hookspec
def pytest_gpubench_environment(config: pytest.Config) -> Mapping[str, Any] | None:
    """Return JSON facts to add to ``system.json`` and the run's summary.

    Called once per run where the results are written. Never return a secret: the facts are
    published with the results.
    """


@pytest.hookspec
def pytest_gpubench_metrics(item: pytest.Item, observation: Observation) -> Iterable[Metric] | None:
    """Return metrics to add to a benchmark, computed from its observation.

    Called after the measurement, outside the timed region. A name that exists already replaces
    the built-in metric.
    """


@pytest.hookspec(firstresult=True)
def pytest_gpubench_measurement(item: pytest.Item, measurement: Measurement) -> Measurement | None:
    """Return a replacement for `measurement`, or None to keep it.

    Called once per measured benchmark, before anything is recorded; the first implementation that
    returns a measurement wins.
    """


def wrong_result(hook: pluggy.HookCaller, value: object, *, expected: str) -> Misuse:
    """Error about a `value` that an implementation of `hook` returned.

    pluggy does not tell which of several it was, so that all are named.
    """
    names = " or ".join(implementation.plugin_name for implementation in hook.get_hookimpls())
    return Misuse(f"{hook.name} ({names}) returned {value!r:.100}; allowed: {expected}")
