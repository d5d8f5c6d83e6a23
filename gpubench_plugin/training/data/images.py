"""User-provided images through a DataLoader; nothing is downloaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gpubench_plugin.config.sections import DataSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.training.data._image_files import ALLOWED, read_images
from gpubench_plugin.training.data._loading import Loader, held_out_of, read_batch, require_enough
from gpubench_plugin.training.data.base import DataSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from gpubench_plugin.workloads.base import Batch, Workload


class Images(DataSource):
    """Images in an order determined by seed and epoch.

    The workers of section ``data`` load batches during training; bytes become the model's inputs on
    the device. See :func:`.epoch_rows` for the ranks' shares.

    Raises:
        UsageProblem: ``data.path`` is missing, unreadable, or has no images or too many classes.
        Unsupported: the model is not an image model, or Pillow is not installed.
    """

    def __init__(
        self, workload: Workload[Any], *, section: DataSection | None = None, **arguments: Any
    ):
        self._section = section or DataSection(source="images")
        super().__init__(workload, **arguments)

    @classmethod
    def refusal(cls, section: DataSection) -> str:
        """Reason why there is nothing to read, if the path is missing; empty otherwise."""
        if not section.path:
            return (
                "data.source=images: data.path is required, since nothing is downloaded; "
                f"allowed: {ALLOWED}"
            )
        try:
            _path(section).stat()
        except OSError as error:
            return f"data.path: cannot read {section.path}: {error}; allowed: {ALLOWED}"
        return ""

    def _open(self) -> None:
        section, workload, device = self._section, self._workload, self._device
        if reason := self.refusal(section):
            raise UsageProblem(reason)
        sides = (getattr(workload.section, name, None) for name in ("image_size", "sample_size"))
        side = next(filter(None, sides), None)
        self._dataset = dataset = read_images(
            _path(section), side=side, model=workload.section.name
        )
        images, held_out = dataset.training, dataset.held_out
        # Refuses more classes than the model has, without synchronizing a device.
        probe = torch.zeros(1, images.channels, 8, 8)
        workload.from_images(probe, torch.tensor([dataset.classes - 1]))
        label = f"data.path={section.path}"
        require_enough(len(images), world_size=self._world_size, label=label)
        self._loader = Loader(
            images, section=section, seed=self._seed, device=device, **self._share
        )
        self.steps_per_epoch = self._loader.steps_per_epoch
        self._held_out_share = [] if held_out is None else held_out_of(len(held_out), **self._share)
        first_rows = self._loader.rows(epoch=0)[: self.batch_size]
        self._first_batch = self._batch(*read_batch(images, first_rows))

    @classmethod
    def from_section(
        cls, section: DataSection, workload: Workload[Any], **arguments: Any
    ) -> Images:
        """Images at ``data.path``, with loader settings from the section."""
        return cls(workload, section=section, **arguments)

    def __next__(self) -> Batch:
        """Next batch, transferred asynchronously to the device.

        Raises:
            UsageProblem: an image cannot be read.
        """
        return self._batch(*self._loader.next())

    def fixed_batch(self) -> Batch:
        """First batch of the first epoch."""
        return self._first_batch

    def held_out(self) -> Iterator[Batch]:
        """This rank's share of the test part, read in this process."""
        images = self._dataset.held_out
        for rows in self._held_out_share:
            assert images is not None  # or there would be no share
            yield self._batch(*read_batch(images, rows))

    def restart(self) -> None:
        """Restart with the first epoch."""
        self._loader.restart()

    def description(self) -> Mapping[str, object]:
        """Description of data and effective loader settings."""
        dataset = self._dataset
        return {
            "kind": dataset.kind,
            "classes": dataset.classes,
            "samples": len(dataset.training),
            "held_out": 0 if dataset.held_out is None else len(dataset.held_out),
            **self._loader.settings,
        }

    def close(self) -> None:
        """Stop the workers."""
        self._loader.close()

    def _batch(self, images: Tensor, labels: Tensor) -> Batch:
        images = images.to(self._device, non_blocking=True).float() / 255
        labels = labels.to(self._device, non_blocking=True)
        return self._convert(self._workload.from_images(images, labels))


def _path(section: DataSection) -> Path:
    # Path.expanduser() raises where there is no such user.
    return Path(os.path.expanduser(section.path or ""))  # noqa: PTH111
