"""What a collective is: what a rank gives, what it must receive, and which bytes count.

Size, algorithm bandwidth and bus bandwidth are those of nccl-tests, whose document derives the
factors: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Final

import torch
from torch import Tensor

from gpubench_plugin.errors import Unsupported

_ALIGNMENT_BYTES: Final = 16
_LONGEST_PERIOD: Final = 4093
"""The largest prime below 4096: sums of as many ranks' values stay below 2**24, exact in fp32."""

_EXACT: Final = {torch.float32: 2**24, torch.float16: 2**11, torch.bfloat16: 2**8}
"""Up to which number each type has all integers."""


class Collective(ABC):
    """One collective of `world_size` ranks, as `rank` takes part in it.

    The message of `size_bytes` is the largest buffer of a rank: of an all-gather what is received,
    of a reduce-scatter what is given. As in nccl-tests it is cut down to :attr:`parts` equal parts
    of whole 16 bytes.

    Raises:
        Unsupported: the message is too small for that, or there are too many ranks for their sums
            to be exact in `dtype`.
    """

    name: ClassVar[str]
    """What the user writes, ``all-reduce`` for the module ``all_reduce``."""

    in_place: ClassVar[bool] = False
    """Whether what is received replaces what is given, in one buffer."""

    grows: ClassVar[bool] = False
    """Whether a call adds to the result of the call before: then zeros are timed."""

    sums: ClassVar[bool] = False
    """Whether what is received is a sum over the ranks."""

    whole: ClassVar[bool] = False
    """Whether the message stays whole, instead of having a part for each rank."""

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
            least = self.parts * _ALIGNMENT_BYTES
            raise Unsupported(
                f"{self.name} of {size_bytes} bytes: {world_size} ranks need at least {least}"
            )

    @property
    def parts(self) -> int:
        """The number of equal parts in the message."""
        return 1 if self.whole else self.world_size

    @property
    def count(self) -> int:
        """The elements of the message; :attr:`part` counts those of a part."""
        return self.parts * self.part

    @property
    def size_bytes(self) -> int:
        """The bytes that algorithm bandwidth counts."""
        return self.count * self.dtype.itemsize

    @property
    @abstractmethod
    def bus_factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth: the load of the busiest rank's link per byte."""

    def given(self) -> Tensor:
        """What this rank gives: a new buffer of :meth:`values`, here a whole message."""
        return self.values(self.rank, count=self.count)

    @abstractmethod
    def expected(self) -> Tensor:
        """What this rank must have received, computed without the other ranks."""

    @abstractmethod
    def run(self, given: Tensor, received: Tensor) -> None:
        """The collective itself: the hot path. In place, both are the same buffer."""

    def values(self, *ranks: int, start: int = 0, count: int) -> Tensor:
        """Elements `start` to `start` + `count` of the sum of what the `ranks` have to give.

        Element i of rank r is (i + 1)·(r + 1) modulo a prime: it differs between ranks, and between
        an element and its neighbours, so that no contribution can be missing, doubled or elsewhere
        unnoticed. Where a sum of many ranks in a 16-bit type leaves room for a small prime only,
        ranks whose numbers differ by a multiple of it give the same.
        """
        length = self._period
        period = torch.zeros(length, dtype=torch.int64)
        numbers = torch.arange(start + 1, start + 1 + length)
        for rank in ranks:
            period += numbers * (rank + 1) % length
        repetitions = -(-count // length)
        return period.to(self.device, self.dtype).repeat(repetitions)[:count]

    def joined(self, pieces: Iterable[Tensor], *, count: int) -> Tensor:
        """The `pieces` one after another, each dropped before the next is made."""
        whole = torch.empty(count, dtype=self.dtype, device=self.device)
        end = 0
        for piece in pieces:
            whole[end : end + piece.numel()] = piece
            end += piece.numel()
        return whole

    def _longest_period(self) -> int:
        """The largest prime for which every value, or sum of values, is exact in the type."""
        summed = self.world_size if self.sums else 1
        most = min(_EXACT[self.dtype] // summed, _LONGEST_PERIOD)
        if most < 2:
            raise Unsupported(
                f"{self.name}: sums over {self.world_size} ranks are not exact in {self.dtype}; "
                "measure it in fp32, of which only the bytes matter"
            )
        return next(n for n in range(most, 1, -1) if all(n % k for k in range(2, n // 2 + 1)))


BASE = Collective
