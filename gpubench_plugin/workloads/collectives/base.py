"""Collective base class: input, expected output, and counted bytes.

Size, algorithm bandwidth and bus bandwidth are those of nccl-tests, whose document derives the
factors: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Final

import torch
from torch import Tensor

from gpubench_plugin.core.errors import Unsupported

_ALIGNMENT_BYTES: Final = 16
"""As in nccl-tests."""
_LONGEST_PERIOD: Final = 4093
"""The largest prime below 4096: sums over 4096 ranks stay below 2**24, exact in fp32."""

_EXACT: Final = {torch.float32: 2**24, torch.float16: 2**11, torch.bfloat16: 2**8}
"""Up to this number each dtype represents all integers."""


class Collective(ABC):
    """One collective of `world_size` ranks, as seen from `rank`.

    The message of `size_bytes` is the largest buffer of a rank: the output of an all-gather, the
    input of a reduce-scatter. As in nccl-tests it is rounded down to :attr:`parts` equal parts of a
    multiple of 16 bytes.

    Raises:
        Unsupported: the message is too small for that, or sums over the ranks are not exact in
            `dtype`.
    """

    name: ClassVar[str]
    """Name for the user: ``all-reduce`` for the module ``all_reduce``."""

    in_place: ClassVar[bool] = False
    """Whether the output replaces the input, in one buffer."""

    output_grows: ClassVar[bool] = False
    """Whether a call adds to the output of the call before: then zeros are timed."""

    reduces: ClassVar[bool] = False
    """Whether the output is a sum over the ranks."""

    whole: ClassVar[bool] = False
    """Whether the message is one part, instead of one per rank."""

    def __init__(
        self,
        *,
        rank: int,
        world_size: int,
        size_bytes: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ):
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self.dtype = dtype
        self._period = self._longest_period()
        aligned = size_bytes // self.parts // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES
        self.part = aligned // dtype.itemsize
        if self.part == 0:
            min_bytes = self.parts * _ALIGNMENT_BYTES
            raise Unsupported(
                f"{self.name} of {size_bytes} bytes: {world_size} ranks need at least "
                f"{min_bytes} bytes"
            )

    @property
    def parts(self) -> int:
        """Number of equal parts of the message."""
        return 1 if self.whole else self.world_size

    @property
    def count(self) -> int:
        """Elements of the message; :attr:`part` counts those of one part."""
        return self.parts * self.part

    @property
    def size_bytes(self) -> int:
        """Message size for the algorithm bandwidth."""
        return self.count * self.dtype.itemsize

    @property
    def bus_factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth, as in nccl-tests.

        By default an element of a whole message crosses one link, and of n parts n - 1 cross one.
        """
        return 1.0 if self.whole else (self.world_size - 1) / self.world_size

    def make_input(self) -> Tensor:
        """Input of this rank: a new buffer, by default a whole message."""
        return self.values(self.rank, count=self.count)

    @abstractmethod
    def expected_output(self) -> Tensor:
        """Expected output of this rank, computed without communication."""

    @abstractmethod
    def run(self, send_buffer: Tensor, recv_buffer: Tensor) -> None:
        """Run the collective (hot path); in place, both are the same buffer."""

    def values(self, *ranks: int, start: int = 0, count: int) -> Tensor:
        """Elements of the sum of the inputs of `ranks`, from `start` on.

        Element i of rank r is (i + 1)·(r + 1) modulo a prime: it differs between ranks and between
        neighbouring elements, so that a missing, doubled or misplaced contribution shows. Sums over
        many ranks in 16 bits need a small prime; ranks that differ by a multiple of it are equal.
        """
        length = self._period
        period = torch.zeros(length, dtype=torch.int64)
        numbers = torch.arange(start + 1, start + 1 + length)
        for rank in ranks:
            period += numbers * (rank + 1) % length
        repetitions = -(-count // length)
        return period.to(self.device, self.dtype).repeat(repetitions)[:count]

    def concatenated(self, chunks: Iterable[Tensor]) -> Tensor:
        """Concatenate the `chunks` of a message while holding only one at a time."""
        result = torch.empty(self.count, dtype=self.dtype, device=self.device)
        end = 0
        for chunk in chunks:
            result[end : end + chunk.numel()] = chunk
            end += chunk.numel()
        return result

    def _longest_period(self) -> int:
        """Largest prime period for which all values and sums are exact in the dtype."""
        summands = self.world_size if self.reduces else 1
        max_value = min(_EXACT[self.dtype] // summands, _LONGEST_PERIOD)
        if max_value < 2:
            raise Unsupported(
                f"{self.name}: sums over {self.world_size} ranks are not exact in "
                f"{self.dtype}; measure it in fp32, since only the number of bytes matters"
            )
        return next(n for n in range(max_value, 1, -1) if all(n % k for k in range(2, n // 2 + 1)))


BASE = Collective
