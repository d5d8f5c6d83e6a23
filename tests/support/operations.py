"""Operations of torch that a test runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no types here
        self.counts: Counter[str] = Counter()

    @property
    def readings(self) -> int:
        """Times that a value was read from the device."""
        return self.counts["_local_scalar_dense"]

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))
