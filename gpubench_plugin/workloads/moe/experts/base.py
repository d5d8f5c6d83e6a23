"""Base class of experts (SwiGLU blocks), and sequential experts."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Final, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.nn.functional import silu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config import MoeSection

Numbers = TypeVar("Numbers", int, Tensor)


class Experts(nn.Module):
    """(silu(x·A) ⊙ x·B)·C per expert, without bias, as in Mixtral.

    Source: N. Shazeer, GLU Variants Improve Transformer, https://arxiv.org/abs/2002.05202.
    `w_in` is experts × width × 2·hidden, A beside B; `w_out` is experts × hidden × width.
    """

    @classmethod
    def unsupported(cls, section: MoeSection, device: torch.device, dtype: str) -> str | None:
        """Why `dtype` (fp32, tf32, bf16, fp16) is not supported there, or None."""
        return None

    @abstractmethod
    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs for `rows`, the first `counts[0]` of which belong to the first expert."""

    @abstractmethod
    def gradients(self) -> tuple[Tensor, Tensor]:
        """The gradients of `w_in` and `w_out`."""


class StackedExperts(Experts):
    """Experts with weights stacked into two parameters."""

    def __init__(self, w_in: Tensor, w_out: Tensor):
        super().__init__()
        self.w_in = nn.Parameter(w_in)
        self.w_out = nn.Parameter(w_out)

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Gradients of the two parameters."""
        assert self.w_in.grad is not None
        assert self.w_out.grad is not None
        return self.w_in.grad, self.w_out.grad


def run_sequentially(rows: Tensor, counts: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
    """Outputs of all experts in order, with two matrix products each.

    Also for one without rows, whose gradient is zero. The host has to know the lengths.
    """
    parts = rows.split(host_counts(counts, len(rows)))
    # Slices of a parameter would each give a gradient of its whole size.
    weights = zip(parts, w_in.unbind(), w_out.unbind(), strict=True)
    return torch.cat(
        [
            swiglu(expert_rows @ weight_in) @ weight_out
            for expert_rows, weight_in, weight_out in weights
        ]
    )


def swiglu(projected: Tensor) -> Tensor:
    """SwiGLU: silu of the first half of the features times the second half."""
    gate, linear_part = projected.chunk(2, dim=-1)
    return silu(gate) * linear_part


def host_counts(counts: Tensor, total: int) -> list[int]:
    """`counts` on the host; synchronizes.

    Of tensors without data nobody knows them: then they are even ones that sum to `total`.
    """
    if isinstance(counts, FakeTensor):
        even_count, remainder = divmod(total, len(counts))
        return [even_count + (number < remainder) for number in range(len(counts))]
    numbers: list[int] = counts.tolist()
    return numbers


def weights(
    section: MoeSection,
    experts: Sequence[int],
    *,
    seed: int,
    layer: int = 0,
    device: str = "cpu",
    tensor_part: tuple[int, int] = (0, 1),
) -> tuple[Tensor, Tensor]:
    """Draw `w_in` and `w_out` of `experts`, uniform within 1/√inputs like torch's Linear.

    Each expert has streams of its own, so that it is the same wherever it is drawn. `tensor_part`
    is which of how many equal slices of the hidden features is wanted.
    """
    index, part_count = tensor_part
    part_hidden = section.hidden // part_count
    own_columns = slice(index * part_hidden, (index + 1) * part_hidden)
    draw = partial(uniform, seed=seed, device=device)
    weights_in, weights_out = [], []
    for expert in experts:
        stream = 2 * (layer * section.experts + expert) + 1_000_000
        full_weight = draw(
            (section.width, 2, section.hidden), bound=section.width**-0.5, stream=stream
        )
        weights_in.append(full_weight[:, :, own_columns].reshape(section.width, 2 * part_hidden))
        full_weight = draw(
            (section.hidden, section.width), bound=section.hidden**-0.5, stream=stream + 1
        )
        weights_out.append(full_weight[own_columns])
    return torch.stack(weights_in), torch.stack(weights_out)


def draw_router(section: MoeSection, *, seed: int, layer: int = 0, device: str = "cpu") -> Tensor:
    """Draw the router's weight, experts × width."""
    shape, bound = (section.experts, section.width), section.width**-0.5
    return uniform(shape, bound=bound, seed=seed, stream=layer, device=device)


_MASK: Final = 2**32 - 1
_CHUNK: Final = 2**24
"""Elements drawn at a time: each takes 8 bytes, several times over."""


def uniform(shape: Sequence[int], *, bound: float, seed: int, stream: int, device: str) -> Tensor:
    """fp32 values of `shape`, uniform on [-`bound`, `bound`), created on `device`.

    A `stream` is a sequence of its own under one `seed`: each weight has one, so that a rank draws
    its experts without drawing the others'. Drawing advances no generator.

    The values are bit for bit the same on every device, which those of torch's generators are not:
    an element's number is hashed with the seed, and integers and one multiplication in fp32 are
    exact everywhere.
    """
    count = prod(shape)
    key = _mixed(_mixed(seed & _MASK) ^ (stream & _MASK))
    values = torch.empty(count, dtype=torch.float32, device=device)
    for start in range(0, count, _CHUNK):
        end = min(start + _CHUNK, count)
        numbers = torch.arange(start, end, dtype=torch.int64, device=device)
        bits = _mixed(_mixed(numbers) ^ key) >> 8  # fp32 holds 24 bits exactly
        values[start:end] = (bits - 2**23).to(torch.float32) * (bound / 2**23)
    return values.reshape(tuple(shape))


def _mixed(numbers: Numbers) -> Numbers:
    """A bijection of 32-bit numbers, of which every output bit hangs on every input bit.

    Source: the hash lowbias32, https://nullprogram.com/blog/2018/07/31/. No product leaves a
    tensor's int64: the second multiplier is taken modulo 2**32 as a negative number.
    """
    numbers = ((numbers ^ (numbers >> 16)) * 0x7FEB352D) & _MASK
    numbers = ((numbers ^ (numbers >> 15)) * (0x846CA68B - 2**32)) & _MASK
    return numbers ^ (numbers >> 16)


class Sequential(StackedExperts):
    """Two matrix products per expert; synchronizes to learn the counts."""

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs of all experts in order."""
        return run_sequentially(rows, counts, self.w_in, self.w_out)
