"""Pipelines in this process."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.config.sections import DiffusionSection
from gpubench_plugin.core import catalog
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.workloads.diffusion.pipeline import build_pipeline
from tests.support.presets import CPU, preset_of, workload_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.workloads.diffusion.pipeline import DenoisingPipeline


@dataclass
class Place:
    rank: int = 0
    size: int = 1


@dataclass
class Ranks:
    """What a pipeline asks of a process group, for one rank of several that are not there."""

    world: Place = field(default_factory=Place)
    backend: str = "gloo"
    device: torch.device = CPU
    agreement: Any = field(default_factory=RankAgreement)


class Wire:
    """A transport between two pipelines of one process."""

    def __init__(self, messages: queue.Queue[Any]):
        self.messages = messages
        self.flushed = 0

    def send(self, latents: Any, header: Any) -> None:
        self.messages.put((header, latents))

    def flush(self) -> None:
        self.flushed += 1

    def receive(self, expected: Any) -> Any:
        header, latents = self.messages.get(timeout=60)
        assert header == expected
        return latents


@pytest.fixture(scope="module")
def unet() -> Any:
    """The dummy, with random weights, and its workload."""
    workload = workload_of(preset_of("diffusion", "tiny"))
    torch.manual_seed(0)
    return workload.build(), workload


@pytest.fixture
def make_pipeline(unet: Any) -> Callable[..., DenoisingPipeline]:
    """Makes a pipeline of the dummy with keys of the section ``diffusion``."""

    def make(
        *, ranks: Ranks | None = None, kept: Any = None, remaining_s: float = 60.0, **keys: Any
    ) -> DenoisingPipeline:
        module, workload = unet
        group = ranks or Ranks()
        return build_pipeline(
            module,
            workload,
            section=DiffusionSection(**{"denoising_steps": 4, **keys}),
            seed=0,
            precision=catalog.load("precision", "fp32")(),
            group=group,
            remaining_s=lambda: remaining_s,
            on_events=(kept if kept is not None else []).extend,
        )

    return make
