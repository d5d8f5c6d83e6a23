"""Forward passes on fake CUDA tensors, and what they would do on the device: no device is needed.

A fake tensor has a device, a shape, strides and a dtype, but no data. So everything that an eager
forward pass decides on the host is decided as on a device: which operations it dispatches, on which
device, in which dtype and in which memory layout.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import pytest
import torch
from torch import nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from torch._ops import OpOverload

CUDA: Final = torch.device("cuda:0")

READS: Final = (
    "_local_scalar_dense",
    "nonzero",
    "is_nonzero",
    "equal",
    "bincount",
    "masked_select",
    "allclose",
    "unique_consecutive",
    "unique_dim",
    "_unique",
    "_unique2",
)
"""Operations whose result, or its shape, the host must know: it waits for the device."""

_INDEXED: Final = ("index", "index_put", "index_put_", "_index_put_impl_")
"""Operations that read a mask among their indices."""

_PRODUCTS: Final = {
    **dict.fromkeys(("mm", "bmm", "_grouped_mm", "convolution"), 0),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm"), 1),
}
"""Matrix products, and which argument is their first factor."""


@contextmanager
def fake_cuda() -> Iterator[torch.device]:
    """A context in which tensors are fake, and torch says that it has a Hopper device."""
    torch._C._ensureCUDADeviceGuardSet()  # one that does nothing; for the rest of the process
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)
        patch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        # Else the first fake tensor makes a real one.
        patch.setattr(fake_tensor, "init_gpu_context", lambda *_: None)
        # Else scalars keep their values, which are computed with on the device.
        patch.setattr(fake_tensor, "CONSTANT_NUMEL_LIMIT", 0)
        # Else autocast is off where there is no device.
        patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        patch.setattr(torch, "Generator", _Generator)
        patch.setattr(nn.Module, "_apply", _apply)
        stack.enter_context(FakeTensorMode())
        yield CUDA


class _Generator(torch.Generator):
    """A generator on the host, whatever the device: nothing is drawn."""

    def __new__(cls, *_: object) -> Self:
        return super().__new__(cls)


def _apply(
    module: nn.Module, convert: Callable[[Tensor], Tensor], _recurse: bool = True
) -> nn.Module:
    """Convert parameters and buffers; parameters that modules share stay shared.

    torch's own swaps the tensors of fake parameters, but cannot where the mode refers to them.
    """
    converted: dict[Tensor, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None and parameter not in converted:
                values = convert(parameter.detach())
                converted[parameter] = nn.Parameter(values, parameter.requires_grad)
            part._parameters[name] = None if parameter is None else converted[parameter]
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else convert(buffer)
    return module


@contextmanager
def followed(path: HotPath) -> Iterator[HotPath]:
    """The `path` of what is dispatched in the context."""
    with _Attention(path.attend), path:
        yield path


class HotPath(TorchDispatchMode):
    """Counts, by description, what operations do that they should not; see :func:`followed`.

    That is: waiting for the device, work on the host, copies between host and device, convolutions
    of another layout where `layout` is channels_last, and products whose factors are not `dtype`.
    """

    def __init__(self, *, dtype: torch.dtype, layout: torch.memory_format):
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self.deviations: Counter[str] = Counter()
        self.products: Counter[str] = Counter()
        self._dtype = dtype
        self._layout = layout

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        stand_in = _STAND_INS.get(name)
        result = func(*args, **kwargs) if stand_in is None else stand_in(*args)
        if name == "convolution":
            result = _as_cudnn(result, *args[:2])
        inputs = _tensors((args, kwargs))
        devices = {tensor.device.type for tensor in (*inputs, *_tensors(result))}
        if name in READS and "cuda" in {tensor.device.type for tensor in inputs}:
            self.deviations[f"the host waits for {name}"] += 1
        elif devices == {"cuda", "cpu"}:
            self.deviations[f"host and device in {name}"] += 1
        elif devices == {"cpu"} and not func.is_view:
            self.deviations[f"on the host: {name}"] += 1
        if name in _PRODUCTS:
            self._product(name, args[_PRODUCTS[name]])
        if name == "convolution":
            self._convolution(args[0])
        return result

    def _product(self, name: str, factor: Tensor) -> None:
        kind = str(factor.dtype).removeprefix("torch.")
        self.products[f"{kind} {name}"] += 1
        if factor.dtype is not self._dtype:
            self.deviations[f"{name} in {kind}"] += 1

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """The output of fused attention, which autocast casts the inputs of."""
        if torch.is_autocast_enabled("cuda"):
            query, key, value = (
                part.to(torch.get_autocast_dtype("cuda")) for part in (query, key, value)
            )
        self._product("attention", query)
        assert query.dtype is key.dtype is value.dtype
        return query.new_empty((*query.shape[:-1], value.shape[-1]))

    def _convolution(self, images: Tensor) -> None:
        last = torch.channels_last
        if self._layout is last and not images.is_contiguous(memory_format=last):
            self.deviations["convolution without channels_last"] += 1


class Reads(TorchDispatchMode):
    """Counts the operations for whose result the host would wait, by name.

    On a CPU, where ``to("cpu")`` is no copy and is not counted.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self.counts: Counter[str] = Counter()
        self._copies = _Copies(self.counts)

    def __enter__(self) -> Self:
        self._copies.__enter__()  # type: ignore[no-untyped-call] # torch has no types here
        super().__enter__()  # type: ignore[no-untyped-call] # torch has no types here
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call] # torch has no types here
        self._copies.__exit__(*error)  # type: ignore[no-untyped-call] # torch has no types here

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        is_masked = name in _INDEXED and any(
            tensor.dtype in {torch.bool, torch.uint8} for tensor in _tensors(args[1])
        )
        is_repeated = str(func) == "aten.repeat_interleave.Tensor" and "output_size" not in (
            kwargs or {}
        )
        self.counts[name] += name in READS or is_masked or is_repeated
        return func(*args, **(kwargs or {}))


