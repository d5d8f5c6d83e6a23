"""Bundled text: Shakespeare's *As You Like It* (``datasets/README.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.training.data._in_memory import InMemory, SampleTable, read_gzip

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from gpubench_plugin.workloads.base import Batch, Workload

_TRAINING_SHARE: Final = 0.9


class Text(InMemory):
    """Characters as tokens, in consecutive windows of the sequence length.

    There are 68 different characters, numbered by code. The last tenth of the play is held out;
    incomplete windows are dropped.

    Raises:
        UsageProblem: a window is longer than the held-out text.
    """

    def read(self, workload: Workload[Any]) -> SampleTable:
        """Windows of one extra character, so that every position has a target."""
        tokens = read_text()
        length = workload.tokens_per_sample or 64  # batch_of refuses a model without tokens
        training, held_out = np.split(tokens, [int(len(tokens) * _TRAINING_SHARE)])
        if length >= len(held_out):
            raise UsageProblem(
                f"data.source=text: samples of {length} tokens are longer than the held-out "
                f"text; allowed: model.sequence_length up to {len(held_out) - 1}"
            )
        return SampleTable((_windows(training, length),), (_windows(held_out, length),))

    def batch_of(self, workload: Workload[Any], *columns: Tensor) -> Batch:
        """Windows as a batch."""
        return workload.from_text(*columns)


def read_text() -> NDArray[np.int64]:
    """Character indices from 0 to 67."""
    codes = np.frombuffer(read_gzip("asyoulik.txt.gz").encode("ascii"), dtype=np.uint8)
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _windows(tokens: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    count = (len(tokens) - 1) // length
    return np.stack([tokens[i * length : (i + 1) * length + 1] for i in range(count)])
