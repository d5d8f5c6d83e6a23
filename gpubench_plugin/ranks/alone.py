"""One rank that exchanges nothing, of a benchmark that uses no torch. Imports none."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from gpubench_plugin.environment.devices import host
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.ranks.control_plane import ControlPlane
from gpubench_plugin.ranks.world import World

if TYPE_CHECKING:
    import torch
    from torch.distributed.distributed_c10d import Store


@dataclass(frozen=True, kw_only=True)
class Alone:
    """What a process group is to a single rank.

    Only the type of its `device` may be read, and it sends nothing by `control`.
    """

    world: World = field(default_factory=World)
    device: torch.device = field(default_factory=lambda: cast("torch.device", host()))
    agreement: RankAgreement = field(default_factory=RankAgreement)

    @property
    def control(self) -> ControlPlane:
        """Messages to nobody."""
        return ControlPlane(cast("Store", None), self.world, timeout=timedelta(0))
