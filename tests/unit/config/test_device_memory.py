"""Presets are chosen by a device's memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.config import resolve_case
from gpubench_plugin.config.case import Case
from gpubench_plugin.config.resolve_case import CaseFactory
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.environment import cuda_devices

if TYPE_CHECKING:
    from collections.abc import Callable

PRESETS = """
model: {}
presets:
  tiny: {training: {batch_size: 1}}
  full: {training: {batch_size: 2}, needs_memory_gib: 78}
"""
GIB = 2**30


class Item:
    """A benchmark of two ranks with a configuration of its own."""

    nodeid = "test_it.py::test_x[ws2]"
    callspec = SimpleNamespace(params={"world_size": 2}, marks=())
    mark = pytest.mark.gpubench(config="own", ranks="any").mark

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [self.mark] if name == self.mark.name else []

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.mark if name == self.mark.name else None


@pytest.fixture
def case_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Case]:
    """The benchmark's case on two devices of that memory."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "own.yaml").write_text(PRESETS)

    def case(total_gib: float = 79.1, preset: str = "auto") -> Case:
        device = cuda_devices.CudaDevice(
            name="NVIDIA H100 80GB HBM3", memory_bytes=int(total_gib * GIB)
        )
        monkeypatch.setattr(cuda_devices, "visible", lambda: [device, device])
        monkeypatch.setattr(resolve_case, "is_adopted", lambda *_: False)
        monkeypatch.setattr(resolve_case, "fixture_names", lambda _: ())
        settings: Any = SimpleNamespace(
            devices=("cuda",),
            default_precisions=("fp32",),
            precisions=(),
            profile=False,
            preset=preset,
            configs=(),
            overrides=(),
        )
        item: Any = Item()
        return CaseFactory(settings, tmp_path, local_rank=0).of(item)

    return case


@pytest.mark.parametrize(("total", "preset"), [(79.1, "full"), (40.0, "tiny")])
def test_preset_is_the_largest_that_the_device_holds(
    case_of: Callable[..., Case], total: float, preset: str
) -> None:
    """By the total memory, on which all ranks agree."""
    case = case_of(total)
    assert case.configuration.experiment.preset == preset
    assert case.skip_reason() is None


@pytest.mark.parametrize(
    ("precision", "total", "reason"),
    [
        ("fp32", 79.1, "needs 100 GiB of device memory in fp32, but cuda:0 (NVIDIA H100"),
        ("bf16", 79.1, None),
        ("amp", 40.0, "needs 50 GiB of device memory in amp, but cuda:0 (NVIDIA H100"),
        ("fp32", 139.0, None),
    ],
)
def test_device_that_is_too_small_for_the_mark_is_unsupported(
    case_of: Callable[..., Case],
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    total: float,
    reason: str | None,
) -> None:
    """In 16 bits half the memory is enough; the reason names both figures."""
    marked = pytest.mark.gpubench(config="own", ranks="any", needs_memory_gib=100).mark
    monkeypatch.setattr(Item, "mark", marked)
    params = {"world_size": 2, "precision": precision}
    monkeypatch.setattr(Item, "callspec", SimpleNamespace(params=params, marks=()))
    skipped = case_of(total, "full").skip_reason()
    assert isinstance(skipped, Unsupported) is (reason is not None)
    assert reason is None or str(skipped).startswith(reason)


@pytest.mark.parametrize(("preset", "skipped"), [("full", False), ("tiny", True)])
def test_benchmark_of_one_preset_is_skipped_in_the_other(
    case_of: Callable[..., Case], monkeypatch: pytest.MonkeyPatch, preset: str, *, skipped: bool
) -> None:
    """A batch that is meant for the full model is not tried on the tiny one."""
    marked = pytest.mark.gpubench(config="own", ranks="any", preset="full").mark
    monkeypatch.setattr(Item, "mark", marked)
    reason = case_of(preset=preset).skip_reason()
    assert (str(reason) == "measured only with --preset=full") is skipped
