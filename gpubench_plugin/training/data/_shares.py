"""Which samples a rank has, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]

_HELD_OUT: Final = 0.2
"""The share of rows held out of a table that has no test part of its own."""

_SPLIT_SEED: Final = 20_260_101
"""Of the shuffling that chooses them. Files are sorted in their ways: every n-th row would do
worse, since digits are written down in turns."""


def held_out_rows(count: int) -> tuple[Indices, Indices]:
    """The rows to train on, and those held out: the same in every run, whatever its seed."""
    shuffled = np.random.default_rng(_SPLIT_SEED).permutation(count)
    held_out = int(count * _HELD_OUT)
    return np.sort(shuffled[held_out:]), np.sort(shuffled[:held_out])


def require_enough(count: int, *, world_size: int, of: str) -> None:
    """Refuse samples `of` something that do not give every rank one.

    Raises:
        UsageProblem: there are fewer than ranks.
    """
    if count < world_size:
        raise UsageProblem(
            f"{of}: {count} samples are too few for {world_size} ranks; allowed: at most {count} "
            "ranks"
        )


def epoch_of(
    count: int,
    *,
    batch_size: int,
    world_size: int,
    rank: int,
    seed: int,
    epoch: int = 0,
) -> Indices:
    """A rank's samples of one pass over the data, a multiple of `batch_size`.

    The ranks take turns in dealing themselves samples of a shuffled row and hold equally many, so
    that their batches together are those of one process with the global batch. A remainder of
    fewer samples than ranks is left out. The last batch is filled up from the beginning.
    """
    shuffled = np.random.default_rng((seed, epoch)).permutation(count)
    own = shuffled[rank::world_size][: count // world_size]
    steps = steps_of(count, batch_size=batch_size, world_size=world_size)
    return np.resize(own, steps * batch_size)


def steps_of(count: int, *, batch_size: int, world_size: int) -> int:
    """Batches of a rank in one pass over the data."""
    return -(-(count // world_size) // batch_size)


def held_out_of(count: int, *, batch_size: int, world_size: int, rank: int) -> list[Indices]:
    """A rank's share of `count` held-out samples, in batches; every rank has equally many batches.

    Each sample belongs to one rank, unless there are fewer samples than ranks: then all belong to
    every rank, which leaves means as they are.
    """
    rows = np.arange(count)
    if count < world_size:
        rank, world_size = 0, 1
    most, least = -(-count // world_size), count // world_size
    batches = max(1, min(-(-most // batch_size), least))
    return np.array_split(rows[rank::world_size], batches)
