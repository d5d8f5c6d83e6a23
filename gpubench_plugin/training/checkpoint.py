"""Training checkpoints: the full state needed to resume exactly.

A checkpoint is a file of tensors and a manifest that names it. The file is written first, under a
unique name, then the manifest ``latest.json`` or ``best.json`` is replaced: the file it names is
always complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, asdict, dataclass, field
from hashlib import file_digest
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Self

import torch
from torch import Tensor

from gpubench_plugin.core.errors import (
    BrokenFile,
    GpubenchError,
    ResultsError,
    Unsupported,
    UsageProblem,
)
from gpubench_plugin.core.events import CheckpointEvent, ResumedEvent
from gpubench_plugin.core.format import listed
from gpubench_plugin.core.records import Check
from gpubench_plugin.environment.device_errors import is_device_failure
from gpubench_plugin.measure.protocols import Log
from gpubench_plugin.ranks.process_group import ProcessGroup
from gpubench_plugin.system import files, json_files, stored
from gpubench_plugin.training.seeding import RandomState
from gpubench_plugin.training.trainer import Trainer

LATEST: Final = "latest.json"
BEST: Final = "best.json"
_DATA: Final = re.compile(r"step-\d{9,}-[0-9a-f]{8}\.pt")
"""Names of tensor files; other files are never removed."""


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """Checkpoints of one benchmark in `folder`: latest and best.

    A resumed training must have the same `settings`. Only rank zero of the `group` has a folder and
    writes: the random states of all ranks are sent to it, and its failure is that of all.
    """

    folder: Path | None
    _: KW_ONLY
    settings: Mapping[str, str]
    group: ProcessGroup

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
        own_state = asdict(RandomState.capture(self.group.device))
        states = self.group.control.gather("random states", own_state)
        path: Path | None = None
        failure: Exception | None = None
        if states is not None and self.folder is not None:
            state = {**training.state_dict(), "random": states}
            try:
                manifest = self._write(self.folder, state, training.calls, metrics)
                if is_best is None:
                    is_best = _is_best(self.folder / BEST, metrics, best_metric)
                path = _publish(self.folder, manifest, is_best=is_best)
            except (GpubenchError, Unsupported) as error:
                failure = error
        if not self.group.agreement.everywhere(failure is None):
            raise failure or ResultsError("rank zero could not write its checkpoint")
        return path

    def load(self, path: Path, training: Trainer) -> Manifest:
        """Resume `training` from the manifest or folder at `path`, with this rank's random states.

        Raises:
            UsageProblem: it is damaged, or does not fit. Nothing was loaded then, except from a
                forged file that agrees with its manifest.
            ResultsError: it cannot be read.
        """
        path = path / LATEST if path.is_dir() else path
        manifest = Manifest.read(path)
        saved = {key: value for key, value in manifest.settings.items() if key in self.settings}
        refuse_mismatch(path, differences(saved, self.settings))
        data = path.with_name(manifest.file)
        current = layouts_of(training.state_dict()["model"], "model")
        with _checkpoint_errors(data):
            if (actual := _sha256(data)) != manifest.sha256:
                raise BrokenFile(
                    f"{data} was truncated or modified: its sha256 is {actual} instead of "
                    f"{manifest.sha256} according to its manifest"
                )
            # Nothing in the file is executed.
            state: dict[str, Any] = torch.load(data, map_location="cpu", weights_only=True)
            states = state.pop("random")
            refuse_mismatch(path, differences(layouts_of(state["model"], "model"), current))
            if self.group.world.rank >= len(states):
                raise UsageProblem(f"{path}: contains random states of only {len(states)} ranks")
            random_state = RandomState(**states[self.group.world.rank])
            training.load_state_dict(state)
            random_state.restore(self.group.device)
        return manifest

    def _write(
        self, folder: Path, state: Mapping[str, Any], step: int, metrics: Mapping[str, float]
    ) -> Manifest:
        layouts_of(state)  # refuses tensors that could not be compared when it is read
        data = folder / f"step-{step:09d}-{token_hex(4)}.pt"
        save_tensors(data, state)
        return Manifest(
            file=data.name,
            sha256=_sha256(data),
            step=step,
            metrics=dict(metrics),
            settings=dict(self.settings),
        )


def _is_best(best: Path, metrics: Mapping[str, float], best_metric: str) -> bool:
    with suppress(GpubenchError, KeyError):  # there is none to be compared with
        return metrics[best_metric] < Manifest.read(best).metrics[best_metric]
    return True


def _publish(folder: Path, manifest: Manifest, *, is_best: bool) -> Path:
    """Publish a checkpoint as the latest, and the best if it is; remove what none references."""
    for name in (LATEST, BEST) if is_best else (LATEST,):
        json_files.write_json(folder / name, stored.dump(manifest))
    referenced = set()
    for path in folder.glob("*.json"):  # copies included
        with suppress(UsageProblem):  # not a manifest
            referenced.add(Manifest.read(path).file)
    for data in folder.iterdir():
        if _DATA.fullmatch(data.name) and data.name not in referenced:
            with suppress(OSError):  # a leftover file is harmless
                data.unlink()
    return folder / LATEST


@contextmanager
def _checkpoint_errors(data: Path) -> Iterator[None]:
    """Convert any error from a malformed file to one message; torch's reader checks little."""
    try:
        yield
    except GpubenchError:
        raise
    except FileNotFoundError:
        raise UsageProblem(f"{data}: no such file") from None
    except Exception as error:
        if is_device_failure(error):
            raise
        first_line = next(iter(str(error).splitlines()), "")
        raise BrokenFile(
            f"{data} is not a checkpoint: {type(error).__name__}: {first_line}"
        ) from error


