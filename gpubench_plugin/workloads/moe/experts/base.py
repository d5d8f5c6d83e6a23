"""The base of experts, SwiGLU blocks with weights of their own, and experts in sequence."""

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
    """(silu(x·A) ⊙ x·B)·C for each expert, without bias, as in Mixtral.

    Source: N. Shazeer, GLU Variants Improve Transformer, https://arxiv.org/abs/2002.05202.
    `w_in` is experts × width × 2·hidden, A beside B; `w_out` is experts × hidden × width.
    """

    @classmethod
    def unsupported(cls, section: MoeSection, device: torch.device, dtype: str) -> str | None:
        """Why it cannot multiply in `dtype` (fp32, tf32, bf16, fp16) there; None: it can."""
        return None

    @abstractmethod
    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """The outputs for `rows`, of which the first `counts[0]` are the first expert's."""

    @abstractmethod
    def gradients(self) -> tuple[Tensor, Tensor]:
        """The gradients of `w_in` and `w_out`."""


class StackedExperts(Experts):
    """Experts whose weights are two parameters."""

    def __init__(self, w_in: Tensor, w_out: Tensor):
        super().__init__()
        self.w_in = nn.Parameter(w_in)
        self.w_out = nn.Parameter(w_out)

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Those of the two parameters."""
        assert self.w_in.grad is not None
        assert self.w_out.grad is not None
        return self.w_in.grad, self.w_out.grad


def one_after_another(rows: Tensor, counts: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
    """The outputs of all experts, in their order: two matrix products for each.

    Also for one without rows, whose gradient is zero. The host has to know the lengths.
    """
    parts = rows.split(on_host(counts, len(rows)))
    # Slices of a parameter would each give a gradient of its whole size.
    weights = zip(parts, w_in.unbind(), w_out.unbind(), strict=True)
    return torch.cat([gated(part @ inwards) @ outwards for part, inwards, outwards in weights])


def gated(projected: Tensor) -> Tensor:
    """The first half of the features through silu, times the second half."""
    gate, up = projected.chunk(2, dim=-1)
    return silu(gate) * up


def on_host(counts: Tensor, total: int) -> list[int]:
    """The `counts` as numbers, for which the device is waited for.

    Of tensors without data nobody knows them: then they are even ones that sum to `total`.
    """
    if isinstance(counts, FakeTensor):
        share, rest = divmod(total, len(counts))
        return [share + (number < rest) for number in range(len(counts))]
    numbers: list[int] = counts.tolist()
    return numbers


def drawn(
    section: MoeSection,
    experts: Sequence[int],
    *,
    seed: int,
    layer: int = 0,
    device: str = "cpu",
    part: tuple[int, int] = (0, 1),
) -> tuple[Tensor, Tensor]:
    """`w_in` and `w_out` of the `experts` (numbers), uniform within 1/√inputs as torch's Linear.

    Each expert has streams of its own, so that it is the same wherever it is drawn. `part` is
    which of how many equal slices of the hidden features is wanted.
    """
    index, of = part
    hidden = section.hidden // of
    mine = slice(index * hidden, (index + 1) * hidden)
    draw = partial(uniform, seed=seed, device=device)
    ins, outs = [], []
    for expert in experts:
        stream = 2 * (layer * section.experts + expert) + 1_000_000
        full = draw((section.width, 2, section.hidden), bound=section.width**-0.5, stream=stream)
        ins.append(full[:, :, mine].reshape(section.width, 2 * hidden))
        full = draw((section.hidden, section.width), bound=section.hidden**-0.5, stream=stream + 1)
        outs.append(full[mine])
    return torch.stack(ins), torch.stack(outs)


def drawn_router(section: MoeSection, *, seed: int, layer: int = 0, device: str = "cpu") -> Tensor:
    """The router's weight, experts × width."""
    shape, bound = (section.experts, section.width), section.width**-0.5
    return uniform(shape, bound=bound, seed=seed, stream=layer, device=device)


_MASK: Final = 2**32 - 1
_CHUNK: Final = 2**24
"""Elements drawn at a time: each takes 8 bytes, several times over."""


def uniform(shape: Sequence[int], *, bound: float, seed: int, stream: int, device: str) -> Tensor:
    """Values of `shape` in fp32, uniform on [-`bound`, `bound`), made on `device`.

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
    """Two matrix products for each expert; the device is waited for, to learn their lengths."""

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """The outputs of all experts, in their order."""
        return one_after_another(rows, counts, self.w_in, self.w_out)
