"""gpubench: a pytest plugin that turns parametrized tests into trustworthy GPU benchmarks.

Names are imported when first used, since pytest imports this package in every project of the
environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.core.errors import (
        CorrectnessError,
        GpubenchError,
        MeasurementError,
        ResultsError,
        Unsupported,
        UsageProblem,
    )
    from gpubench_plugin.core.records import (
        Measurement,
        Metric,
        Observation,
        RunRecord,
        Samples,
        Work,
    )
    from gpubench_plugin.session.api import load_run, run
    from gpubench_plugin.workloads._source import load

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
    "load",
    "load_run",
    "run",
]

__getattr__ = lazy_names(__name__)