class _Copies(TorchFunctionMode):
    """Counts calls that copy a tensor to the host, which dispatch nothing on a CPU."""

    def __init__(self, counts: Counter[str]):
        super().__init__()
        self._counts = counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        self._counts[name] += name in {"tolist", "numpy", "cpu"}
        return func(*args, **(kwargs or {}))


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _grouped_product(rows: Tensor, weights: Tensor, *_: Any) -> Tensor:
    return rows.new_empty((len(rows), weights.shape[-1]))


def _counts(_: Tensor, weights: Tensor | None = None, least: int = 0) -> Tensor:
    return torch.empty(least, dtype=torch.int64, device=CUDA)


def _as_cudnn(output: Tensor, *operands: Tensor) -> Tensor:
    """The output of a convolution in cuDNN's layout: channels_last if that of an operand is.

    Without a device torch takes cuDNN to lack bf16, and another convolution for it. Source:
    ``cudnn_conv_suggest_memory_format``, ATen/native/ConvUtils.h of torch 2.11.
    """
    last = torch.channels_last
    if any(operand.is_contiguous(memory_format=last) for operand in operands if operand.ndim == 4):
        return output.contiguous(memory_format=last)
    return output


_STAND_INS: Final[dict[str, Callable[..., Tensor]]] = {
    "_grouped_mm": _grouped_product,  # torch infers its shape in bf16 only
    "bincount": _counts,  # whose length depends on the values
}


class _Attention(TorchFunctionMode):
    """Calls `attention` for torch's, whose kernel cannot be chosen where there is no device."""

    def __init__(self, attention: Callable[..., Tensor]):
        super().__init__()
        self._attention = attention

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.scaled_dot_product_attention:
            func = self._attention
        return func(*args, **(kwargs or {}))
