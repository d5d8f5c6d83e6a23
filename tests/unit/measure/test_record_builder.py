"""The record that is made of what was observed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.measure.record_builder import build_measurement
from gpubench_plugin.records import Check, Measurement, Observation, Samples, Work


def recorded(block_s: float) -> Measurement:
    """The record of ten calls of a second each, which took `block_s` in all."""
    samples = Samples(
        timer="a clock",
        durations_s=(1.0,) * 10,
        block_s=(block_s,),
        block_calls=(10,),
        first_step_s=1.0,
        warmup_s=(),
        warmup_calls=0,
        flags=("outliers",),
    )
    seen = Observation(
        samples=samples,
        work=Work(samples=8),
        device="cpu",
        device_name="a processor",
        precision="fp32",
        world_size=1,
    )
    hook = SimpleNamespace(
        pytest_gpubench_metrics=lambda item, observation: [],
        pytest_gpubench_measurement=lambda item, measurement: None,
    )
    item: Any = SimpleNamespace(ihook=hook, nodeid="test_it.py::test_it")
    made = Measurement(id="x", name="x", params={}, world_size=1, outcome="measured")
    case: Any = SimpleNamespace(unmeasured=lambda outcome: made)
    return build_measurement(item, case, seen, Check())


@pytest.mark.parametrize(
    ("block_s", "flags"),
    [(9.0, ("outliers", "fast_calls")), (10.5, ("outliers",)), (30.0, ("outliers", "stalls"))],
)
def test_a_throughput_that_the_median_contradicts_is_flagged(
    block_s: float, flags: tuple[str, ...]
) -> None:
    """Beside the flags of the samples: the step says 8 samples per second, the work less than 3."""
    assert recorded(block_s).flags == flags
