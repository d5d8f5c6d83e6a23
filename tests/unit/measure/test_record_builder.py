"""The record that is made of what was observed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.core import hookspecs
from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.core.records import Check, Measurement, Metric, Observation, Samples, Work
from gpubench_plugin.measure.record_builder import build_measurement

UNMEASURED = Metric(name="a", value=None, unit="s")  # type: ignore[arg-type] # as users mistake it


def recorded(block_s: float, **hooks: Callable[..., object]) -> Measurement:
    """The record of ten calls of a second each, which took `block_s` in all.

    `hooks` are those of a conftest file.
    """
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
    manager = pytest.PytestPluginManager()
    manager.add_hookspecs(hookspecs)
    manager.register(SimpleNamespace(**hooks), "tests/conftest.py")
    item: Any = SimpleNamespace(ihook=manager.hook, nodeid="test_it.py::test_it")
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


@pytest.mark.parametrize(
    ("hook", "value", "message"),
    [
        ("metrics", 5, "returned 5; allowed: a list of Metrics, each with"),
        ("metrics", {"a": 3.0}, "returned 'a'; allowed: a list of Metrics"),
        ("metrics", [UNMEASURED], "returned Metric(name='a', value=None, unit='s'"),
        ("measurement", {}, "returned {}; allowed: a Measurement, or None"),
    ],
)
def test_what_a_hook_may_not_return_is_told_with_the_plugin(
    hook: str, value: object, message: str
) -> None:
    """The error names the hook, who implements it, what it returned, and what is allowed."""
    name = f"pytest_gpubench_{hook}"
    implementations: Any = {
        "metrics": lambda item, observation: value,
        "measurement": lambda item, measurement: value,
    }
    with pytest.raises(Misuse) as raised:
        recorded(9.0, **{name: implementations[hook]})
    assert str(raised.value).startswith(f"{name} (tests/conftest.py) {message}")