def _sha256(path: Path) -> str:
    with files.open_to_read(path) as file:
        return file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type] # a gap in its stub


def resume_training(checkpoints: Checkpoints, path: Path, trainer: Trainer, log: Log) -> Check:
    """Resume `trainer` from the checkpoint at `path`, on all ranks or none.

    Raises:
        UsageProblem: it is damaged, or does not fit, on this rank or another.
        ResultsError: it cannot be read.
    """
    failure: GpubenchError | None = None
    try:
        manifest = checkpoints.load(path, trainer)
    except GpubenchError as error:
        failure = type(error)(f"training.resume: {error}")
    # All ranks or none start training.
    if not checkpoints.group.agreement.everywhere(failure is None):
        raise failure or UsageProblem(f"training.resume: another rank could not load {path}")
    event = ResumedEvent(step=manifest.step, file=manifest.file, sha256=manifest.sha256)
    log(event.line())
    return Check(correctness={"resumed": asdict(event)})


def write_checkpoint(
    checkpoints: Checkpoints,
    trainer: Trainer,
    metrics_of: Callable[[], Mapping[str, float]],
    best_metric: str,
    log: Log,
) -> Check:
    """Write a checkpoint of `trainer` with its metrics after its untimed training.

    The best checkpoint has the lowest `best_metric`.

    Raises:
        ResultsError: it could not be written.
    """
    metrics = metrics_of()
    path = checkpoints.save(trainer, metrics, best_metric=best_metric)
    if path is None:
        return Check()
    event: dict[str, Any] = {"step": trainer.calls, "manifest": path.name, **metrics}
    log(CheckpointEvent(**event).line())
    return Check(correctness={"checkpoint": event})


FORMAT: Final = stored.Format(kind="checkpoint manifest", newest=1)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of a checkpoint, whose tensors are in `file` in the same folder.

    A resumed training must have the same `settings`. `metrics` are those at optimizer step `step`.
    """

    schema_version: int = FORMAT.newest
    file: str = field(metadata={"pattern": r"^\w[\w.-]*$"})
    sha256: str
    step: int = field(metadata={"ge": 0, "lt": 1 << 53})  # an integer of any reader of JSON
    metrics: Mapping[str, float]
    settings: Mapping[str, str]
    torch: str = field(default_factory=lambda: str(torch.__version__))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the manifest at `path`.

        Raises:
            UsageProblem: it is missing, malformed, or of another version.
            ResultsError: it cannot be read.
        """
        return stored.restore(cls, FORMAT.load(path), str(path))


def save_tensors(path: Path, tensors: object) -> None:
    """Write nested containers of tensors to `path` by ``torch.save``, durably.

    Raises:
        ResultsError: it could not be written; an earlier file at `path` is intact.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, lambda file: torch.save(tensors, file))
    # torch's writer wraps an OSError in a RuntimeError.
    except (OSError, RuntimeError) as error:
        raise ResultsError(f"cannot write {path}: {error}") from error


def layouts_of(tree: object, prefix: str = "") -> dict[str, str]:
    """Dtype, shape and strides of all tensors in nested containers, by dotted path.

    Raises:
        Unsupported: a tensor has no strides.
    """
    layouts = {}
    for path, tensor in _tensors(tree, prefix):
        if tensor.layout is not torch.strided:
            raise Unsupported(f"checkpoints support only strided tensors, not {tensor.layout}")
        dtype = str(tensor.dtype).removeprefix("torch.")
        layouts[path] = f"{dtype} {list(tensor.shape)} of strides {list(tensor.stride())}"
    return layouts


def _tensors(tree: object, prefix: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Tensor):
        yield prefix, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _tensors(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(tree, list | tuple):
        yield from _tensors(dict(enumerate(tree)), prefix)


def differences(saved: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Differences of layouts, one line each, sorted by name."""
    return [
        f"{name} is {saved.get(name, 'missing')} in the checkpoint, but "
        f"{current.get(name, 'missing')} here"
        for name in sorted({*saved, *current})
        if saved.get(name) != current.get(name)
    ]


def refuse_mismatch(path: Path, lines: Sequence[str]) -> None:
    """Refuse a mismatching checkpoint if there are `lines` with differences.

    Raises:
        UsageProblem: with the first of them.
    """
    if lines:
        raise UsageProblem(f"{path} does not fit: {listed(lines, separator='; ')}")
