"""Experts of a rank: SwiGLU blocks, one after the other or in two grouped products."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.nn import functional
from torch.nn.functional import silu

from gpubench_plugin.config.sections import MoeSection
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.environment.device_errors import is_device_failure
from gpubench_plugin.workloads.base import DTYPES
from gpubench_plugin.workloads.moe.dispatchers import compute_dtype

Weights = tuple[Tensor, Tensor]

Numbers = TypeVar("Numbers", int, Tensor)


class Experts(nn.Module):
    """(silu(x·A) ⊙ x·B)·C per expert, without bias, as in Mixtral.

    Source: N. Shazeer, GLU Variants Improve Transformer, https://arxiv.org/abs/2002.05202.
    `w_in` is experts × width × 2·hidden, A beside B; `w_out` is experts × hidden × width.
    """

    @classmethod
    def unsupported(cls, section: MoeSection, device: torch.device, dtype: str) -> str | None:
        """Reason `dtype` (fp32, tf32, bf16, fp16) is not supported there, or None."""
        return None

    @classmethod
    def wait_reason(cls, device: torch.device, dtype: str) -> str | None:
        """Why the host waits for the device where it need not, for the record; None if not."""
        return None

    @abstractmethod
    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs for `rows`, the first `counts[0]` of which belong to the first expert."""

    @abstractmethod
    def gradients(self) -> tuple[Tensor, Tensor]:
        """The gradients of `w_in` and `w_out`."""


def grad_of(tensor: Tensor) -> Tensor:
    """Gradient of `tensor` after a backward pass."""
    assert tensor.grad is not None
    return tensor.grad


def swiglu(projected: Tensor) -> Tensor:
    """SwiGLU: silu of the first half of the features times the second half."""
    gate, linear_part = projected.chunk(2, dim=-1)
    return silu(gate) * linear_part


def host_counts(counts: Tensor, total: int) -> list[int]:
    """`counts` on the host; synchronizes. For fake tensors even counts that sum to `total`."""
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

    Each expert has its own streams, so that it is the same on every rank. `tensor_part` is the
    index and number of equal slices of the hidden features.
    """
    index, part_count = tensor_part
    width, hidden = section.width, section.hidden
    part_hidden = hidden // part_count
    columns = slice(index * part_hidden, (index + 1) * part_hidden)
    draw = partial(uniform, seed=seed, device=device)
    weights_in, weights_out = [], []
    for expert in experts:
        stream = 2 * (layer * section.experts + expert) + _EXPERT_STREAM
        w_in = draw((width, 2, hidden), bound=width**-0.5, stream=stream)
        weights_in.append(w_in[:, :, columns].reshape(width, 2 * part_hidden))
        w_out = draw((hidden, width), bound=hidden**-0.5, stream=stream + 1)
        weights_out.append(w_out[columns])
    return torch.stack(weights_in), torch.stack(weights_out)


def draw_router(section: MoeSection, *, seed: int, layer: int = 0, device: str = "cpu") -> Tensor:
    """Draw the router's weight, experts × width."""
    shape, bound = (section.experts, section.width), section.width**-0.5
    return uniform(shape, bound=bound, seed=seed, stream=layer, device=device)


_EXPERT_STREAM: Final = 1_000_000
"""First stream of experts; routers use the numbers of their layers."""

_MASK: Final = 2**32 - 1
_CHUNK: Final = 2**24
"""Elements hashed at a time, which limits the temporary int64 tensors to 128 MiB each."""


def uniform(shape: Sequence[int], *, bound: float, seed: int, stream: int, device: str) -> Tensor:
    """fp32 values of `shape`, uniform on [-`bound`, `bound`), created on `device`.

    Each weight has its own `stream` under one `seed`, so that a rank draws only its experts. Unlike
    those of torch's generators, the values are bitwise equal on every device: hashed indices, and
    one exact multiplication in fp32.
    """
    count = prod(shape)
    key = _mix(_mix(seed & _MASK) ^ (stream & _MASK))
    values = torch.empty(count, dtype=torch.float32, device=device)
    for start in range(0, count, _CHUNK):
        end = min(start + _CHUNK, count)
        numbers = torch.arange(start, end, dtype=torch.int64, device=device)
        bits = _mix(_mix(numbers) ^ key) >> 8  # fp32 holds 24 bits exactly
        values[start:end] = (bits - 2**23).to(torch.float32) * (bound / 2**23)
    return values.reshape(tuple(shape))


