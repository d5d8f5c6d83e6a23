"""All ranks of a host on one device: which device, which backend, and where it is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpubench_plugin.config import resolve_case
from gpubench_plugin.config.case import Case
from gpubench_plugin.config.resolve_case import CaseFactory
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.environment import cuda_devices, devices

SHARED = pytest.mark.gpubench_set("distributed.share_device=true").mark
CUDA = torch.device("cuda")


class Item:
    """A benchmark of a world size, with marks."""

    nodeid = "test_it.py::test_x"

    def __init__(self, world_size: int, *marks: pytest.Mark):
        self.callspec = SimpleNamespace(params={"world_size": world_size}, marks=())
        self.marks = [pytest.mark.gpubench(ranks="any").mark, *marks]

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.marks if mark.name == name]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(iter(self.iter_markers(name)), None)


@pytest.fixture
def case_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The case of a benchmark as rank one sees it on a host with some CUDA devices."""

    def made(item: Item, *, device: str = "cuda", count: int = 1) -> Case:
        monkeypatch.setattr(resolve_case, "is_adopted", lambda *_: False)
        monkeypatch.setattr(resolve_case, "fixture_names", lambda _: ())
        fakes = [cuda_devices.CudaDevice(name="fake", memory_bytes=2**34)] * count
        monkeypatch.setattr(cuda_devices, "visible", lambda: fakes)
        settings: Any = SimpleNamespace(
            devices=(device,),
            default_precisions=("fp32",),
            precisions=(),
            profile=False,
            on="",
            preset="auto",
            configs=(),
            overrides=(),
        )
        found: Any = item
        return CaseFactory(settings, Path(__file__).parent, local_rank=1).of(found)

    return made


def test_ranks_take_the_first_device_where_they_share_one(case_of: Any) -> None:
    """Rank one of two runs on cuda:0, though each could have a device of its own."""
    shared = case_of(Item(2, SHARED), count=2)
    assert (shared.device.torch_name, shared.shares_device) == ("cuda:0", True)
    assert case_of(Item(2), count=2).device.torch_name == "cuda:1"


def test_one_device_is_enough_where_it_is_shared(case_of: Any) -> None:
    """The benchmark is not refused, as it is otherwise, where the key is named."""
    assert case_of(Item(2, SHARED)).skip_reason() is None
    alone = devices.Device(torch_name="cuda:0", model="fake", memory_gib=16, device_count=1)
    case = case_of(Item(2), device="cpu")
    refusal = Case(**{**vars(case), "device": alone}).skip_reason()
    assert isinstance(refusal, Unsupported)
    assert str(refusal) == (
        "2 ranks need one cuda device each, but this host has 1; --distributed.share_device=true "
        "runs them on one"
    )


def test_ranks_of_a_cpu_need_not_be_told_to_share_it(case_of: Any) -> None:
    """Without need it is unsupported, with what to do; one rank shares with nobody."""
    refusal = case_of(Item(2, SHARED), device="cpu").skip_reason()
    assert isinstance(refusal, Unsupported)
    assert str(refusal) == "distributed.share_device applies to cuda and xpu only; remove it on cpu"
    alone = case_of(Item(1, SHARED), device="cpu")
    assert (alone.shares_device, alone.skip_reason()) == (False, None)
