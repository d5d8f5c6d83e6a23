"""The preset of a case by its device's memory, and how long preset full is measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.config import resolve_case
from gpubench_plugin.config.case import Case
from gpubench_plugin.config.resolve_case import CaseFactory
from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.environment import devices
from gpubench_plugin.environment.devices import Device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    CaseOf = Callable[..., Case]

PRESETS = """
model: {}
presets:
  tiny: {training: {batch_size: 1}}
  full: {training: {batch_size: 2}, needs_memory_gib: 78}
"""


class Item:
    """A benchmark of two ranks with these arguments of its mark."""

    nodeid = "test_it.py::test_x[ranks2]"

    def __init__(self, arguments: Mapping[str, Any], params: Mapping[str, Any]):
        self.callspec = SimpleNamespace(params={"world_size": 2, **params}, marks=())
        self.mark = pytest.mark.gpubench(**{"config": "own", "ranks": "any", **arguments}).mark

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [self.mark] if name == self.mark.name else []

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.mark if name == self.mark.name else None


@pytest.fixture
def case_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CaseOf:
    """The benchmark's case on two devices of so much memory, of which this much is free."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "own.yaml").write_text(PRESETS)
    (tmp_path / "configs" / "plain.yaml").write_text("model: {}")
    monkeypatch.setattr(resolve_case, "is_adopted", lambda *_: False)
    monkeypatch.setattr(resolve_case, "fixture_names", lambda _: ())

    def case(
        *free_gib: float | None,
        device: str = "cuda",
        preset: str = "auto",
        checks: bool = True,
        total_gib: float = 79.1,
        overrides: Sequence[str] = (),
        params: Mapping[str, Any] = {},
        mark: Mapping[str, Any] = {},
    ) -> Case:
        def find(name: str, *, local_rank: int) -> Device:
            return Device(
                torch_name=f"{name}:{local_rank}",
                model="NVIDIA H100",
                memory_gib=None if name == "cpu" else total_gib,
                free_gib=free_gib[local_rank] if free_gib else None,
                device_count=2,
            )

        monkeypatch.setattr(devices, "find", find)
        settings: Any = SimpleNamespace(
            devices=(device,),
            default_precisions=("fp32",),
            precisions=(),
            profile=False,
            on="",
            preset=preset,
            configs=(),
            overrides=overrides,
        )
        factory = CaseFactory(settings, tmp_path, local_rank=0, checks_free_memory=checks)
        item: Any = Item(mark, params)
        return factory.of(item)

    return case


@pytest.mark.parametrize("free", [(79.1, 78.5), (None, None), (79.1, None)])
def test_enough_free_memory_is_full(case_of: CaseOf, free: tuple[float]) -> None:
    """So is memory of which nothing is known but the total."""
    case = case_of(*free)
    assert case.configuration.experiment.preset == "full"
    assert case.skip_reason() is None


def test_memory_of_other_processes_refuses_the_preset(case_of: CaseOf) -> None:
    """The preset is what the total says; the reason names both figures, of any rank's device."""
    case = case_of(79.1, 60.04)
    assert case.configuration.experiment.preset == "full"
    reason = case.skip_reason()
    assert isinstance(reason, Unsupported)
    words = ("full of own needs 78 GiB", "79.1 GiB of cuda:1", "60.0 are free", "--preset=tiny")
    assert [word for word in words if word not in str(reason)] == []


@pytest.mark.parametrize(
    "changes",
    [{"preset": "full"}, {"preset": "tiny"}, {"checks": False}, {"total_gib": 40.0}],
    ids=["stated full", "stated tiny", "on a rank", "tiny by the total"],
)
def test_what_is_stated_or_small_is_not_refused(case_of: CaseOf, changes: dict[str, Any]) -> None:
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
    case_of: CaseOf, precision: str, total: float, reason: str | None
) -> None:
    """In 16 bits half the memory is enough; the reason names both figures, whatever is free."""
    mark, params = {"needs_memory_gib": 100}, {"precision": precision}
    skipped = case_of(preset="full", total_gib=total, mark=mark, params=params).skip_reason()
    assert isinstance(skipped, Unsupported) is (reason is not None)
    assert reason is None or str(skipped).startswith(reason)


@pytest.mark.parametrize(("preset", "skipped"), [("full", False), ("tiny", True)])
def test_benchmark_of_one_preset_is_skipped_in_the_other(
    case_of: CaseOf, preset: str, *, skipped: bool
) -> None:
    """A batch that is meant for the full model is not tried on the tiny one."""
    reason = case_of(preset=preset, mark={"preset": "full"}).skip_reason()
    assert (str(reason) == "measured only with --preset=full") is skipped


def times(case: Case) -> tuple[Any, ...]:
    """Times of section measure."""
    return _times(case.configuration.measure)


def _times(measure: MeasureSection) -> tuple[Any, ...]:
    return measure.warmup_s, measure.min_time_s, measure.max_time_s, measure.time_s


@pytest.mark.parametrize("device", ["cuda", "xpu", "mps"])
@pytest.mark.parametrize("preset", ["full", "auto"])
def test_full_preset_on_an_accelerator_is_a_sustained_rate(
    case_of: CaseOf, device: str, preset: str
) -> None:
    """It warms up for 3 s and is measured for 10 s at least, wherever the preset came from."""
    assert times(case_of(device=device, preset=preset)) == (3.0, 10.0, 20.0, 10.0)


@pytest.mark.parametrize(
    "chosen",
    [
        *({"device": "cpu"}, {"preset": "tiny"}, {"mark": {"timing": "kernel"}}),
        *({"mark": {"config": None}}, {"mark": {"config": "plain"}}),
    ],
)
def test_other_benchmarks_keep_their_times(case_of: CaseOf, chosen: dict[str, Any]) -> None:
    """A CPU, preset tiny, single kernels, which are timed at their best, and files without it."""
    assert times(case_of(**{"preset": "full", **chosen})) == _times(MeasureSection())


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (["measure.profile=full"], (3.0, 10.0, 20.0, 20.0)),
        (["measure.profile=quick"], (None, 0.2, 0.5, 0.5)),
        (["measure.warmup_s=0.5", "measure.min_time_s=1"], (0.5, 1.0, 20.0, 10.0)),
        (["measure.max_time_s=2"], (3.0, 2.0, 2.0, 10.0)),
        (["measure.min_time_s=60"], (3.0, 60.0, 60.0, 10.0)),
        (["measure.time_s=1", "measure.by=time"], (3.0, 10.0, 20.0, 1.0)),
    ],
)
def test_what_is_stated_wins(
    case_of: CaseOf, stated: list[str], expected: tuple[float, ...]
) -> None:
    """The other side of a bound gives way; the longer time holds beside full, quick is quick."""
    assert times(case_of(preset="full", overrides=stated)) == expected
