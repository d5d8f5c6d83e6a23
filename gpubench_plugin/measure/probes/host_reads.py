"""Reads of a device by the host in a call of a step: each makes the host wait for the device.

On a CPU those are counted that would be reads of an accelerator.
"""

from __future__ import annotations

import re
from traceback import FrameSummary
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gpubench_plugin.measure.probes.places import of_user, owner_of, places_here

# Functions of tensors that read one, whatever operations they call.
_FUNCTIONS: Final = ("__array__", "__format__", "__repr__", "cpu", "numpy", "tolist")
_NAMED_CPU: Final = re.compile(r"""["']cpu\b""")
# Frames that load data, or read the number of an optimizer's step.
_ON_CPU: Final = re.compile(r"/torch/utils/data/|/training/data/|/torch/optim/.* _get_value$")
# Operations whose result, or the size of it, the host must know; and those with a mask for indices.
_SIZES: Final = frozenset({
    "allclose", "bincount", "equal", "masked_select", "nonzero", "_linalg_check_errors",
    "_unique", "_unique2", "unique_consecutive", "unique_dim", "unique_dim_consecutive",
})  # fmt: skip
_INDEXING: Final = ("index", "index_put", "index_put_", "_index_put_impl_")
_SIZE_BYTES: Final = 8


class HostReads(TorchFunctionMode):
    """Counts reads of tensors on `device` while it is active, and given all operations.

    `reads` are those for which the host waits: places and bytes. What torch's optimizers read of
    the numbers of their steps, and what it reads to load data, is on the CPU anyway, as is what
    gpubench reads.
    """

    def __init__(self, device: torch.device):
        super().__init__()
        self.reads: list[tuple[FrameSummary, int]] = []
        self._device = device.type

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        count, name = len(self.reads), getattr(func, "__name__", "")
        result = func(*args, **kwargs)
        if name == "one_hot" and self._device == "cpu":  # it checks classes on the CPU alone
            classes = kwargs.get("num_classes", -1) if len(args) < 2 else args[1]
            del self.reads[count + (classes == -1) :]
        # In .to(device) it is the CPU only because the benchmark runs there.
        line = getattr(self._place(), "line", "") if name == "to" and self._device == "cpu" else ""
        if name in _FUNCTIONS or _NAMED_CPU.search(line or ""):
            del self.reads[count:]  # of operations that are part of it
            self._add(args[0], args[0].nbytes)
        return result

    def count(self, op: Any, args: Any, kwargs: Any) -> None:
        """Count an operation, if it is a read."""
        name = op.overloadpacket.__name__
        is_copy = self._device != "cpu" and name in ("copy_", "_to_copy")
        if name == "_local_scalar_dense":  # item(), float() and the like, a branch on a tensor
            self._add(args[0], args[0].element_size())
        elif name in _SIZES or (name == "repeat_interleave" and not kwargs.get("output_size")):
            self._add(args[0], _SIZE_BYTES)
        elif name in _INDEXING and (name == "index" or args[2].numel() != 1):  # else it is a fill
            for index in args[1]:
                if index is not None and index.dtype in (torch.bool, torch.uint8):
                    self._add(index, _SIZE_BYTES)
        elif is_copy and not (kwargs.get("non_blocking") or args[2:3] == (True,)):
            target = args[0].device if name == "copy_" else kwargs.get("device")
            if str(target) == "cpu":
                self._add(args[name == "copy_"], args[name == "copy_"].nbytes)

    def _add(self, source: object, size: int) -> None:
        on_device = isinstance(source, Tensor) and source.device.type == self._device
        if on_device and (place := self._place()) is not None:
            self.reads.append((place, size))

    def _place(self) -> FrameSummary | None:
        """Innermost place of the user; of a gradient scaler or the like that gpubench calls, its.

        None of what is left out.
        """
        places = [*places_here()]
        names = (f"{place.filename} {place.name}" for place in places)
        if self._device == "cpu" and any(map(_ON_CPU.search, names)):
            return None
        of_torch = (place for place in reversed(places) if owner_of(place) == "torch")
        return of_user(places) or next(of_torch, None)
