"""What stands before every latent image that is sent: gloo itself detects no mismatch.

A tensor too short for what waits for it arrives without a word, one of another type as garbage,
and one too long ends the process. So a header of fixed size comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import torch

if TYPE_CHECKING:
    from torch import Tensor

LENGTH: Final = 16
"""Numbers of a header, of 8 bytes each."""

_MAGIC: Final = 0x6770_7562_656E_6368  # "gpubench"
_FIXED: Final = 8
_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a message is: which `sample`, after which steps, what tensor, from and to which rank.

    `call` counts the calls of the pipeline, `step` is the one that is to be done next.
    """

    call: int
    sample: int
    step: int
    sender: int
    receiver: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def encoded(self) -> Tensor:
        """The header as `LENGTH` integers."""
        shape = (*self.shape, *([0] * (LENGTH - _FIXED - len(self.shape))))
        return torch.tensor(
            (
                _MAGIC,
                self.call,
                self.sample,
                self.step,
                self.sender,
                self.receiver,
                _DTYPES.index(self.dtype),
                len(self.shape),
                *shape,
            )
        )

    @classmethod
    def decoded(cls, numbers: Tensor) -> Self | None:
        """The header that was :meth:`encoded`; None of `numbers` that are no header."""
        magic, call, sample, step, sender, receiver, dtype, ndim, *shape = numbers.tolist()
        if magic != _MAGIC or not (0 <= dtype < len(_DTYPES) and 0 <= ndim <= len(shape)):
            return None
        return cls(
            call=call,
            sample=sample,
            step=step,
            sender=sender,
            receiver=receiver,
            dtype=_DTYPES[dtype],
            shape=tuple(shape[:ndim]),
        )

    def __str__(self) -> str:
        dtype, shape = str(self.dtype).removeprefix("torch."), "x".join(map(str, self.shape))
        return (
            f"sample {self.sample} before step {self.step} (call {self.call}) as {dtype} {shape} "
            f"from rank {self.sender} for rank {self.receiver}"
        )
