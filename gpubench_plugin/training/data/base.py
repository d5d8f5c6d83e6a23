"""Base class of data sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gpubench_plugin.errors import Unsupported, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

    from gpubench_plugin.config import DataSection
    from gpubench_plugin.workloads import Batch, Workload

Convert = Callable[["Batch"], "Batch"]


def identity(batch: Batch) -> Batch:
    """Identity, for precisions that do not convert inputs."""
    return batch


class DataSource(ABC, Iterator["Batch"]):
    """Endless iterator over one rank's batches on the device.

    `workload` says how samples become inputs, `convert` casts them for the precision: both run
    once, here, and never while something is timed, unless loading is what is timed. Equal
    arguments give equal batches.
    """

    steps_per_epoch: int | None = None
    """Batches in one pass over the data; None where the data have no end."""

    def __init__(
        self,
        workload: Workload[Any],
        *,
        batch_size: int,
        device: torch.device,
        world_size: int = 1,
        rank: int = 0,
        seed: int = 0,
        convert: Convert = identity,
    ):
        self.batch_size = batch_size
        self._workload = workload
        self._device = device
        self._world_size = world_size
        self._rank = rank
        self._seed = seed
        self._convert = convert
        self._share = {"batch_size": batch_size, "world_size": world_size, "rank": rank}
        self._open()

    def _open(self) -> None:
        """Make ready what the first batch needs; the arguments are attributes of the same names."""

    @classmethod
    def from_section(
        cls, section: DataSection, workload: Workload[Any], **arguments: Any
    ) -> DataSource:
        """Build the source configured in section ``data``; `arguments` go to the class.

        Raises:
            UsageProblem: a key that only a source with a loader reads.
        """
        loaders = {
            "path": section.path,
            "workers": section.workers or None,
            "pin_memory": section.pin_memory,
        }
        for key, value in loaders.items():
            if value is not None:
                raise UsageProblem(
                    f"data.{key}={value}: not used by data.source={section.source}; only "
                    "data.source=images reads it"
                )
        return cls(workload, **arguments)

    @abstractmethod
    def __next__(self) -> Batch:
        """The next `batch_size` samples."""

    @abstractmethod
    def fixed_batch(self) -> Batch:
        """A constant batch for checks."""

    def held_out(self) -> Iterable[Batch]:
        """This rank's share of held-out samples; none by default.

        Every rank has equally many batches; they may be smaller than those to train on.
        """
        return ()

    def restart(self) -> None:
        """Restart from the first batch.

        Raises:
            Unsupported: the source cannot.
        """
        raise Unsupported(f"{type(self).__name__}: this data source cannot restart")

    def description(self) -> Mapping[str, object]:
        """JSON description for the record; empty by default."""
        return {}

    def close(self) -> None:
        """Release processes and files; the source cannot be used afterwards."""


BASE = DataSource
