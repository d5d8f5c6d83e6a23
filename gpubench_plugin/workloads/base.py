"""The base of all workloads, and the batch they are fed with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from gpubench_plugin.configuration.schema import ModelSection
from gpubench_plugin.errors import Unsupported


class Batch(NamedTuple):
    """Inputs and the targets they should lead to; the first dimension counts samples.

    `context` holds what else the model takes of each sample: time steps, text embeddings.
    """

    inputs: Tensor
    targets: Tensor
    context: tuple[Tensor, ...] = ()

    def split(self, size: int) -> tuple[Batch, ...]:
        """Views of `size` consecutive samples each."""
        columns = (self.inputs, self.targets, *self.context)
        parts = zip(*(column.split(size) for column in columns), strict=True)
        return tuple(Batch(part[0], part[1], part[2:]) for part in parts)


S = TypeVar("S", bound=ModelSection)


class Workload(ABC, Generic[S]):
    """A model with random weights, what it is fed, and its loss.

    A workload builds offline, from its section of the configuration alone. It neither seeds nor
    moves anything: whoever calls :meth:`build` sets the seed, the device and the memory format.

    Raises:
        Unsupported: ``model.channels_last`` is asked of a model without convolutions, or
            ``model.activation_checkpointing`` of one that cannot.
    """

    Section: ClassVar[type[ModelSection]] = ModelSection
    """The keys of the section ``model``, with the workload's own among them."""

    convolutional: ClassVar[bool] = False
    """Whether the memory format channels_last means anything to the model."""

    where: ClassVar[str] = "everywhere"
    """Where it can be built."""

    checkpoints_activations: ClassVar[bool] = False
    """Whether the library that the model comes from can compute activations again."""

    tokens_per_sample: int | None = None
    """Tokens in one sample; None where samples are not made of tokens."""

    def __init__(self, section: S):
        self.section = section
        if section.channels_last and not self.convolutional:
            raise Unsupported(f"model.channels_last: {section.name} has no convolutions")
        if section.activation_checkpointing and not self.checkpoints_activations:
            raise Unsupported(
                f"model.activation_checkpointing: {section.name} cannot compute activations again"
            )

    @property
    def memory_format(self) -> torch.memory_format:
        """The layout of images and of the weights of convolutions."""
        return torch.channels_last if self.section.channels_last else torch.contiguous_format

    @abstractmethod
    def build(self) -> nn.Module:
        """The model with random weights, on the default device.

        Raises:
            Unsupported: a library that the model comes from is not installed.
        """

    @abstractmethod
    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """A batch of random samples shaped like real ones, made on `device`.

        A `generator`, if given, must live on `device`.
        """

    def from_images(self, images: Tensor, labels: Tensor) -> Batch:
        """Real images as this model's batch, on the device where they are.

        `images` are N×1×H×W (grey) or N×3×H×W with values from 0 to 1, `labels` are N class
        numbers.

        Raises:
            Unsupported: the model is not one of images.
            UsageProblem: the model is configured for fewer classes.
        """
        raise Unsupported(f"{self.section.name} is no model of images")

    def from_text(self, tokens: Tensor) -> Batch:
        """Real text as this model's batch, on the device where it is.

        `tokens` are N×(L + 1) token numbers: every one but the last of a row is followed by its
        target.

        Raises:
            Unsupported: the model is not one of text.
            UsageProblem: the model is configured for fewer different tokens, or shorter rows.
        """
        raise Unsupported(f"{self.section.name} is no model of text")

    def from_table(self, features: Tensor, targets: Tensor) -> Batch:
        """Rows of a table as this model's batch, on the device where they are.

        `features` are N×F numbers, `targets` N numbers to be predicted, both normalised.

        Raises:
            Unsupported: the model does not predict a number from a row.
            UsageProblem: the model is configured for other features.
        """
        raise Unsupported(f"{self.section.name} is no model of tables")

    @abstractmethod
    def forward(self, module: nn.Module, batch: Batch) -> Tensor:
        """What inference computes, for example logits."""

    @abstractmethod
    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The scalar that training lowers."""


BASE = Workload
