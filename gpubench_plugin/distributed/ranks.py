"""This process as one rank of a session: its world, and the process group while it is needed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from gpubench_plugin.distributed.world import World
from gpubench_plugin.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from gpubench_plugin.distributed.process_group import ProcessGroup


OPERATIONS: Final = 1000
"""More control messages than one benchmark exchanges; each begins with a number of its own."""


class Ranks:
    """The world from torchrun's environment, and one process group kept for the session."""

    def __init__(self, environment: Mapping[str, str]):
        self.world = World.from_environment(environment)
        self._group: ProcessGroup | None = None
        self._operation = 1

    @property
    def started(self) -> int | None:
        """The number of ranks if several have been started; else the world is still to be made."""
        return None if self.world.size == 1 else self.world.size

    def process_group(
        self, backend: str, device: torch.device, *, shared: bool = False
    ) -> ProcessGroup:
        """The group with that backend; another backend than before closes the earlier group.

        With `shared`, all ranks of this host are on that one device.
        """
        from gpubench_plugin.distributed.process_group import ProcessGroup, backend_for

        wanted = backend_for(device, backend, shared=shared)
        key = wanted, device, shared
        # Of several ranks all must replace it together: see `is_sound`.
        lost = self.world.size == 1 and self._group is not None and not self._group.is_joined
        if self._group is None or self._group.key != key or lost:
            self.close()
            self._group = ProcessGroup(self.world, device=device, backend=wanted, shared=shared)
            self._group.control.skip_to(self._operation)
        return self._group

    def is_sound(self, within_s: float) -> bool:
        """Whether the ranks still exchange what they should, if they have joined a group."""
        return self._group is None or self._group.is_sound(within_s)

    def renew(self) -> bool:
        """Replace the group there is by a fresh one; whether that could be done.

        Every rank must call it, or its exchange with the others fails.
        """
        if self._group is None:
            return True
        if not self._group.is_replaceable:
            return False
        backend, device, shared = self._group.key
        self.close()
        self.process_group(backend, device, shared=shared)
        return True

    @property
    def group(self) -> ProcessGroup:
        """The group that was last asked for."""
        if self._group is None:
            raise RuntimeError("no process group was joined")
        return self._group

    def meet(self, number: int) -> None:
        """Before the test with that number: the ranks agree on where their control messages are."""
        self._operation = number * OPERATIONS
        if self._group is not None:
            self._group.control.skip_to(self._operation)

    def arrive(self, number: int, place: str) -> None:
        """After the test with that number: who still waits for this rank in it waits in vain."""
        if self._group is not None:
            self._group.control.skip_to((number + 1) * OPERATIONS - 1)
            self._group.control.arrive(place)

    def leave(self) -> None:
        """Wait until every rank is about to leave, then close the group.

        Rank zero keeps the store of a gang, so it must go last. The gang's controller ends ranks
        that wait here in vain.
        """
        try:
            if self._group is not None:
                self._group.control.wait_for_all("leave")
        except MeasurementError as error:
            sys.stderr.write(f"gpubench: {error}\n")
        finally:
            self.close()

    def close(self) -> None:
        """Destroy the group, if there is one."""
        if self._group is not None:
            self._group.close()
            self._group = None
