"""gpubench: a pytest plugin that turns parametrized tests into trustworthy GPU benchmarks."""

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
]
