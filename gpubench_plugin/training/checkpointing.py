"""Checkpoints as parts of a measurement: what goes on from one, and what writes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.errors import GpubenchError, UsageProblem
from gpubench_plugin.records import Check
from gpubench_plugin.training.record_only import Untimed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpubench_plugin.training.check import Log
    from gpubench_plugin.training.checkpoint import Checkpoints
    from gpubench_plugin.training.protocols import Agreement
    from gpubench_plugin.training.trainer import Trainer


class Resumption(Untimed):
    """Lets `trainer` go on from the checkpoint at `path`; it stands before the trainer."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        path: Path,
        trainer: Trainer,
        *,
        rank: int,
        agreement: Agreement,
    ):
        self._checkpoints = checkpoints
        self._path = path
        self._trainer = trainer
        self._rank = rank
        self._agreement = agreement

    def prepare(self, log: Log) -> Check:
        """Load it, on every rank or on none.

        Raises:
            UsageProblem: it is not whole, or does not fit, on this rank or on another one.
            ResultsError: it cannot be read.
        """
        problem: GpubenchError | None = None
        try:
            manifest = self._checkpoints.load(self._path, self._trainer, rank=self._rank)
        except GpubenchError as error:
            problem = error
        # No rank may begin to train while another one has given up.
        (failed,) = self._agreement.mean([float(problem is not None)])
        if problem is not None:
            raise type(problem)(f"training.resume: {problem}") from problem
        if failed:
            raise UsageProblem(f"training.resume: another rank could not load {self._path}")
        said = {"step": manifest.step, "file": manifest.file, "sha256": manifest.sha256}
        log({"event": "resumed", **said})
        return Check(correctness={"resumed": said})


class Checkpointing(Untimed):
    """Writes a checkpoint of `trainer` once it has trained; it stands behind the trainer.

    `metrics` are asked then; the one named `by`, the lower the better, says which checkpoint is
    the best.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        trainer: Trainer,
        *,
        metrics: Callable[[], Mapping[str, float]],
        by: str,
    ):
        self._checkpoints = checkpoints
        self._trainer = trainer
        self._metrics = metrics
        self._by = by

    def prepare(self, log: Log) -> Check:
        """Write it, untimed.

        Raises:
            ResultsError: it could not be written.
        """
        metrics = self._metrics()
        path = self._checkpoints.save(self._trainer, metrics, by=self._by)
        if path is None:
            return Check()
        said = {"step": self._trainer.total_steps, "manifest": path.name, **metrics}
        log({"event": "checkpoint", **said})
        return Check(correctness={"checkpoint": said})
