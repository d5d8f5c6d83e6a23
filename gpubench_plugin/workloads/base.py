"""Workload base class, batches, and blocks of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from copy import copy
from itertools import pairwise
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from gpubench_plugin.config.sections import ModelSection
from gpubench_plugin.core.errors import Misuse, Unsupported

DTYPES: Final = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
"""Storage dtypes, by a precision's ``compute_dtype``."""


class Batch(NamedTuple):
    """Inputs and targets, with samples in the first dimension.

    `context` holds further model inputs: time steps, text embeddings. A workload whose own methods
    alone read them may nest tensors in tuples and dictionaries in place of each.
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

    Between them passes one floating tensor, of shape `between` for one sample. `loss` maps the last
    output and the targets to the mean over samples, so that equal parts of a batch can be averaged.
    """

    modules: tuple[nn.Module, ...]
    between: tuple[int, ...]
    loss: Callable[[Tensor, Tensor], Tensor]


S = TypeVar("S", bound=ModelSection)


class Workload(ABC, Generic[S]):
    """A model with random weights, its data, and its loss.

    A workload builds offline, from its section of the configuration alone. The caller of
    :meth:`build` sets seed, device and memory format.

    Raises:
        Unsupported: ``model.channels_last`` without convolutions, or
            ``model.activation_checkpointing`` without support for recomputation.
    """

    Section: ClassVar[type[ModelSection]] = ModelSection
    """Keys of the section ``model``, including the workload's own."""

    convolutional: ClassVar[bool] = False
    """Whether the model supports the memory format channels_last."""

    where: ClassVar[str] = "everywhere"
    """Requirements, for the documentation."""

    classifies: ClassVar[bool] = False
    """Whether the outputs are logits of one class per sample, as accuracy requires."""

    checkpoints_activations: ClassVar[bool] = False
    """Whether the model supports activation recomputation."""

    denoises: ClassVar[bool] = False
    """Whether a forward pass is a denoising step."""

    tokens_per_sample: int | None = None
    """Tokens in one sample; None if samples have no tokens."""

    def __init__(self, section: S):
        self.section = section
        if section.channels_last and not self.convolutional:
            raise Unsupported(f"model.channels_last: {section.name} has no convolutions")
        if section.activation_checkpointing and not self.checkpoints_activations:
            raise Unsupported(
                f"model.activation_checkpointing: {section.name} does not support recomputation"
            )

    @classmethod
    def refusal(cls, section: ModelSection) -> str:
        """Reason why it cannot be built as configured; empty if none is known before."""
        return ""

    @property
    def memory_format(self) -> torch.memory_format:
        """Memory format of images and convolution weights."""
        return torch.channels_last if self.section.channels_last else torch.contiguous_format

    def _require_convolutions(self, module: nn.Module) -> None:
        """Refuse channels_last if the built `module` has none, of which nothing was known before.

        Raises:
            Unsupported: it has none.
        """
        is_found = any(isinstance(layer, nn.modules.conv._ConvNd) for layer in module.modules())
        if self.section.channels_last and not is_found:
            raise Unsupported(f"model.channels_last: {self.section.name} has no convolutions")

    def tokens(self, samples: int) -> int | None:
        """Tokens in `samples`; None if samples have no tokens."""
        return None if self.tokens_per_sample is None else self.tokens_per_sample * samples

    @abstractmethod
    def build(self) -> nn.Module:
        """Build the model with random weights on torch's default device, by its generator.

        Raises:
            Unsupported: the model's library is not installed.
        """

    def description(self, module: nn.Module) -> str:
        """What is to be told of the built `module` in a line; empty if its name tells all."""
        return ""

    def for_fake_tensors(self) -> Self:
        """Variant of the workload for fake tensors: same computation, without recomputation."""
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

        `images` are N×1×H×W (grey) or N×3×H×W with values from 0 to 1, `labels` N class indices.

        Raises:
            Unsupported: the model is not an image model.
            UsageProblem: the model is configured for fewer classes.
        """
        raise Unsupported(f"{self.section.name} is not an image model")

    def from_text(self, tokens: Tensor) -> Batch:
        """Convert real text to this model's batch, on its device.

        `tokens` are N×(L + 1) token ids: each is followed by its target.

        Raises:
            Unsupported: the model is not a text model.
            UsageProblem: the model is configured for a smaller vocabulary, or another row length.
        """
        raise Unsupported(f"{self.section.name} is not a text model")

    def from_table(self, features: Tensor, targets: Tensor) -> Batch:
        """Convert table rows to this model's batch, on their device.

        `features` are N×F numbers, `targets` N numbers, both normalized.

        Raises:
            Unsupported: the model is not a table model.
            UsageProblem: the model is configured for another number of features.
        """
        raise Unsupported(f"{self.section.name} is not a table model")

    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer | None:
        """The workload's own optimizer; None for the one that ``training.optimizer`` names.

        Raises:
            Misuse: there is nothing to train.
        """
        if not parameters:
            raise Misuse(
                f"model {self.section.name} has no trainable parameters; gpubench.infer measures "
                "its forward pass alone"
            )
        return None

    def tensor_plan(self, ranks: int) -> Mapping[str, str] | None:
        """Tensor parallel plan for `ranks`; None if not available.

        By pattern of module names, ``*`` for one part between dots: ``colwise`` shards a layer's
        outputs, ``rowwise`` its inputs, ``colwise-gathered`` also gathers the outputs on every
        rank, and ``vocabulary`` shards the rows of an embedding. Other modules are replicated.

        Raises:
            Unsupported: a size of the model is not divisible by `ranks`.
        """
        return None

    def stages(self, module: nn.Module, count: int) -> Stages | None:
        """Cut the built `module` into `count` stages; None if not supported.

        The stages own the layers: do not use `module` afterwards.

        Raises:
            Unsupported: the model has too few layers.
        """
        return None

    @abstractmethod
    def forward(self, module: nn.Module, batch: Batch) -> Tensor:
        """Inference output, such as logits; inference takes tensors in tuples and mappings, too."""

    @abstractmethod
    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Loss of a training step: a scalar that autograd can differentiate."""


def dense_layers(*widths: int) -> Iterator[nn.Module]:
    """Linear layers of these `widths` with a ReLU between two."""
    for position, (inputs, outputs) in enumerate(pairwise(widths)):
        if position:
            yield nn.ReLU()
        yield nn.Linear(inputs, outputs)


def run_fake_step(workload: Workload[Any], *, samples: int, backward: bool) -> None:
    """Build model and batch as fake tensors and run forward (and `backward`).

    A ``FlopCounterMode`` around the call counts the full model without memory. Recomputed
    activations do not count, as usual for MFU: Chowdhery et al. 2022, PaLM,
    https://arxiv.org/abs/2204.02311, appendix B.
    """
    workload = workload.for_fake_tensors()
    with FakeTensorMode(), nullcontext() if backward else torch.no_grad():
        module = workload.build()
        batch = workload.synthetic_batch(samples, device=torch.device("cpu"))
        if backward:
            workload.loss(module.train(), batch).backward()
        else:
            workload.forward(module.eval(), batch)


def blocks_of(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Blocks of `module`: the entries with parameters of its outermost lists of layers.

    Each with the module that holds it before, and its name there. Layers outside of lists are in no
    block.
    """
    in_list = isinstance(module, (nn.ModuleList, nn.Sequential))
    for name, child in module.named_children():
        if not in_list or isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from blocks_of(child)
        elif any(True for _ in child.parameters()):
            yield module, name, child


BASE = Workload
