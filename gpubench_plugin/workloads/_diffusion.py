"""Base of denoising models: noised samples, and the noise prediction loss.

The training objective of Ho et al. 2020 (https://arxiv.org/abs/2006.11239), equation 14.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Self, TypeVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from gpubench_plugin.config.sections import ModelSection, PositiveInt
from gpubench_plugin.workloads._transformers import NEEDS_DIFFUSERS, from_library, recomputing
from gpubench_plugin.workloads.base import Batch, Workload

_GROUPS = 32
"""Groups of a normalization, diffusers' default; divides all widths."""

Width = Annotated[int, Field(gt=0, multiple_of=_GROUPS)]


class UNetSection(ModelSection):
    """Sample size, and levels of the network from fine to coarse."""

    sample_size: PositiveInt
    """Height and width of a sample"""
    hidden_sizes: tuple[Width, ...]
    """Channels per level, multiples of 32"""
    attention: tuple[bool, ...]
    """Attention per level"""
    blocks_per_level: PositiveInt = 2
    """Residual blocks per level of the encoder"""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        levels = len(self.hidden_sizes)
        if len(self.attention) != levels:
            raise ValueError(
                f"attention has {len(self.attention)} values but hidden_sizes has {levels}"
            )
        if self.sample_size % 2 ** (levels - 1):
            raise ValueError(f"sample_size {self.sample_size} cannot be halved {levels - 1} times")
        return self


S = TypeVar("S", bound=UNetSection)


class Denoiser(Workload[S]):
    """Predicts the noise in a sample from the time step.

    A batch holds noised samples, the noise, and as `context` time steps and further inputs.
    """

    convolutional = True
    where = NEEDS_DIFFUSERS
    denoises = True
    checkpoints_activations = True
    channels: ClassVar[int]
    library_class: ClassVar[str]
    attention_prefix: ClassVar[str]
    """Prefix of diffusers' block names with attention."""

    beta_schedule: ClassVar[dict[str, Any]]
    """Arguments of diffusers' ``DDPMScheduler``."""

    _scheduler: Any = None

    def for_fake_tensors(self) -> Self:
        """Recreate the scheduler, which holds data, among fake tensors."""
        clone = super().for_fake_tensors()
        clone._scheduler = None
        return clone

    def build(self) -> nn.Module:
        """The network with random weights."""
        (model_class,) = from_library(self.section.name, "diffusers", self.library_class)
        kinds = [self.attention_prefix if attends else "" for attends in self.section.attention]
        module = model_class(
            sample_size=self.section.sample_size,
            in_channels=self.channels,
            out_channels=self.channels,
            block_out_channels=self.section.hidden_sizes,
            layers_per_block=self.section.blocks_per_level,
            norm_num_groups=_GROUPS,
            down_block_types=[f"{kind}DownBlock2D" for kind in kinds],
            up_block_types=[f"{kind}UpBlock2D" for kind in reversed(kinds)],
            **self.own_arguments(),
        )
        return recomputing(module, self.section)

    @abstractmethod
    def own_arguments(self) -> dict[str, Any]:
        """Further arguments of the class in diffusers."""

    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """Gaussian samples, N×C×H×W, with added noise."""
        side = self.section.sample_size
        shape = (size, self.channels, side, side)
        return self.noised(torch.randn(shape, device=device, generator=generator), generator)

    def noised(self, samples: Tensor, generator: torch.Generator | None) -> Batch:
        """Add noise to `samples`, each at a uniformly drawn time step."""
        if self._scheduler is None:
            (scheduler_class,) = from_library(self.section.name, "diffusers", "DDPMScheduler")
            self._scheduler = scheduler_class(**self.beta_schedule)
        # Shared by all batches: its tables are copied to the device once, which synchronizes.
        scheduler = self._scheduler
        steps, device = scheduler.config.num_train_timesteps, samples.device
        noise = torch.randn(samples.shape, device=device, generator=generator)
        times = torch.randint(steps, (len(samples),), device=device, generator=generator)
        inputs = scheduler.add_noise(samples, noise, times)
        inputs, noise = (t.contiguous(memory_format=self.memory_format) for t in (inputs, noise))
        return Batch(inputs, noise, (times,))

    def forward(self, module: nn.Module, batch: Batch) -> Tensor:
        """The noise that the model predicts, N×C×H×W."""
        predicted: Tensor = module(batch.inputs, *batch.context).sample
        return predicted

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Mean squared error in fp32, whatever the precision of the prediction."""
        return mse_loss(self.forward(module, batch).float(), batch.targets.float())
