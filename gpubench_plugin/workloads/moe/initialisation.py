"""Weights that are bit for bit the same on every device: drawn by integer arithmetic alone.

torch's generators differ between CPU and CUDA, so that the same seed gives other weights there.
Here an element's number is hashed with the seed; integers and one multiplication in fp32 are exact
everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final, TypeVar

import torch
from torch import Tensor

Numbers = TypeVar("Numbers", int, Tensor)

_MASK: Final = 2**32 - 1
_CHUNK: Final = 2**24
"""Elements drawn at a time: each takes 8 bytes, several times over."""


def uniform(shape: Sequence[int], *, bound: float, seed: int, stream: int, device: str) -> Tensor:
    """Values of `shape` in fp32, uniform on [-`bound`, `bound`), made on `device`.

    A `stream` is a sequence of its own under one `seed`: each weight has one, so that a rank draws
    its experts without drawing the others'. Drawing advances no generator.
    """
    count = prod(shape)
    key = _mixed(_mixed(seed & _MASK) ^ (stream & _MASK))
    values = torch.empty(count, dtype=torch.float32, device=device)
    for start in range(0, count, _CHUNK):
        end = min(start + _CHUNK, count)
        numbers = torch.arange(start, end, dtype=torch.int64, device=device)
        bits = _mixed(_mixed(numbers) ^ key) >> 8  # fp32 holds 24 bits exactly
        values[start:end] = (bits - 2**23).to(torch.float32) * (bound / 2**23)
    return values.reshape(tuple(shape))


def _mixed(numbers: Numbers) -> Numbers:
    """A bijection of 32-bit numbers, of which every output bit hangs on every input bit.

    Source: the hash lowbias32, https://nullprogram.com/blog/2018/07/31/. No product leaves a
    tensor's int64: the second multiplier is taken modulo 2**32 as a negative number.
    """
    numbers = ((numbers ^ (numbers >> 16)) * 0x7FEB352D) & _MASK
    numbers = ((numbers ^ (numbers >> 15)) * (0x846CA68B - 2**32)) & _MASK
    return numbers ^ (numbers >> 16)