def _mix(numbers: Numbers) -> Numbers:
    """Hash of 32-bit numbers: lowbias32, https://nullprogram.com/blog/2018/07/31/.

    The second multiplier is negative modulo 2**32, so that no product overflows int64.
    """
    numbers = ((numbers ^ (numbers >> 16)) * 0x7FEB352D) & _MASK
    numbers = ((numbers ^ (numbers >> 15)) * (0x846CA68B - 2**32)) & _MASK
    return numbers ^ (numbers >> 16)


class Sequential(Experts):
    """Experts with weights stacked into two parameters, of two matrix products each.

    It synchronizes to learn the counts.
    """

    def __init__(self, w_in: Tensor, w_out: Tensor):
        super().__init__()
        self.w_in = nn.Parameter(w_in)
        self.w_out = nn.Parameter(w_out)

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs of all experts in order; one without rows, too, for a gradient of zero."""
        parts = rows.split(host_counts(counts, len(rows)))
        # unbind: slices of a parameter would each have a gradient of the parameter's size.
        experts = zip(parts, self.w_in.unbind(), self.w_out.unbind(), strict=True)
        return torch.cat(
            [swiglu(part @ weight_in) @ weight_out for part, weight_in, weight_out in experts]
        )

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Gradients of the two parameters."""
        return grad_of(self.w_in), grad_of(self.w_out)


_GROUPED_KERNEL_CAPABILITIES: Final = (9, 10)

