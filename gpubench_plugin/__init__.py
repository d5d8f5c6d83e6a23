"""gpubench: a pytest plugin that turns parametrized tests into trustworthy GPU benchmarks.

The names stand here and are imported when first used: pytest imports this package in every project
in whose environment the plugin is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubench_plugin.api import load_run, run
    from gpubench_plugin.errors import (
        CorrectnessError,
        GpubenchError,
        MeasurementError,
        ResultsError,
        Unsupported,
        UsageProblem,
    )
    from gpubench_plugin.records import Measurement, Metric, Observation, RunRecord, Samples, Work

__all__ = [
    "CorrectnessError",
    "GpubenchError",
    "Measurement",
    "MeasurementError",
    "Metric",
    "Observation",
    "ResultsError",
    "RunRecord",
    "Samples",
    "Unsupported",
    "UsageProblem",
    "Work",
    "load_run",
    "run",
]


def __getattr__(name: str) -> object:
    """The public class or function called `name`."""
    from gpubench_plugin.catalog import lazy_names

    return lazy_names(__name__)(name)
