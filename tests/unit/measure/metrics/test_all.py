from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import MeasurementError, UsageProblem
from gpubench_plugin.core.records import Work
from gpubench_plugin.measure.metrics import _all
from gpubench_plugin.measure.metrics.step_time import step_time
from tests.support.observations import observe

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Observation


def test_every_source_contributes(everything: Observation) -> None:
    """All metrics come by name, also those a source has several of."""
    metrics = _all.compute_all(everything)
    assert {name: metric.name for name, metric in metrics.items()} == {
        name: name for name in metrics
    }
    assert {"step_time_s", "samples_per_s", "mfu", "rank_skew_s", "loss_last"} <= set(metrics)


def test_more_than_the_peak_gives_no_metrics() -> None:
    """A wrong count of operations puts all numbers in doubt, so none is reported."""
    observation = observe(work=Work(flops=374.4e12))
    with pytest.raises(MeasurementError, match=r"624\.0 TFLOP/s .*dense bf16 peak"):
        _all.check_values(_all.compute_all(observation), observation)


def test_two_sources_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugged-in source cannot silently replace a metric."""
    monkeypatch.setattr(_all, "_sources", lambda: {"step-time": step_time, "zz": step_time})
    with pytest.raises(UsageProblem, match="zz computes 'step_time_s': the name is taken"):
        _all.compute_all(observe())
