"""Presets are chosen by a device's memory, and refused where other processes use too much of it."""

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
    """The benchmark's case on devices of 79.1 GiB, of which this much is free."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "own.yaml").write_text(PRESETS)

    def case(
        *free_gib: float | None, preset: str = "auto", checks: bool = True, total_gib: float = 79.1
    ) -> Case:
        fakes = [
            cuda_devices.CudaDevice(
                name="NVIDIA H100 80GB HBM3",
                memory_bytes=int(total_gib * GIB),
                free_bytes=None if free is None else int(free * GIB),
            )
            for free in free_gib
        ]
        monkeypatch.setattr(cuda_devices, "visible", lambda: fakes)
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
        factory = CaseFactory(settings, tmp_path, local_rank=0, checks_free_memory=checks)
        return factory.of(item)

    return case


@pytest.mark.parametrize("free", [(79.1, 78.5), (None, None), (79.1, None)])
def test_enough_free_memory_is_full(case_of: Callable[..., Case], free: tuple[float]) -> None:
    """So is memory of which nothing is known but the total."""
    case = case_of(*free)
    assert case.configuration.experiment.preset == "full"
    assert case.skip_reason() is None


def test_memory_of_other_processes_refuses_the_preset(case_of: Callable[..., Case]) -> None:
    """The preset is what the total says; the reason names both figures, of any rank's device."""
    case = case_of(79.1, 60.04)
    assert case.configuration.experiment.preset == "full"
    reason = case.skip_reason()
    assert isinstance(reason, Unsupported)
    assert str(reason) == (
        "preset full of own needs 78 GiB, but of the 79.1 GiB of cuda:1 (NVIDIA H100 80GB HBM3) "
        "60.0 are free: other processes use the rest (gpubench doctor lists those it can "
        "see); end them, choose another device, or state --preset=full or --preset=tiny"
    )


@pytest.mark.parametrize(
    "changes",
    [{"preset": "full"}, {"preset": "tiny"}, {"checks": False}, {"total_gib": 40.0}],
    ids=["stated full", "stated tiny", "on a rank", "tiny by the total"],
)
def test_what_is_stated_or_small_is_not_refused(
    case_of: Callable[..., Case], changes: dict[str, Any]
) -> None:
    """A stated preset is tried; ranks agree with the process that started them."""
    assert case_of(20.0, 20.0, **changes).skip_reason() is None


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
    """In 16 bits half the memory is enough; the reason names both figures, whatever is free."""
    marked = pytest.mark.gpubench(config="own", ranks="any", needs_memory_gib=100).mark
    monkeypatch.setattr(Item, "mark", marked)
    params = {"world_size": 2, "precision": precision}
    monkeypatch.setattr(Item, "callspec", SimpleNamespace(params=params, marks=()))
    skipped = case_of(None, None, preset="full", total_gib=total).skip_reason()
    assert isinstance(skipped, Unsupported) is (reason is not None)
    assert reason is None or str(skipped).startswith(reason)


@pytest.mark.parametrize(("preset", "skipped"), [("full", False), ("tiny", True)])
def test_benchmark_of_one_preset_is_skipped_in_the_other(
    case_of: Callable[..., Case], monkeypatch: pytest.MonkeyPatch, preset: str, *, skipped: bool
) -> None:
    """A batch that is meant for the full model is not tried on the tiny one."""
    marked = pytest.mark.gpubench(config="own", ranks="any", preset="full").mark
    monkeypatch.setattr(Item, "mark", marked)
    reason = case_of(None, None, preset=preset).skip_reason()
    assert (str(reason) == "measured only with --preset=full") is skipped
