"""Checkpoints of a training: everything it takes to go on as if it had never stopped.

A checkpoint is a file of tensors and a manifest that names it. The file is written first, under a
name of its own, the manifest ``latest.json`` or ``best.json`` takes its place last: whatever
happens in between, what the manifests name is whole.

:class:`Resumption`, which goes on from one, and :class:`Checkpointing`, which writes one, are parts
of a benchmark.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, asdict, dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZIP_STORED, ZipFile

import torch

from gpubench_plugin.distributed import RankAgreement
from gpubench_plugin.errors import GpubenchError, ResultsError, Unsupported, UsageProblem
from gpubench_plugin.records import Check
from gpubench_plugin.training.manifest import (
    Manifest,
    differences,
    facts_of,
    refuse,
    sha256_of,
    write_whole,
)
from gpubench_plugin.training.seeding import RandomState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gpubench_plugin.measure import Log
    from gpubench_plugin.records import Json
    from gpubench_plugin.training.trainer import Trainer

    Gather = Callable[[str, Json], "list[Json] | None"]


LATEST: Final = "latest.json"
BEST: Final = "best.json"
_DATA: Final = re.compile(r"step-\d{9,}-[0-9a-f]{8}\.pt")
"""Names of files of tensors, as they are written; a file with another name is not ours."""


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """The checkpoints of one benchmark, in `folder`: the latest one, and the best one.

    `settings` are what a training must share to go on from them. Rank zero alone has a folder and
    writes; `gather` brings it the others' random states, and through `agreement` the others learn
    that it could not.
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
        by: str = "loss",
    ) -> Path | None:
        """Write the latest checkpoint, which `is_best` makes the best one, too; its manifest.

        None asks the best one so far, which one with a lower metric of the name `by` replaces.
        Every rank must call it, and waits for rank zero; all others return None.

        Raises:
            ResultsError: it could not be written, which every rank raises; the checkpoints before
                it are intact.
        """
        states = self.gather("random states", asdict(RandomState.capture(self.device)))
        written: Path | None = None
        problem: Exception | None = None
        if states is not None and self.folder is not None:
            state = {**training.state_dict(), "random": states}
            try:
                manifest = self._write(self.folder, state, training.total_steps, metrics)
                written = self._name(self.folder, manifest, is_best, by)
            except (GpubenchError, Unsupported) as error:
                problem = error
        (failed,) = self.agreement.mean([float(problem is not None)])
        if problem is not None:
            raise problem
        if failed:
            raise ResultsError("rank zero could not write its checkpoint")
        return written

    def load(self, path: Path, training: Trainer, *, rank: int = 0) -> Manifest:
        """Let `training` go on from the checkpoint at `path`: a manifest, or the latest's folder.

        The random generators are those of `rank` then.

        Raises:
            UsageProblem: it is not whole, or does not fit, and why. Nothing was loaded then, but
                where a file that somebody made agrees with its manifest and is no checkpoint.
            ResultsError: the operating system does not let it be read.
        """
        path = path / LATEST if path.is_dir() else path
        manifest = Manifest.read(path)
        here = training.state_dict()
        refuse(path, _other_settings(manifest.settings, self.settings))
        model = {k: facts for k, facts in manifest.tensors.items() if k.startswith("model.")}
        refuse(path, differences(model, facts_of(here["model"], "model")))
        data = path.with_name(manifest.file)
        manifest.require_file(data)
        state = _read(data)
        refuse(data, differences(manifest.tensors, facts_of(state)))
        with _refusing_what_is_no_checkpoint(data):
            states = list(state.pop("random"))
            if rank >= len(states):
                raise UsageProblem(f"{path}: has the random states of {len(states)} ranks only")
            own = RandomState(**states[rank])
            training.load_state_dict(state)
            own.restore(self.device)
        return manifest

    def _write(
        self, folder: Path, state: Mapping[str, Any], step: int, metrics: Mapping[str, float]
    ) -> Manifest:
        data = folder / f"step-{step:09d}-{token_hex(4)}.pt"
        write_whole(data, lambda file: torch.save(state, file))
        return Manifest(
            file=data.name,
            bytes=data.stat().st_size,
            sha256=sha256_of(data),
            step=step,
            metrics=dict(metrics),
            settings=dict(self.settings),
            tensors=facts_of(state),
        )

    def _name(self, folder: Path, manifest: Manifest, is_best: bool | None, by: str) -> Path:
        """Make the latest, and maybe the best, checkpoint the one described."""
        latest, best = folder / LATEST, folder / BEST
        manifest.write(latest)
        if self._is_best(best, manifest.metrics, by) if is_best is None else is_best:
            manifest.write(best)
        self._remove_unnamed(folder)
        return latest

    def _is_best(self, best: Path, metrics: Mapping[str, float], by: str) -> bool:
        try:
            return metrics[by] < Manifest.read(best).metrics[by]
        except (GpubenchError, KeyError):  # there is none to be compared with
            return True

    def _remove_unnamed(self, folder: Path) -> None:
        """Remove the files of tensors that no manifest names any more.

        A manifest that somebody copied under another name keeps its file.
        """
        named = {Manifest.read(m).file for m in (folder / LATEST, folder / BEST) if m.exists()}
        for copy in folder.glob("*.json"):
            with suppress(GpubenchError):  # of something else
                named.add(Manifest.read(copy).file)
        for data in folder.iterdir():
            is_ours = _DATA.fullmatch(data.name) and data.is_file() and not data.is_symlink()
            if is_ours and data.name not in named:
                with suppress(OSError):  # it does no harm
                    data.unlink()


