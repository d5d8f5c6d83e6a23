"""Base class of data sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gpubench_plugin.core.errors import Unsupported, UsageProblem

if TYPE_CHECKING:
    import torch

    from gpubench_plugin.config.sections import DataSection, TrainingSection
    from gpubench_plugin.workloads.base import Batch, Workload

NO_EPOCHS: Final = "this data source has no epochs; use training.steps, or data.source=digits"
NOTHING_HELD_OUT: Final = (
    "this data source has no held-out samples for evaluation; allowed: data.source=digits, "
    "diabetes, text, or images with a test part"
)
Convert = Callable[["Batch"], "Batch"]


class DataSource(ABC, Iterator["Batch"]):
    """Endless iterator over one rank's batches on the device.

    `workload` turns samples into inputs, `convert` casts them for the precision: on construction,
    unless a loader runs during timing. Equal arguments give equal batches. `section` is ``data``.

    Raises:
        UsageProblem: a key that only a source with a loader reads is set.
    """

    is_endless: ClassVar[bool] = False
    """Whether it makes up its batches: then it has no epochs, and holds nothing out."""

    steps_per_epoch: int | None = None
    """Batches per epoch; None for endless data."""

    def __init__(
        self,
        workload: Workload[Any],
        *,
        batch_size: int,
        device: torch.device,
        world_size: int = 1,
        rank: int = 0,
        seed: int = 0,
        convert: Convert = lambda batch: batch,
        section: DataSection | None = None,
    ):
        if section is not None and (reason := self.refusal(section)):
            raise UsageProblem(reason)
        self.batch_size = batch_size
        self._workload = workload
        self._device = device
        self._world_size = world_size
        self._rank = rank
        self._seed = seed
        self._convert = convert
        self._section = section
        self._share = {"batch_size": batch_size, "world_size": world_size, "rank": rank}
        self._open()

    def _open(self) -> None:
        """Prepare for the first batch; the arguments are private attributes."""

    @classmethod
    def refusal(cls, section: DataSection) -> str:
        """Reason why it cannot be opened as configured, found without reading; empty if none."""
        for key in ("path", "workers", "pin_memory"):
            value = getattr(section, key)
            if value is not None and (key, value) != ("workers", 0):
                return (
                    f"data.{key}={value}: not used by data.source={section.source}; only "
                    "data.source=images reads it"
                )
        return ""

    @classmethod
    def training_refusal(cls, training: TrainingSection) -> str:
        """Reason why it cannot be trained on as configured; empty if none is known yet."""
        if cls.is_endless and training.epochs is not None:
            return f"training.epochs={training.epochs}: {NO_EPOCHS}"
        if cls.is_endless and training.evaluate:
            return f"training.evaluate=true: {cls.__name__}: {NOTHING_HELD_OUT}"
        return ""

    @abstractmethod
    def __next__(self) -> Batch:
        """The next `batch_size` samples."""

    @abstractmethod
    def fixed_batch(self) -> Batch:
        """A constant batch for checks."""

    def held_out(self) -> Iterable[Batch]:
        """This rank's share of held-out samples; none by default.

        Every rank has equally many batches, which may be smaller than training batches.
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
