"""Operations of a call: their FLOPs, on tensors without data, and the data types of products.

A schedule, a cache or a condition can make the timed calls do less than those that were checked:
the work of a step is looked at before the timing, and once more after it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Final, Self

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.core.events import FlopsEvent
from gpubench_plugin.core.format import listed
from gpubench_plugin.measure.probes.host_reads import HostReads

aten = torch.ops.aten
Operation = torch._ops.OpOverload[..., Any]
Arguments = tuple[object, ...]
Keywords = Mapping[str, object] | None
Shape = tuple[int, ...]

# Operations that create, fill, copy or alias data; like views, they compute nothing.
_NO_ARITHMETIC = frozenset({
    "_to_copy", "_unsafe_view", "arange", "bernoulli_", "clone", "contiguous", "copy_", "detach_",
    "empty", "empty_like", "empty_strided", "fill_", "full", "full_like", "lift_fresh",
    "lift_fresh_copy", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros",
    "normal_", "ones", "ones_like", "rand", "randint", "randn", "resize_", "scalar_tensor", "set_",
    "squeeze_", "t_", "transpose_", "uniform_", "unsqueeze_", "zero_", "zeros", "zeros_like",
})  # fmt: skip


def count_flops(fn: Callable[[], object]) -> FlopsEvent:
    """Run `fn` on fake tensors and count; it must create all tensors it uses.

    FLOPs are those in matrix products, convolutions and attention; a multiply-add counts two. They
    are those of the model, however it is computed: of a causal mask nothing is deducted, and what a
    kernel computes again for its backward pass is not counted. Every other operation that computes
    something is named.
    """
    census = Census()
    with FakeTensorMode(), census:
        fn()
    uncounted = {str(op) for op in census.ops - census.formulas.keys() if _computes(op)}
    return FlopsEvent(per_call=census.flops, uncounted_ops=tuple(sorted(uncounted)))


def _computes(op: torch._ops.OpOverloadPacket) -> bool:
    namespace, _, name = str(op).partition(".")
    return namespace not in {"prim", "profiler"} and name not in _NO_ARITHMETIC


def _product(left: Shape, right: Shape, *_: object, **__: object) -> int:
    """2·M·K·N of an M×K and a K×N matrix, whatever their scales.

    Offsets split one dimension into groups without changing the sum. With two batches of matrices,
    (G, M, K) and (G, K, N), each of the G products counts.
    """
    groups = left[0] if len(left) == len(right) == 3 else 1
    return 2 * groups * left[-2] * left[-1] * right[-1]


def _convolution_backward(
    grad: Shape, inputs: Shape, weight: Shape, *options: Any, **__: object
) -> int:
    """As much as the forward pass for each gradient computed, of `inputs` and of `weight`.

    `options` are bias, stride, padding, dilation, transposed, output_padding, groups, output_mask.
    torch's own formula counts the weight's gradient of grouped channels as if all channels met.
    """
    transposed, computed = bool(options[4]), options[7]
    positions = inputs[2:] if transposed else grad[2:]
    forward = 2 * inputs[0] * prod(positions) * prod(weight)
    return forward * sum(map(bool, computed[:2]))


def _attention(query: Shape, key: Shape, value: Shape, *_: object, **__: object) -> int:
    """Query · key and scores · value for each head of the query; a causal mask is not deducted.

    Source: Chowdhery et al. 2022, PaLM, https://arxiv.org/abs/2204.02311, appendix B.
    """
    scores = 2 * query[0] * query[1] * query[2] * key[2]
    return scores * (query[3] + value[3])


def _attention_backward(
    grad: Shape, query: Shape, key: Shape, value: Shape, *_: object, **__: object
) -> int:
    """Four products, the gradients of value, scores, query and key: twice the forward pass.

    Fused kernels compute the scores again (Dao et al., FlashAttention, arXiv:2205.14135, algorithm
    4), a fifth product, which torch's own formulas count. PaLM, appendix B, and torchtitan, with
    12 · layers · width · tokens per token, do not.
    """
    return 2 * _attention(query, key, value)


def _backward_of(forward: Any, tensors: int) -> Callable[..., int]:
    """Twice the `forward` pass of the same sequences; operands are `tensors`, then lengths."""

    def backward(grad: object, *operands: Any, **_: object) -> int:
        return 2 * int(flop_registry[forward](*operands[:tensors], *operands[5:9]))

    # torch's counter passes shapes for tensors, except to a formula with this attribute.
    backward._get_raw = True  # type: ignore[attr-defined]
    return backward


_ATTENTION: Final = "_scaled_dot_product_"
"""Prefix of torch's implementations of attention, one for each device."""