def _other_settings(saved: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    return [
        f"{key} is {saved.get(key)!r} in the checkpoint, {value!r} here"
        for key, value in here.items()
        if saved.get(key) != value
    ]


@contextmanager
def _refusing_what_is_no_checkpoint(data: Path) -> Iterator[None]:
    """Make whatever a strange file raises one message: torch's reader checks little of it."""
    try:
        yield
    except (UsageProblem, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else ""
        said = f"{type(error).__name__}: {first}" if first else type(error).__name__
        raise UsageProblem(f"{data} is no checkpoint: {said}") from error


def _read(data: Path) -> dict[str, Any]:
    """The state in a file, of which nothing is executed, and nothing inflated."""
    with _refusing_what_is_no_checkpoint(data):
        with ZipFile(data) as archive:
            packed = [part for part in archive.infolist() if part.compress_type != ZIP_STORED]
        if packed:
            raise UsageProblem(f"{data} is no checkpoint: {packed[0].filename!r} is compressed")
        state = torch.load(data, map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise UsageProblem(f"{data} is no checkpoint: it holds a {type(state).__name__}")
    return state


@dataclass(frozen=True, eq=False)
class Resumption:
    """Lets `trainer` go on from the checkpoint at `path`, before its own check."""

    checkpoints: Checkpoints
    path: Path
    trainer: Trainer
    rank: int
    agreement: RankAgreement

    def prepare(self, log: Log) -> Check:
        """Load it, on every rank or on none.

        Raises:
            UsageProblem: it is not whole, or does not fit, on this rank or on another one.
            ResultsError: it cannot be read.
        """
        problem: GpubenchError | None = None
        try:
            manifest = self.checkpoints.load(self.path, self.trainer, rank=self.rank)
        except GpubenchError as error:
            problem = error
        # No rank may begin to train while another one has given up.
        (failed,) = self.agreement.mean([float(problem is not None)])
        if problem is not None:
            raise type(problem)(f"training.resume: {problem}") from problem
        if failed:
            raise UsageProblem(f"training.resume: another rank could not load {self.path}")
        said = {"step": manifest.step, "file": manifest.file, "sha256": manifest.sha256}
        log({"event": "resumed", **said})
        return Check(correctness={"resumed": said})


@dataclass(frozen=True, eq=False)
class Checkpointing:
    """Writes a checkpoint of `trainer` once it has trained untimed.

    `metrics` are asked then; the one named `by`, the lower the better, says which checkpoint is
    the best.
    """

    checkpoints: Checkpoints
    trainer: Trainer
    metrics: Callable[[], Mapping[str, float]]
    by: str

    def prepare(self, log: Log) -> Check:
        """Write it, untimed.

        Raises:
            ResultsError: it could not be written.
        """
        metrics = self.metrics()
        path = self.checkpoints.save(self.trainer, metrics, by=self.by)
        if path is None:
            return Check()
        said = {"step": self.trainer.total_steps, "manifest": path.name, **metrics}
        log({"event": "checkpoint", **said})
        return Check(correctness={"checkpoint": said})
