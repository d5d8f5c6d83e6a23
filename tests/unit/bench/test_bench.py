"""The bench on a rank that need not exist: what it records, and what it tells the other ranks."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpubench_plugin.bench import Bench
from gpubench_plugin.config import (
    BenchmarkMark,
    Case,
    Configuration,
    MeasureSection,
    ModelSection,
)
from gpubench_plugin.environment import Device
from gpubench_plugin.errors import MeasurementError
from gpubench_plugin.measure import Alone, probes
from gpubench_plugin.records import Json
from gpubench_plugin.results import Notes

ID = "test_it.py::test_step"


class Group:
    """As much of a process group as a bench uses: on rank zero the others only listen."""

    traffic = None
    agreement = Alone()

    def __init__(self, *, rank: int = 0, size: int = 1, told: Json | None = None):
        self.world = SimpleNamespace(rank=rank, size=size, is_root=rank == 0)
        self.told = told

    def collect(self, tag: str, record: Json, *, within_s: float | None = None) -> list[Json]:
        return [record] if self.world.is_root else []

    def publish(self, tag: str, record: Json, *, within_s: float | None = None) -> Json:
        if tag.startswith("check"):
            return record
        if self.world.is_root:
            self.told = record
        assert self.told is not None
        return self.told


class Carrier:
    """As much of pytest-benchmark's fixture as a bench uses."""

    disabled = False

    def __init__(self) -> None:
        self.stats: Any = SimpleNamespace()
        self.extra_info: Json = {}

    def pedantic(self, step: object) -> None: ...


def step() -> None:
    """Long enough for any clock."""
    sum(range(1000))


def bench(group: Group, metrics: Any = lambda **_: []) -> Bench:
    """The bench of a test; `metrics` is the hook of other plugins."""
    case = Case(
        id=ID,
        params={},
        mark=BenchmarkMark(),
        world_size=group.world.size,
        device=Device(torch_name="cpu", model="a CPU", memory_gib=None),
        configuration=Configuration[ModelSection](
            model=ModelSection(),
            measure=MeasureSection(by="steps", steps=3, warmup_s=1e-6),
        ),
    )
    hook = SimpleNamespace(
        pytest_gpubench_metrics=metrics, pytest_gpubench_measurement=lambda **_: None
    )
    item: Any = SimpleNamespace(nodeid=ID, ihook=hook, config=SimpleNamespace(stash=pytest.Stash()))
    unused: Any = SimpleNamespace(compute_dtype="fp32")
    given: Any = {"group": group, "carrier": Carrier(), "precision": unused}
    return Bench(
        item=item,
        case=case,
        device=torch.device("cpu"),
        subjects=(),
        notes=Notes(),
        traces=None,
        carried={},
        progress=None,
        **given,
    )


@pytest.mark.parametrize("name", ["PeakMemory", "Throttling", "Contention", "Suspension"])
def test_what_a_probe_has_seen_is_a_flag_of_the_record(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whichever of them it was that says how far the numbers can be trusted."""
    probe = SimpleNamespace(flags=("seen",), facts={})
    monkeypatch.setattr(probes, name, lambda *_: nullcontext(probe))
    assert "seen" in bench(Group())(step).flags


def test_what_rank_zero_finds_wrong_fails_every_rank() -> None:
    """The others, whose own numbers may be right, are told why, and raise it too."""

    def impossible(**_: object) -> list[Any]:
        raise MeasurementError("mfu is 1.7")

    root = Group(size=2)
    with pytest.raises(MeasurementError, match=r"mfu is 1\.7"):
        bench(root, impossible)(step)
    other = Group(rank=1, size=2, told=root.told)
    with pytest.raises(MeasurementError, match=r"mfu is 1\.7"):
        bench(other)(step)