_ATTENTIONS: Final = (
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",
)

# Operations without a formula in torch's counter, or with another than the one meant here.
FORMULAS: Mapping[Any, Callable[..., int]] = {
    aten._grouped_mm: _product,
    aten._scaled_grouped_mm: _product,
    aten._scaled_grouped_mm_v2: _product,
    aten._scaled_mm_v2: _product,
    aten.convolution_backward: _convolution_backward,
    **{getattr(aten, name): _attention for name in _ATTENTIONS},
    **{getattr(aten, f"{name}_backward"): _attention_backward for name in _ATTENTIONS},
    aten._flash_attention_backward: _backward_of(aten._flash_attention_forward, 3),
    aten._efficient_attention_backward: _backward_of(aten._efficient_attention_forward, 4),
}


_NAMES: Final[Mapping[torch.dtype, str]] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
}
"""Names as in a precision's ``compute_dtype``; tf32 is stored as fp32."""

_UNCOUNTED: Final = frozenset({"dot", "mv", "addmv", "_linear_pointwise"})
"""Operations that multiply, but whose FLOPs are not counted."""


def take_census(step: Callable[[], object], reads: HostReads | None = None) -> Census | None:
    """Census of one call of `step`, with compiled parts run eagerly; None if the call fails.

    The `reads` are counted in the same call.
    """
    with suppress(Exception), reads or nullcontext():
        return census_of(step, reads)
    return None


def census_of(step: Callable[[], object], reads: HostReads | None = None) -> Census:
    """Census of one call of `step` as by :func:`take_census`; its errors are raised."""
    census = Census(reads)
    with _uncompiled(), census:
        step()
    return census


