"""How a benchmark's device is timed: what its mark and the configuration state, and what it is."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench_plugin.config.case import Case, comparable
from gpubench_plugin.config.marks import BenchmarkMark
from gpubench_plugin.config.sections import Configuration, MeasureSection, ModelSection
from gpubench_plugin.environment.devices import Device


def case(device: str = "cpu", marked: Any = "step", **keys: Any) -> Case:
    """A case on a type of device, its mark's timing, and keys of section measure."""
    return Case(
        id="test_x",
        params={},
        mark=BenchmarkMark(timing=marked),
        world_size=1,
        device=Device(torch_name=device, model="a device", memory_gib=None),
        configuration=Configuration[ModelSection](
            model=ModelSection(), measure=MeasureSection(**keys)
        ),
    )


@pytest.mark.parametrize(
    ("device", "marked", "key", "timing"),
    [
        ("cuda", "kernel", None, "kernel"),
        ("xpu", "step", None, "step"),
        ("cuda", "kernel", "auto", "kernel"),
        ("cuda", "step", "auto", "step"),
        ("cpu", "kernel", "auto", "step"),
        ("mps", "kernel", "auto", "step"),
        ("cuda", "kernel", "step", "step"),
        ("cuda", "step", "kernel", "kernel"),
    ],
)
def test_timing_is_the_marks_on_cuda_unless_the_key_states_one(
    device: str, marked: str, key: str | None, timing: str
) -> None:
    """``auto`` follows the mark on CUDA and is step elsewhere; a stated timing always holds."""
    keys = {} if key is None else {"timing": key}
    assert case(device, marked, **keys).timing == timing


COLD = "measure.cache=cold requires "


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (case(cache="cold"), COLD + "a CUDA device, not 'cpu'"),
        (case("xpu", "kernel", cache="cold"), COLD + "a CUDA device, not 'xpu'"),
        (case(timing="kernel"), "measure.timing=kernel requires a CUDA device, not 'cpu'"),
        (case("cuda", cache="cold"), COLD + "measure.timing=kernel, not step"),
        (case("cuda", "kernel", timing="step", cache="cold"), COLD + "measure.timing=kernel"),
        (case(), ""),
        (case("cuda", "kernel"), ""),
        (case("cuda", "kernel", cache="cold"), ""),
    ],
)
def test_impossible_timing_is_unsupported_before_anything_is_built(
    measured: Case, reason: str
) -> None:
    """The case has a reason not to run, which names the key, what it needs and what there is."""
    assert measured._unsupported_reason().startswith(reason)
    assert bool(measured._unsupported_reason()) == bool(reason)


def test_timing_is_compared_by_the_name_of_the_clock() -> None:
    """The key is left out, since auto and what it stands for are timed by the same clock."""
    for key in ("auto", "step", "kernel"):
        assert comparable(case("cuda", timing=key).configuration) == {}
    assert comparable(case("cuda", "kernel", cache="cold").configuration) == {
        "measure.cache": "cold"
    }
