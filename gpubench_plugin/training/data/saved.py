"""Saved inputs: the batch of a failed check, as ``--repro`` keeps it, repeated."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.precision._nested import map_tensors
from gpubench_plugin.training.data.synthetic import Synthetic
from gpubench_plugin.workloads.base import Batch

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import DataSection
    from gpubench_plugin.training.data.base import DataSource


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
        try:
            samples, batch = restored(Path(self._section.path or "").read_bytes())
        except Exception as error:  # of the system, pickle, zipfile and torch
            reason = getattr(error, "strerror", None) or "not a saved batch"
            raise UsageProblem(_refused(self._section, reason)) from error
        if samples != self.batch_size:
            reason = f"has {samples} samples, but this benchmark takes {self.batch_size}"
            raise UsageProblem(_refused(self._section, reason))
        self._batch = self._convert(map_tensors(lambda t: t.to(self._device), batch))


def _refused(section: DataSection, reason: str) -> str:
    return f"data.path={section.path or 'null'}: {reason}; allowed: inputs.pt of --repro"


def saved(source: DataSource) -> bytes:
    """The fixed batch of `source` on this rank, as a file that is read without executing code.

    Raises:
        Exception: torch cannot write it, or read it again so.
    """
    content = io.BytesIO()
    torch.save((source.batch_size, *map(_plain, source.fixed_batch())), content)
    restored(content.getvalue())
    return content.getvalue()


def restored(content: bytes) -> tuple[int, Batch]:
    """Number of samples, and batch, in what :func:`saved` has returned; raises as torch does."""
    samples, *parts = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return samples, Batch(*parts)


def _plain(value: object) -> object:
    """The same nesting of tuples and dictionaries, its tensors on the CPU and no views."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value
