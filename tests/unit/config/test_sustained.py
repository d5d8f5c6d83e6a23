"""How long preset full is measured on an accelerator, whose clocks fall after seconds of work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.config import resolve_case
from gpubench_plugin.config.resolve_case import CaseFactory
from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.environment.devices import Device

PRESETS = """
model: {}
presets:
  tiny: {training: {batch_size: 1}}
  full: {training: {batch_size: 2}}
"""


class Item:
    """A benchmark with these arguments of its mark."""

    nodeid = "test_it.py::test_x[ws1]"

    def __init__(self, **arguments: Any):
        self.marks = [pytest.mark.gpubench(**{"config": "own", **arguments}).mark]

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.marks if mark.name == name]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(iter(self.iter_markers(name)), None)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Section measure of a benchmark on a type of device, with overrides."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "own.yaml").write_text(PRESETS)
    (tmp_path / "configs" / "plain.yaml").write_text("model: {}")

    def resolved(
        *overrides: str, device: str = "cuda:0", preset: str = "full", **arguments: Any
    ) -> MeasureSection:
        memory_gib = None if device == "cpu" else 80.0
        found = Device(torch_name=device, model="a device", memory_gib=memory_gib, device_count=1)
        monkeypatch.setattr(resolve_case.devices, "find", lambda *_, **__: found)
        monkeypatch.setattr(resolve_case, "is_adopted", lambda *_: False)
        monkeypatch.setattr(resolve_case, "fixture_names", lambda _: ())
        settings: Any = SimpleNamespace(
            devices=(device,),
            default_precisions=("fp32",),
            precisions=(),
            profile=False,
            preset=preset,
            configs=(),
            overrides=overrides,
        )
        item: Any = Item(**arguments)
        return CaseFactory(settings, tmp_path, local_rank=0).of(item).configuration.measure

    return resolved


def times(measure: MeasureSection) -> tuple[Any, ...]:
    return measure.warmup_s, measure.min_time_s, measure.max_time_s, measure.time_s


PLAIN = times(MeasureSection())


@pytest.mark.parametrize("device", ["cuda:0", "xpu:0", "mps"])
@pytest.mark.parametrize("preset", ["full", "auto"])
def test_full_preset_on_an_accelerator_is_a_sustained_rate(
    measured: Any, device: str, preset: str
) -> None:
    """It warms up for 3 s and is measured for 10 s at least, wherever the preset came from."""
    assert times(measured(device=device, preset=preset)) == (3.0, 10.0, 20.0, 10.0)


@pytest.mark.parametrize(
    "chosen",
    [
        {"device": "cpu"},
        {"preset": "tiny"},
        {"timing": "kernel"},
        {"config": None},
        {"config": "plain"},
    ],
)
def test_other_benchmarks_keep_their_times(measured: Any, chosen: dict[str, str]) -> None:
    """A CPU, preset tiny, single kernels, which are timed at their best, and files without it."""
    assert times(measured(**chosen)) == PLAIN


def test_sustained_times_outlast_a_profile_but_not_quick(measured: Any) -> None:
    """The longer one of both holds beside profile full; quick means quick."""
    assert times(measured("measure.profile=full")) == (3.0, 10.0, 20.0, 20.0)
    assert times(measured("measure.profile=quick")) == (None, 0.2, 0.5, 0.5)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (["measure.warmup_s=0.5", "measure.min_time_s=1"], (0.5, 1.0, 20.0, 10.0)),
        (["measure.max_time_s=2"], (3.0, 2.0, 2.0, 10.0)),
        (["measure.min_time_s=60"], (3.0, 60.0, 60.0, 10.0)),
        (["measure.time_s=1", "measure.by=time"], (3.0, 10.0, 20.0, 1.0)),
    ],
)
def test_a_stated_time_wins(measured: Any, stated: list[str], expected: tuple[float, ...]) -> None:
    """And the other side of its bound gives way, as a profile's does."""
    assert times(measured(*stated)) == expected
