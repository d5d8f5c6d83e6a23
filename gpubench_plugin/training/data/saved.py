"""Saved inputs: the batch of a failed check, as ``--repro`` keeps it, repeated."""

from __future__ import annotations

from pathlib import Path

import torch

from gpubench_plugin.config.sections import DataSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.training.data.base import DataSource
from gpubench_plugin.training.data.synthetic import Synthetic
from gpubench_plugin.workloads.base import Batch


class Saved(Synthetic):
    """The batch in the file ``data.path``, which is rank zero's; other ranks draw theirs.

    The keys of a loader are not read: the batch may stand for one that a loader had brought.

    Raises:
        UsageProblem: the file has no such batch, or one of another size.
    """

    @classmethod
    def refusal(cls, section: DataSection) -> str:
        """Reason why there is nothing to read, if the path is missing; empty otherwise."""
        return "" if Path(section.path or "").is_file() else _refused(section, "no such file")

    def _open(self) -> None:
        if self._rank:
            super()._open()
            return
        assert self._section is not None, "what to read stands in it"
        try:  # nothing in the file is executed
            samples, *parts = torch.load(
                str(self._section.path), map_location=self._device, weights_only=True
            )
            self._batch = self._convert(Batch(*parts))
            reason = f"has {samples} samples, but this benchmark takes {self.batch_size}"
        except Exception as error:  # of the system, zipfile, pickle and torch
            samples, reason = 0, f"not a saved batch ({type(error).__name__})"
        if samples != self.batch_size:
            raise UsageProblem(_refused(self._section, reason))


def _refused(section: DataSection, reason: str) -> str:
    return f"data.path={section.path or 'null'}: {reason}; allowed: inputs.pt of --repro"


def save(path: Path, source: DataSource) -> str:
    """Save the fixed batch of `source` on this rank; the reason why it cannot be, else empty."""
    try:
        torch.save((source.batch_size, *source.fixed_batch()), path)
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of torch: a type that is no tensor, a lost device, no memory
        path.unlink(missing_ok=True)
        return f"the batch cannot be saved: {error}".partition("\n")[0]
    return ""
