"""Layers that see one rank's batch where one process would see the global one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

_NORMALISING: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_DRAWING: Final = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


def drawn_or_normalised_per_rank(module: nn.Module) -> str | None:
    """Which layers of `module` depend on how the global batch is split; None: none of them.

    Batch normalisation takes its statistics, and dropout draws its mask, from what one rank has.
    ``SyncBatchNorm`` takes those of all ranks and is not among them. A layer of another kind says
    so itself, in an attribute ``differs_per_rank``.
    """
    found = Counter(_reasons(module))
    return "; ".join(f"{reason} ({count} layers)" for reason, count in found.items()) or None


def _reasons(module: nn.Module) -> Iterator[str]:
    for layer in module.modules():
        if isinstance(layer, _NORMALISING) and (layer.training or not layer.track_running_stats):
            # FSDP2 puts its name before that of the layer.
            name = type(layer).__name__.removeprefix("FSDP")
            yield f"{name} normalises by each rank's own batch"
        elif isinstance(layer, _DRAWING) and layer.training and layer.p > 0:
            yield f"{type(layer).__name__} draws on each rank on its own"
        elif layer.training and (said := getattr(layer, "differs_per_rank", None)):
            yield str(said)
