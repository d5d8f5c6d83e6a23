"""The distribution of more durations than are kept: a KLL sketch, small whatever their number.

Z. Karnin, K. Lang, E. Liberty: Optimal Quantile Approximation in Streams (2016),
https://arxiv.org/abs/1603.05346, as Apache DataSketches has it. What it promises is about ranks: a
95th percentile with a rank error of 0.001 is a value between the 94.9th and the 95.1st.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import cache
from math import fsum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The library states the error that 99 % of all sketches keep to at a given rank. That is 2.58
# standard deviations; twice as many are exceeded by one sketch in four million.
_MARGIN: Final = 2
_LEAST_K: Final = 8
_MOST_K: Final = 65_535

LEAST_RANK_ERROR: Final = 1e-4
"""The smallest rank error that the library's largest sketch keeps to."""


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """`count` values of which single ones are not kept; JSON all the way.

    `least`, `most` and `total` are exact. `kll` is the library's own serialisation in base64.
    """

    count: int
    least: float
    most: float
    total: float
    rank_error: float
    kll: str

    @property
    def mean(self) -> float:
        """The mean of all values."""
        return self.total / self.count

    def quantiles(self, fractions: Sequence[float]) -> list[float]:
        """The values at these `fractions` of all, from 0 to 1, each to within `rank_error`."""
        found: list[float] = _kll(self.kll).get_quantiles(list(fractions), inclusive=True)
        return found

    def typical(self, size: int = 1000) -> list[float]:
        """`size` values in ascending order that are distributed as all of them are."""
        return self.quantiles([(at + 0.5) / size for at in range(size)])

    @classmethod
    def merged(cls, sketches: Iterable[Sketch]) -> Sketch:
        """One sketch of all values of the `sketches`, no larger than one of them."""
        parts = list(sketches)
        kll, *others = (_kll(part.kll) for part in parts)
        for other in others:
            kll.merge(other)
        return cls(
            count=sum(part.count for part in parts),
            least=min(part.least for part in parts),
            most=max(part.most for part in parts),
            total=fsum(part.total for part in parts),
            rank_error=max(part.rank_error for part in parts),
            kll=_text(kll),
        )


class Sketcher:
    """Takes values in, in batches, and sketches them.

    Args:
        rank_error: how far the rank of a quantile may be off, as a fraction of all values.
    """

    def __init__(self, rank_error: float) -> None:
        from datasketches import kll_doubles_sketch

        self._rank_error = rank_error
        self._kll = kll_doubles_sketch(size_for(rank_error))
        self._total = 0.0

    @property
    def count(self) -> int:
        """The values taken in."""
        return int(self._kll.n)

    def update(self, values: Sequence[float]) -> None:
        """Take in `values`, an array of doubles."""
        import numpy as np

        self._kll.update(np.asarray(values, dtype=np.float64))
        self._total = fsum((self._total, fsum(values)))

    @property
    def sketch(self) -> Sketch:
        """All values taken in so far, at least one."""
        return Sketch(
            count=self.count,
            least=float(self._kll.get_min_value()),
            most=float(self._kll.get_max_value()),
            total=self._total,
            rank_error=self._rank_error,
            kll=_text(self._kll),
        )


@cache
def size_for(rank_error: float) -> int:
    """The library's parameter k of the smallest sketch that keeps to `rank_error`."""
    from datasketches import kll_doubles_sketch

    low, high = _LEAST_K, _MOST_K
    while low < high:
        middle = (low + high) // 2
        error = kll_doubles_sketch.get_normalized_rank_error(middle, False)  # of single ranks
        if _MARGIN * error <= rank_error:
            high = middle
        else:
            low = middle + 1
    return low


def _kll(text: str) -> Any:
    from datasketches import kll_doubles_sketch

    return kll_doubles_sketch.deserialize(b64decode(text))


def _text(kll: Any) -> str:
    return b64encode(kll.serialize()).decode("ascii")
