"""The base of experts, SwiGLU blocks with weights of their own, and experts in sequence."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.nn.functional import silu

from gpubench_plugin.workloads.moe.initialisation import uniform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config import MoeSection


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


class Sequential(StackedExperts):
    """Two matrix products for each expert; the device is waited for, to learn their lengths."""

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """The outputs of all experts, in their order."""
        return one_after_another(rows, counts, self.w_in, self.w_out)