_grouped_mm = getattr(functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


class Grouped(Sequential):
    """``torch.nn.functional.grouped_mm`` with group ends in a device tensor.

    One kernel that waits for nothing is torch's only in bf16 on some devices; see
    :meth:`wait_reason`. Autocast does not cover the product, so the operands are cast here.
    """

    @classmethod
    def unsupported(cls, section: MoeSection, device: torch.device, dtype: str) -> str | None:
        """Error that torch raises for a one-row product in that dtype on that device, or None."""
        if _grouped_mm is None:
            return f"torch {torch.__version__} does not provide grouped_mm"
        part_hidden = section.hidden // section.tensor_parallel
        kind = DTYPES[dtype]
        ends = torch.ones(1, dtype=torch.int32, device=device)
        try:
            for inputs, outputs in ((section.width, 2 * part_hidden), (part_hidden, section.width)):
                row = torch.ones(1, inputs, dtype=kind, device=device)
                matrix = torch.ones(1, inputs, outputs, dtype=kind, device=device)
                _grouped_mm(row, matrix, offs=ends)
        except (RuntimeError, TypeError, ValueError) as error:  # NotImplementedError is one
            if is_device_failure(error):
                raise
            reason = str(error).partition("\n")[0]
            return (
                f"torch {torch.__version__} does not support grouped_mm for {dtype} here: {reason}"
            )
        return None

    @classmethod
    def wait_reason(cls, device: torch.device, dtype: str) -> str | None:
        """Why the host waits for the group ends in each product in `dtype`; None if it does not.

        torch has a grouped kernel on CUDA for bf16 of devices of capability 9 and 10. For all else
        it copies the ends to the host and loops over the groups.

        Source: torch 2.11, ``_grouped_mm_fallback`` in ATen/native/GroupedMMUtils.h and its use in
        ATen/native/cuda/GroupedBlas.cpp.
        """
        if device.type != "cuda":
            return None
        if dtype != "bf16":
            return f"torch has no grouped kernel for {dtype}, loops over experts and waits for each"
        major, minor = torch.cuda.get_device_capability(device)
        if major in _GROUPED_KERNEL_CAPABILITIES:
            return None
        return (
            f"torch has no grouped kernel for compute capability {major}.{minor}, loops over "
            "experts and waits for each"
        )

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs of all experts in order."""
        assert _grouped_mm is not None
        dtype = compute_dtype(rows)
        without_data = isinstance(rows, FakeTensor) or torch.compiler.is_compiling()
        if without_data and dtype is not torch.bfloat16:
            # torch infers the shape of this product only in bf16.
            return super().forward(rows, counts)
        ends = counts.cumsum(0).to(torch.int32)
        projected = _grouped_mm(rows.to(dtype), self.w_in.to(dtype), offs=ends)
        output: Tensor = _grouped_mm(swiglu(projected), self.w_out.to(dtype), offs=ends)
        return output


class TEGrouped(Experts):
    """Two ``GroupedLinear`` layers, which need group sizes on the host.

    Source: https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/api/pytorch.html

    Raises:
        Unsupported: Transformer Engine is not installed.
    """

    @classmethod
    def unsupported(cls, section: MoeSection, device: torch.device, dtype: str) -> str | None:
        """Refuse devices other than CUDA; without Transformer Engine all are."""
        _grouped_linear()
        if device.type == "cuda":
            return None
        return f"Transformer Engine does not support {device.type}"

    def __init__(self, w_in: Tensor, w_out: Tensor):
        super().__init__()
        self._linear_in, self._linear_out = (_layer(weights) for weights in (w_in, w_out))

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs of all experts in order."""
        lengths = host_counts(counts, len(rows))
        output: Tensor = self._linear_out(swiglu(self._linear_in(rows, lengths)), lengths)
        return output

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Gradients of the layers' weights, which are stored transposed."""
        grad_in, grad_out = (
            torch.stack([p.grad.t() for p in layer.parameters() if p.grad is not None])
            for layer in (self._linear_in, self._linear_out)
        )
        return grad_in, grad_out


def _layer(weights: Tensor) -> nn.Module:
    count, inputs, outputs = weights.shape
    layer: nn.Module = _grouped_linear()(
        count, inputs, outputs, bias=False, device=weights.device, params_dtype=weights.dtype
    )
    with torch.no_grad():
        for number, weight in enumerate(weights.unbind()):
            getattr(layer, f"weight{number}").copy_(weight.t())
    return layer


def _grouped_linear() -> Any:
    try:
        from transformer_engine.pytorch import GroupedLinear
    except (ImportError, OSError) as error:  # a library of CUDA's may be missing
        raise Unsupported(
            f"moe.expert_kind=te-grouped: Transformer Engine cannot be imported ({error}): "
            "pip install --no-build-isolation 'transformer-engine[pytorch]' on a machine with CUDA"
        ) from error
    return GroupedLinear


KINDS: Final[dict[str, type[Experts]]] = {
    "sequential": Sequential,
    "grouped": Grouped,
    "te-grouped": TEGrouped,
}
"""By value of ``moe.expert_kind``."""


class CachedExperts:
    """Sequential experts for inference, of which `size` are on the device, the others on the host.

    The one used longest ago gives way. Copies are ordered on the device's stream after the products
    that read the overwritten slot; the host does not wait. Experts without rows are skipped.
    """

    def __init__(self, host_weights: Sequence[Weights], *, size: int, device: torch.device):
        self._host_weights = host_weights
        w_in, w_out = host_weights[0]
        self._free: list[Weights] = [
            (torch.empty_like(w_in, device=device), torch.empty_like(w_out, device=device))
            for _ in range(min(size, len(host_weights)))
        ]
        self._resident: OrderedDict[int, Weights] = OrderedDict()
        self.reset_counts()

    def __call__(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs of all experts in order."""
        outputs = []
        for expert, part in enumerate(rows.split(host_counts(counts, len(rows)))):
            if len(part):
                w_in, w_out = self.weights(expert)
                outputs.append(swiglu(part @ w_in) @ w_out)
        return torch.cat(outputs) if outputs else rows.clone()

    def weights(self, expert: int) -> Weights:
        """Weights of `expert` on the device."""
        if expert in self._resident:
            self.hits += 1
            self._resident.move_to_end(expert)
        else:
            self.misses += 1
            slot = self._free.pop() if self._free else self._resident.popitem(last=False)[1]
            for target, source in zip(slot, self._host_weights[expert], strict=True):
                target.copy_(source, non_blocking=True)
            self._resident[expert] = slot
        return self._resident[expert]

    def reset_counts(self) -> None:
        """Reset hits and misses."""
        self.hits = self.misses = 0


def offload(
    experts: Sequential, *, size: int, pin: Callable[[Tensor], Tensor] = Tensor.pin_memory
) -> CachedExperts:
    """Move `experts` to pinned memory with `size` device slots.

    Raises:
        Unsupported: the device is no CUDA device.
    """
    device = experts.w_in.device
    if pin is Tensor.pin_memory and device.type != "cuda":
        raise Unsupported(
            f"moe.pinned_cache requires a GPU, not {device.type}; use --device=cuda, or set null"
        )
    with torch.no_grad():
        host_weights = [
            (pin(w_in.cpu()), pin(w_out.cpu()))
            for w_in, w_out in zip(experts.w_in.unbind(), experts.w_out.unbind(), strict=True)
        ]
    return CachedExperts(host_weights, size=size, device=device)
