"""A model as a test states it: a module, of which copies are measured, or a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import chain
from typing import TypeVar
from weakref import ref

import torch
from torch import Tensor, nn
from torch._dynamo import OptimizedModule
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from gpubench_plugin.core.errors import Misuse, error_text, require_returned
from gpubench_plugin.workloads._own.batch import empty_like

_WRAPPERS = (DataParallel, DistributedDataParallel, FSDPModule, FullyShardedDataParallel)


class StatedModel:
    """Builds copies of a module, or calls a function that builds one, always with fp32 weights.

    `weights` is the type of the weights in the measured precision, in which they may be as well.

    Raises:
        Misuse: it is neither, or a module that cannot be copied and trained.
    """

    def __init__(self, model: nn.Module | Callable[[], nn.Module], *, weights: torch.dtype):
        if isinstance(model, nn.Module):
            require_plain(model)
        elif not callable(model):
            raise Misuse(
                f"model is of type {type(model).__name__}; allowed: a torch.nn.Module, or a "
                "function that builds one"
            )
        self._model = model
        self._weights = weights
        self._checksums: list[float] | None = None
        self._built: ref[nn.Module] | None = None

    @property
    def name(self) -> str:
        """Class of the module, or name of the function."""
        model = self._model
        return str(getattr(model, "__name__", type(model).__name__))

    def build(self) -> nn.Module:
        """A new model with fp32 weights, equal to all others.

        Raises:
            Misuse: the function returns no module, the same one again, or another model than
                before.
        """
        if isinstance(self._model, nn.Module):
            return self._in_fp32(copied(self._model))
        module = self._called()
        require_plain(module)
        if self._built is not None and self._built() is module:
            raise Misuse(
                f"model: {self.name}() returned the same module again, which has been trained; "
                "pass the module itself, of which copies are trained"
            )
        self._built = ref(module)
        module = self._in_fp32(module)
        checksums = [float(p.detach().sum()) for p in module.parameters()]
        if self._checksums is None:
            self._checksums = checksums
        elif repr(checksums) != repr(self._checksums):  # by text, since NaN equals nothing
            raise Misuse(
                f"model: {self.name}() built another model when it was called again, so that "
                "nothing can be compared with fp32; draw the weights by torch's generator, which "
                "is seeded, or pass the module itself"
            )
        return module

    def build_fake(self) -> nn.Module:
        """The model without data, in a ``FakeTensorMode``."""
        return fake_copy(self._model) if isinstance(self._model, nn.Module) else self._called()

    def _called(self) -> nn.Module:
        return require_returned(self._model(), nn.Module, f"model: {self.name}()")

    def _in_fp32(self, module: nn.Module) -> nn.Module:
        """Convert weights in the precision's own type; another one would belie the precision."""
        for name, tensor in chain(module.named_parameters(), module.named_buffers()):
            if tensor.is_floating_point() and tensor.dtype not in {torch.float32, self._weights}:
                dtype = str(tensor.dtype).removeprefix("torch.")
                raise Misuse(
                    f"model: {name} is in {dtype}, which this precision does not have; convert it "
                    "with .float(), or request the fixture `precision` and choose one with such "
                    "weights (--precision=bf16-true, fp16-true, fp64)"
                )
        return module.float()


def require_plain(module: nn.Module) -> None:
    """Refuse a module that is wrapped or compiled already, or has no weights to train yet."""
    kind = type(module).__name__
    if isinstance(module, _WRAPPERS):
        raise Misuse(
            f"model is wrapped in {kind}; pass the module in it: on several ranks it is wrapped as "
            "distributed.parallelism says"
        )
    if isinstance(module, OptimizedModule) or module._compiled_call_impl is not None:
        raise Misuse(
            f"model ({kind}) is compiled already, or the fixture `model`; pass the module itself "
            "with model.compile=default, or measure the fixture `trainer`"
        )
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if is_lazy(tensor) or tensor.is_meta:
            raise Misuse(
                f"model: {name} has no values yet; a lazy model has some once it was called on a "
                "batch, one on the device meta once it was moved and initialised"
            )


M = TypeVar("M", bound=nn.Module)


def fake_copy(module: M) -> M:
    """A copy whose tensors have no data, in a ``FakeTensorMode``."""
    return copied(module, dict(_fakes(module)))


def copied(module: M, memo: dict[int, object] | None = None) -> M:
    """An independent copy of `module`, in which `memo` gives some copies by identity.

    Raises:
        Misuse: it cannot be copied.
    """
    try:
        copy = deepcopy(module, memo)
    except (RuntimeError, TypeError) as error:
        # Sparse rows and columns have no storage to copy; other subclasses tell of the device.
        if type(error) not in {RuntimeError, TypeError, NotImplementedError}:
            raise
        reason = error_text(error).partition("\n")[0]
        kind = type(module).__name__
        raise Misuse(
            f"model ({kind}) cannot be copied: {reason}; pass a function that builds it: "
            "lambda: MyModel()"
        ) from error
    for parameter in copy.parameters():
        if not parameter.is_leaf:  # of a scripted or traced module, as if copied by an operation
            parameter.detach_().requires_grad_()
    return copy


def _fakes(module: nn.Module) -> Iterator[tuple[int, Tensor]]:
    """Stand-ins without data for all tensors of `module`, by the identity of the original."""
    for parameter in module.parameters():
        yield id(parameter), nn.Parameter(empty_like(parameter), parameter.requires_grad)
    for part in module.modules():
        for tensor in (*part.buffers(recurse=False), *vars(part).values()):
            if isinstance(tensor, Tensor):
                yield id(tensor), empty_like(tensor)
