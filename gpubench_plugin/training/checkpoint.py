"""Training checkpoints: the full state needed to resume exactly.

A checkpoint is a file of tensors and a manifest that names it. The file is written first, under a
unique name, then the manifest ``latest.json`` or ``best.json`` is replaced: the file it names is
always complete.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, asdict, dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZIP_STORED, ZipFile

import torch

from gpubench_plugin.core.errors import GpubenchError, ResultsError, Unsupported, UsageProblem
from gpubench_plugin.core.events import CheckpointEvent, ResumedEvent
from gpubench_plugin.core.records import Check
from gpubench_plugin.environment.device_errors import is_device_failure
from gpubench_plugin.ranks.process_group import RankAgreement
from gpubench_plugin.training.manifest import (
    Manifest,
    differences,
    layouts_of,
    refuse_mismatch,
    sha256_of,
    write_atomically,
)
from gpubench_plugin.training.seeding import RandomState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gpubench_plugin.core.records import Json
    from gpubench_plugin.measure.protocols import Log
    from gpubench_plugin.training.trainer import Trainer

    Gather = Callable[[str, Json], "list[Json] | None"]


LATEST: Final = "latest.json"
BEST: Final = "best.json"
_DATA: Final = re.compile(r"step-\d{9,}-[0-9a-f]{8}\.pt")
"""Names of tensor files; other files are never removed."""


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """Checkpoints of one benchmark in `folder`: latest and best.

    A resumed training must have the same `settings`. Only rank zero has a folder and writes;
    `gather` sends it the random states of all ranks, and `agreement` spreads its failure.
    """

    folder: Path | None
    _: KW_ONLY
    settings: Mapping[str, str]
    device: torch.device
    gather: Gather = lambda _, record: [record]
    agreement: RankAgreement = field(default_factory=RankAgreement)

    def save(
        self,
        training: Trainer,
        metrics: Mapping[str, float],
        *,
        is_best: bool | None = None,
        best_metric: str = "loss",
    ) -> Path | None:
        """Write the latest checkpoint, also as the best one if `is_best`; return its manifest.

        With None it is the best one if its `best_metric` is lower than that of the best so far.
        Every rank must call it; only rank zero returns a path.

        Raises:
            ResultsError: it could not be written, on all ranks; earlier checkpoints are intact.
        """
        states = self.gather("random states", asdict(RandomState.capture(self.device)))
        manifest_path: Path | None = None
        write_error: Exception | None = None
        if states is not None and self.folder is not None:
            state = {**training.state_dict(), "random": states}
            try:
                manifest = self._write(self.folder, state, training.total_steps, metrics)
                manifest_path = self._publish(self.folder, manifest, is_best, best_metric)
            except (GpubenchError, Unsupported) as error:
                write_error = error
        (failed_share,) = self.agreement.mean([float(write_error is not None)])
        if write_error is not None:
            raise write_error
        if failed_share:
            raise ResultsError("rank zero could not write its checkpoint")
        return manifest_path

    def load(self, path: Path, training: Trainer, *, rank: int = 0) -> Manifest:
        """Resume `training` from the manifest or folder at `path`, with random states of `rank`.

        Raises:
            UsageProblem: it is damaged, or does not fit. Nothing was loaded then, except from a
                forged file that agrees with its manifest.
            ResultsError: it cannot be read.
        """
        path = path / LATEST if path.is_dir() else path
        manifest = Manifest.read(path)
        current_state = training.state_dict()
        refuse_mismatch(path, _settings_differences(manifest.settings, self.settings))
        model = {k: facts for k, facts in manifest.tensors.items() if k.startswith("model.")}
        refuse_mismatch(path, differences(model, layouts_of(current_state["model"], "model")))
        data = path.with_name(manifest.file)
        manifest.verify_file(data)
        state = _read(data)
        refuse_mismatch(data, differences(manifest.tensors, layouts_of(state)))
        with _checkpoint_errors(data):
            states = list(state.pop("random"))
            if rank >= len(states):
                raise UsageProblem(f"{path}: contains random states of only {len(states)} ranks")
            random_state = RandomState(**states[rank])
            training.load_state_dict(state)
            random_state.restore(self.device)
        return manifest

    def _write(
        self, folder: Path, state: Mapping[str, Any], step: int, metrics: Mapping[str, float]
    ) -> Manifest:
        data = folder / f"step-{step:09d}-{token_hex(4)}.pt"
        write_atomically(data, lambda file: torch.save(state, file))
        return Manifest(
            file=data.name,
            bytes=data.stat().st_size,
            sha256=sha256_of(data),
            step=step,
            metrics=dict(metrics),
            settings=dict(self.settings),
            tensors=layouts_of(state),
        )

    def _publish(
        self, folder: Path, manifest: Manifest, is_best: bool | None, best_metric: str
    ) -> Path:
        """Publish the checkpoint as latest, and possibly as best, by writing manifests."""
        latest, best = folder / LATEST, folder / BEST
        manifest.write(latest)
        if self._is_best(best, manifest.metrics, best_metric) if is_best is None else is_best:
            manifest.write(best)
        self._remove_unreferenced(folder)
        return latest

    def _is_best(self, best: Path, metrics: Mapping[str, float], best_metric: str) -> bool:
        try:
            return metrics[best_metric] < Manifest.read(best).metrics[best_metric]
        except (GpubenchError, KeyError):  # there is none to be compared with
            return True

    def _remove_unreferenced(self, folder: Path) -> None:
        """Remove tensor files that no manifest (or copy of one) references."""
        referenced = {Manifest.read(m).file for m in (folder / LATEST, folder / BEST) if m.exists()}
        for copy in folder.glob("*.json"):
            with suppress(GpubenchError):  # not a manifest
                referenced.add(Manifest.read(copy).file)
        for data in folder.iterdir():
            is_ours = _DATA.fullmatch(data.name) and data.is_file() and not data.is_symlink()
            if is_ours and data.name not in referenced:
                with suppress(OSError):  # a leftover file is harmless
                    data.unlink()


def _settings_differences(saved: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    return [
        f"{key} is {saved.get(key)!r} in the checkpoint, but {value!r} here"
        for key, value in current.items()
        if saved.get(key) != value
    ]


@contextmanager
def _checkpoint_errors(data: Path) -> Iterator[None]:
    """Convert any error from a malformed file to one message; torch's reader checks little."""
    try:
        yield
    except UsageProblem:
        raise
    except Exception as error:
        if is_device_failure(error):
            raise
        first_line = str(error).splitlines()[0] if str(error) else ""
        details = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
        raise UsageProblem(f"{data} is not a checkpoint: {details}") from error


