"""Where the level of a history changes; for the report on a main branch, never for a gate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

FEWEST: Final = 8
"""Values without which no change point is looked for."""

_LEVEL: Final = 3
_FLOOR: Final = 0.001
_PENALTY: Final = 7.0


def change_points(values: Sequence[float]) -> list[int]:
    """The positions in `values`, oldest first, at which a new level begins.

    PELT (Killick, Fearnhead, Eckley 2012; `ruptures`) with the squared error of the logarithms and
    a penalty per change point of 7·ln(n)·s² for n values of noise s. The usual 2·ln(n)·s² (Yao
    1988) takes the noise for known; here it is an estimate, and a poor one of a short history. With
    seven about 2 % of flat histories of 8 runs are flagged and under 1 % of those of 60. A level is
    three values long at least, so that one slow run is none. Nothing here is random.

    The noise is the median absolute difference of neighbours, which a change of level hardly moves,
    and never taken for less than 0.1 %. Single values far out are pulled to three noises from the
    median of their neighbourhood of five. Values that are not positive are left out. Of fewer than
    eight values there are no change points.
    """
    fit = [position for position, value in enumerate(values) if math.isfinite(value) and value > 0]
    if len(fit) < FEWEST:
        return []
    import numpy as np
    from ruptures import KernelCPD

    logs = np.log([values[position] for position in fit])
    noise = max(_noise(logs), _FLOOR)
    scaled = _tamed(logs / noise)
    search = KernelCPD(kernel="linear", min_size=_LEVEL).fit(scaled.reshape(-1, 1))
    ends = search.predict(pen=_PENALTY * math.log(len(fit)))
    return [fit[end] for end in ends[:-1]]


def _noise(logs: NDArray[float64]) -> float:
    import numpy as np

    # 1.4826 makes the median absolute deviation that of a normal distribution; a difference has
    # the noise of two values.
    return float(np.median(np.abs(np.diff(logs))) * 1.4826 / math.sqrt(2))


def _tamed(scaled: NDArray[float64]) -> NDArray[float64]:
    import numpy as np

    around = np.lib.stride_tricks.sliding_window_view(np.pad(scaled, 2, mode="edge"), 5)
    middle = np.median(around, axis=1)
    return np.clip(scaled, middle - 3, middle + 3)
