"""Weak and strong scaling: whether a rank's batch or the batch of all ranks is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from gpubench_plugin.config import problems
from gpubench_plugin.config.layers import merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config.layers import Key, Layer, Merged
    from gpubench_plugin.config.sections import Configuration

_WHOLE: Final = ("data", "global_batch_size")
_PART: Final = ("training", "batch_size")
_SCALING: Final = ("distributed", "scaling")


def scaled(
    configuration: Configuration[Any], stated: Sequence[Layer], merged: Merged
) -> Configuration[Any]:
    """The `configuration` with its kind of scaling, and with each rank's share of a global batch.

    Raises:
        UsageProblem: the global batch cannot be shared evenly, or one of the layers `stated`
            gives a batch size beside it, or a kind of scaling that it is not.
    """
    whole = configuration.data.global_batch_size
    kind: Literal["weak", "strong"] = "weak" if whole is None else "strong"
    _refuse_other_scaling(kind, merged)
    if whole is None:
        return configuration
    share = _share(whole, configuration, merged)
    _refuse_other_batch(share, stated, merged)
    training = configuration.training.model_copy(update={"batch_size": share})
    distributed = configuration.distributed.model_copy(update={"scaling": kind})
    return configuration.model_copy(update={"training": training, "distributed": distributed})


def _share(whole: int, configuration: Configuration[Any], merged: Merged) -> int:
    """Samples per batch and rank: a step takes one batch, or accumulates several."""
    ranks, batches = configuration.distributed.world_size, configuration.training.accumulation_steps
    share, rest = divmod(whole, ranks * batches)
    if rest:
        each = f" with {batches} accumulated batches each" if batches > 1 else ""
        problem = f"{whole} does not divide among {ranks} ranks{each}"
        raise problems.at(merged, _WHOLE, f"{problem}; allowed: a multiple of {ranks * batches}")
    return share


def _refuse_other_scaling(kind: str, merged: Merged) -> None:
    said = merged.get(_SCALING)
    if said not in (None, kind):
        chosen = f"{problems.shown(kind)}, which data.global_batch_size chooses"
        raise problems.at(merged, _SCALING, f"{problems.shown(said)} contradicts {chosen}")


def _refuse_other_batch(share: int, stated: Sequence[Layer], merged: Merged) -> None:
    """A global batch replaces a batch size said before it, but not one said with or after it."""
    given = merged.get(_PART)
    if given in (None, share) or _last(_PART, stated) < _last(_WHOLE, stated):
        return
    problem = f"{given} beside data.global_batch_size {merged.get(_WHOLE)}"
    allowed = f"allowed: {share}, or null for data.global_batch_size"
    raise problems.at(merged, _PART, f"{problem} ({merged.source(_WHOLE)}); {allowed}")


def _last(key: Key, layers: Sequence[Layer]) -> int:
    """The number of the last layer that says `key`; -1 if none does."""
    says = [n for n, layer in enumerate(layers) if merge([layer]).get(key) is not None]
    return says[-1] if says else -1