def _read(data: Path) -> dict[str, Any]:
    """Load the state from a file without executing or decompressing anything."""
    with _checkpoint_errors(data):
        with ZipFile(data) as archive:
            packed = [part for part in archive.infolist() if part.compress_type != ZIP_STORED]
        if packed:
            raise UsageProblem(f"{data} is not a checkpoint: {packed[0].filename!r} is compressed")
        state = torch.load(data, map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise UsageProblem(f"{data} is not a checkpoint: it contains a {type(state).__name__}")
    return state


@dataclass(frozen=True, eq=False)
class ResumeFromCheckpoint:
    """Check that resumes `trainer` from the checkpoint at `path`."""

    checkpoints: Checkpoints
    path: Path
    trainer: Trainer
    rank: int
    agreement: RankAgreement

    def prepare(self, log: Log) -> Check:
        """Load the checkpoint on all ranks or none.

        Raises:
            UsageProblem: it is damaged, or does not fit, on this rank or another.
            ResultsError: it cannot be read.
        """
        load_error: GpubenchError | None = None
        try:
            manifest = self.checkpoints.load(self.path, self.trainer, rank=self.rank)
        except GpubenchError as error:
            load_error = error
        # All ranks or none start training.
        (failed_share,) = self.agreement.mean([float(load_error is not None)])
        if load_error is not None:
            raise type(load_error)(f"training.resume: {load_error}") from load_error
        if failed_share:
            raise UsageProblem(f"training.resume: another rank could not load {self.path}")
        event = ResumedEvent(step=manifest.step, file=manifest.file, sha256=manifest.sha256)
        log(event.line())
        return Check(correctness={"resumed": asdict(event)})


@dataclass(frozen=True, eq=False)
class WriteCheckpoint:
    """Check that writes a checkpoint of `trainer` with `metrics` after its untimed training.

    The best checkpoint has the lowest `best_metric`.
    """

    checkpoints: Checkpoints
    trainer: Trainer
    metrics: Callable[[], Mapping[str, float]]
    best_metric: str

    def prepare(self, log: Log) -> Check:
        """Write the checkpoint, untimed.

        Raises:
            ResultsError: it could not be written.
        """
        metrics = self.metrics()
        path = self.checkpoints.save(self.trainer, metrics, best_metric=self.best_metric)
        if path is None:
            return Check()
        event: dict[str, Any] = {
            "step": self.trainer.total_steps,
            "manifest": path.name,
            **metrics,
        }
        log(CheckpointEvent(**event).line())
        return Check(correctness={"checkpoint": event})
