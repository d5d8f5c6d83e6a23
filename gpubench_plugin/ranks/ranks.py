"""This process as a rank: its world, and its process group or none. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from gpubench_plugin.environment.devices import host
from gpubench_plugin.environment.redaction import recorded_variables
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.ranks.control_plane import ControlPlane
from gpubench_plugin.ranks.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch.distributed.distributed_c10d import Store

    from gpubench_plugin.ranks.process_group import ProcessGroup


OPERATIONS: Final = 1000
"""Control operations reserved per test, which starts at a multiple; a benchmark has fewer."""


@dataclass(frozen=True, kw_only=True)
class Alone:
    """What a process group is to a single rank of a benchmark that uses no torch.

    Only the type of its `device` may be read, and it sends nothing by `control`.
    """

    world: World = field(default_factory=World)
    device: torch.device = field(default_factory=lambda: cast("torch.device", host()))
    agreement: RankAgreement = field(default_factory=RankAgreement)

    @property
    def control(self) -> ControlPlane:
        """Messages to nobody."""
        return ControlPlane(cast("Store", None), self.world, timeout=timedelta(0))


class RankSession:
    """The world from torchrun's environment, with one process group per session."""

    def __init__(self, environment: Mapping[str, str]):
        self.world = World.from_environment(environment)
        self._environment = environment
        self._group: ProcessGroup | None = None
        self._key: tuple[str, torch.device, bool] | None = None
        self._operation = 1

    @cached_property
    def variables(self) -> dict[str, str]:
        """The recorded variables when the first benchmark is set up.

        What libraries set when a later test imports them would depend on the tests before.
        """
        return recorded_variables(self._environment)

    @property
    def started_world_size(self) -> int | None:
        """Number of ranks if several were started; else None."""
        return None if self.world.size == 1 else self.world.size

    def process_group(
        self, backend: str, device: torch.device, *, shares_device: bool = False
    ) -> ProcessGroup:
        """The group for that configured backend and device; replaces another one.

        With `shares_device`, all ranks of this host use one device.
        """
        from gpubench_plugin.ranks.process_group import ProcessGroup

        key = backend, device, shares_device
        # Several ranks must replace it together, see `is_healthy`.
        if self.world.size == 1 and self._group is not None and not self._group.is_joined:
            self.close()
        if self._group is None or self._key != key:
            self.close()
            self._group = ProcessGroup(
                self.world, device=device, backend=backend, shares_device=shares_device
            )
            self._key = key
            self._group.control.resynchronize(self._operation)
        return self._group

    def is_healthy(self, timeout_s: float) -> bool:
        """Whether the ranks can still communicate, if they joined a group."""
        return self._group is None or self._group.is_healthy(timeout_s)

    def renew(self) -> bool:
        """Replace the current group by a new one, if possible; every rank must call it."""
        if self._group is None or self._key is None:
            return True
        if not self._group.is_replaceable:
            return False
        backend, device, shares_device = self._key
        self.close()
        self.process_group(backend, device, shares_device=shares_device)
        return True

    def resynchronize(self, number: int) -> None:
        """Resynchronize control messages before test `number`."""
        self._operation = number * OPERATIONS
        if self._group is not None:
            self._group.control.resynchronize(self._operation)

    def announce(self, number: int, location: str) -> None:
        """Mark test `number` as finished on this rank, so that peers stop waiting for it."""
        if self._group is not None:
            self._group.control.resynchronize((number + 1) * OPERATIONS - 1)
            self._group.control.announce(location)

    def close(self) -> None:
        """Destroy the group, if there is one."""
        if self._group is not None:
            self._group.close()
            self._group = None
