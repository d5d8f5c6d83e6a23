"""Streaming sketch of durations that are too many to store."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from typing import Final

from gpubench_plugin.core.records import Sketch, kll_text

# The library states the error of 99% of all sketches at a given rank, 2.58 standard deviations;
# one sketch in four million exceeds twice as many.
_MARGIN: Final = 2
# The library's own bounds of the parameter k.
_LEAST_K: Final = 8
_MOST_K: Final = 65_535

LEAST_RANK_ERROR: Final = 1e-4
"""Smallest rank error that the library's largest sketch guarantees."""


class Sketcher:
    """Sketches values in batches.

    `rank_error` bounds the error of a quantile's rank, as a fraction of all values. Without
    datasketches (the extra ``sketch``) there are no quantiles.
    """

    def __init__(self, rank_error: float) -> None:
        try:
            from datasketches import kll_doubles_sketch
        except ImportError:
            self._kll = None
        else:
            self._kll = kll_doubles_sketch(size_for(rank_error))
        self._rank_error = rank_error
        self.count = 0
        self._least, self._most, self._total = math.inf, -math.inf, 0.0

    def update(self, values: Sequence[float]) -> None:
        """Add `values`, an array of doubles."""
        import numpy as np

        array = np.asarray(values, dtype=np.float64)
        if self._kll is not None:
            self._kll.update(array)
        self.count += len(array)
        self._least = min(self._least, float(array.min()))
        self._most = max(self._most, float(array.max()))
        self._total = math.fsum((self._total, math.fsum(values)))

    @property
    def sketch(self) -> Sketch:
        """Sketch of all values so far, at least one."""
        return Sketch(
            count=self.count,
            least=self._least,
            most=self._most,
            total=self._total,
            rank_error=self._rank_error,
            kll="" if self._kll is None else kll_text(self._kll),
        )


@cache
def size_for(rank_error: float) -> int:
    """Smallest KLL parameter k with at most `rank_error`."""
    from datasketches import kll_doubles_sketch

    def suffices(k: int) -> bool:
        error: float = kll_doubles_sketch.get_normalized_rank_error(k, False)  # of single ranks
        return _MARGIN * error <= rank_error

    return _LEAST_K + bisect_left(range(_LEAST_K, _MOST_K), True, key=suffices)
