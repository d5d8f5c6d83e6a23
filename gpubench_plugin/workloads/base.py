"""Workload base class, and batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn

from gpubench_plugin.config import ModelSection
from gpubench_plugin.errors import Unsupported


class Batch(NamedTuple):
    """Inputs and targets, with samples in the first dimension.

    `context` holds what else the model takes of each sample: time steps, text embeddings.
    """

    inputs: Tensor
    targets: Tensor
    context: tuple[Tensor, ...] = ()

    def split(self, size: int) -> tuple[Batch, ...]:
        """Split into views of `size` consecutive samples."""
        columns = (self.inputs, self.targets, *self.context)
        parts = zip(*(column.split(size) for column in columns), strict=True)
        return tuple(Batch(part[0], part[1], part[2:]) for part in parts)


class Stages(NamedTuple):
    """A model cut into `modules` that run in sequence.

    All but the first take, and all but the last give, one floating tensor; for one sample it has
    the shape `between`. `loss` takes the last output and the targets to a scalar, which is the mean
    over the samples: only then is the mean over equal parts of a batch that of the batch.
    """

    modules: tuple[nn.Module, ...]
    between: tuple[int, ...]
    loss: Callable[[Tensor, Tensor], Tensor]


S = TypeVar("S", bound=ModelSection)


class Workload(ABC, Generic[S]):
    """A model with random weights, its data, and its loss.

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

    classifies: ClassVar[bool] = False
    """Whether the outputs are logits of one class per sample, so that accuracy means something."""

    checkpoints_activations: ClassVar[bool] = False
    """Whether the library that the model comes from can compute activations again."""

    denoises: ClassVar[bool] = False
    """Whether a forward pass is one of the steps in which samples are made from noise."""

    tokens_per_sample: int | None = None
    """Tokens in one sample; None where samples are not made of tokens."""

    def __init__(self, section: S):
        self.section = section
        if section.channels_last and not self.convolutional:
            raise Unsupported(f"model.channels_last: {section.name} has no convolutions")
        if section.activation_checkpointing and not self.checkpoints_activations:
            raise Unsupported(
                f"model.activation_checkpointing: {section.name} does not support recomputation"
            )

    @property
    def memory_format(self) -> torch.memory_format:
        """Memory format of images and convolution weights."""
        return torch.channels_last if self.section.channels_last else torch.contiguous_format

    def tokens(self, samples: int) -> int | None:
        """Tokens in so many `samples`; None where samples are not made of tokens."""
        return None if self.tokens_per_sample is None else self.tokens_per_sample * samples

    @abstractmethod
    def build(self) -> nn.Module:
        """Build the model with random weights on the default device.

        Raises:
            Unsupported: a library that the model comes from is not installed.
        """

    def for_fake_tensors(self) -> Self:
        """Variant of the workload that can run on fake tensors with the same computation.

        What is computed a second time to save memory is no part of the mathematics.
        """
        clone = copy(self)
        clone.section = self.section.model_copy(update={"activation_checkpointing": False})
        return clone

    @abstractmethod
    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """Random batch shaped like real data, on `device`.

        A `generator`, if given, must live on `device`.
        """

    def from_images(self, images: Tensor, labels: Tensor) -> Batch:
        """Convert real images to this model's batch, on their device.

        `images` are N×1×H×W (grey) or N×3×H×W with values from 0 to 1, `labels` are N class
        numbers.

        Raises:
            Unsupported: the model is not one of images.
            UsageProblem: the model is configured for fewer classes.
        """
        raise Unsupported(f"{self.section.name} is not an image model")

    def from_text(self, tokens: Tensor) -> Batch:
        """Convert real text to this model's batch, on its device.

        `tokens` are N×(L + 1) token numbers: every one but the last of a row is followed by its
        target.

        Raises:
            Unsupported: the model is not one of text.
            UsageProblem: the model is configured for fewer different tokens, or shorter rows.
        """
        raise Unsupported(f"{self.section.name} is not a text model")

    def from_table(self, features: Tensor, targets: Tensor) -> Batch:
        """Convert table rows to this model's batch, on their device.

        `features` are N×F numbers, `targets` N numbers to be predicted, both normalised.

        Raises:
            Unsupported: the model does not predict a number from a row.
            UsageProblem: the model is configured for other features.
        """
        raise Unsupported(f"{self.section.name} is not a table model")

    def tensor_plan(self, ranks: int) -> Mapping[str, str] | None:
        """Tensor parallel plan for `ranks`; None if not available.

        By pattern of module names, ``*`` for one part between dots: ``colwise`` shares a layer's
        outputs and ``rowwise`` its inputs, ``colwise-gathered`` gives the whole output to every
        rank, and ``vocabulary`` shares the rows of an embedding. What is not named is on every
        rank as a whole.

        Raises:
            Unsupported: a size of the model does not divide among so many ranks.
        """
        return None

    def stages(self, module: nn.Module, count: int) -> Stages | None:
        """Cut the built `module` into `count` stages; None if not supported.

        The stages take the layers over, which must not be used through `module` any more.

        Raises:
            Unsupported: it cannot be cut into so many.
        """
        return None

    @abstractmethod
    def forward(self, module: nn.Module, batch: Batch) -> Tensor:
        """Inference output, such as logits."""

    @abstractmethod
    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Scalar training loss."""


BASE = Workload