class Census(TorchDispatchMode):
    """Matrix products by dtype, all floating-point dtypes, and input tensors of a call.

    `inputs` are the tensors that it used without having computed them, by address of the storage;
    `writes` has the addresses of those written in place. Of the operations `ops`, all but views,
    those with `formulas` add up to `flops`. `loss_values` counts what became single numbers. A
    backward pass on a CPU is in the thread that calls it.
    """

    def __init__(self, reads: HostReads | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch does not declare it
        self.reads = reads
        self.products: Counter[str] = Counter()
        self.dtypes: set[str] = set()
        self.inputs: dict[int, torch.Tensor] = {}
        self.writes: set[int] = set()
        self.ops: set[torch._ops.OpOverloadPacket] = set()
        self.flops = self.loss_values = 0
        self.formulas = FlopCounterMode(custom_mapping=dict(FORMULAS)).flop_registry
        self._computed_storages: set[int] = set()

    def confirms(self, compute_dtype: str) -> bool:
        """Whether any product was computed in that dtype, or without products any operation."""
        storage_dtype = "fp32" if compute_dtype == "tf32" else compute_dtype
        return storage_dtype in (self.products or self.dtypes)

    def __torch_dispatch__(
        self, func: Operation, types: object, args: Arguments = (), kwargs: Keywords = None
    ) -> object:
        kwargs = kwargs or {}
        op = func.overloadpacket
        # A nested tensor computes in its own way.
        is_plain = not any(tensor.is_nested for tensor in _tensors((args, kwargs)))
        if is_plain and op not in self.formulas and op is not torch.ops.prim.device:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if self.reads is not None:
            self.reads.count(func, args, kwargs)
        if op in self.formulas or op.__name__ in _UNCOUNTED or op.__name__.startswith(_ATTENTION):
            self.products.update([next(_dtypes(args), "none")])
        for tensor in _tensors((args, kwargs)):
            if (address := _storage_address(tensor)) not in self._computed_storages:
                self.inputs.setdefault(address, tensor)
        if func._schema.is_mutable:
            self.writes.update(map(_storage_address, _tensors(args[:1])))
        result = func(*args, **kwargs)
        if op in self.formulas:
            self.flops += int(self.formulas[op](*args, **kwargs, out_val=result))
        first = next(_tensors(result), None)
        if first is not None and first.ndim == 0 and first.is_floating_point():
            self.loss_values += sum(tensor.numel() for tensor in _tensors(args) if tensor.ndim)
        self._computed_storages |= {*map(_storage_address, _tensors(result))} - self.inputs.keys()
        if not func.is_view:
            self.ops.add(op)
            self.dtypes.update(_dtypes((args, result)))
        return result


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """`counts` of a step, its `effects` on parameters, and the parameters that are its `inputs`."""

    counts: Mapping[str, int]
    effects: frozenset[tuple[str, str]]
    inputs: frozenset[str]

    @classmethod
    def of(cls, step: Callable[[], object], module: torch.nn.Module, *, counts: bool) -> Self:
        """Run `step`, which trains or calls `module`; its errors are raised.

        Without `counts` only gradients are told, as if all parameters were used.
        """
        parameters = {name.removeprefix("module."): p for name, p in module.named_parameters()}
        effects: set[tuple[str, str]] = set()
        census = Census()
        with ExitStack() as stack:
            for name, parameter in parameters.items():
                if parameter.requires_grad:
                    hook = partial(lambda name, _: effects.add(("gradient", name)), name)
                    stack.callback(parameter.register_post_accumulate_grad_hook(hook).remove)
            if counts:
                stack.enter_context(census)
            step()
        places = {name: _storage_address(parameter) for name, parameter in parameters.items()}
        effects |= {("update", name) for name in places if places[name] in census.writes}
        return cls(
            counts={"FLOPs": census.flops, "values in the loss": census.loss_values},
            effects=frozenset(effects),
            inputs=frozenset(n for n in places if places[n] in census.inputs or not counts),
        )

    def require_equal(self, before: StepWork) -> None:
        """Refuse other work than `before`; routing may leave out what has no gradient and no use.

        Raises:
            CorrectnessError: naming what differs.
        """
        lost = before.effects - self.effects
        texts = [
            f"no {what} of {name}"
            for what, name in sorted(lost)
            # Sharded parameters are used in another form, of which no gradient is seen.
            if name in self.inputs or (what == "update" and ("gradient", name) not in lost)
        ]
        for what, count in before.counts.items():
            if count != self.counts[what]:
                texts.append(f"{self.counts[what]:,} {what}, {count:,} before")
        if texts:
            raise CorrectnessError(f"a step after the timing has {listed(texts, separator='; ')}")


def _dtypes(values: object) -> Iterator[str]:
    """Dtypes of the floating-point tensors among `values`, in order."""
    return (_NAMES[tensor.dtype] for tensor in _tensors(values) if tensor.dtype in _NAMES)


def _storage_address(tensor: torch.Tensor) -> int:
    """Address of the tensor's storage, or 0."""
    with suppress(NotImplementedError, RuntimeError, ValueError):  # sparse, fake or wrapped
        return int(tensor.untyped_storage()._cdata)
    return 0


def _tensors(values: object) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _uncompiled() -> AbstractContextManager[object]:
    """Context that disables compiled code, which would appear as one operation."""
    # Without the module, whose import takes a second, nothing is compiled.
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance
