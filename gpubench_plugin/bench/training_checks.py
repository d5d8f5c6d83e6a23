"""Untimed checks of a training: reference run, checkpoints, and seeds."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gpubench_plugin.bench.running_benchmark import case_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest

    from gpubench_plugin.bench.setting import Setting
    from gpubench_plugin.config.sections import Configuration, TrainingSection
    from gpubench_plugin.measure.protocols import Checkable
    from gpubench_plugin.training.check import RecordFacts
    from gpubench_plugin.training.checkpoint import Checkpoints
    from gpubench_plugin.training.convergence import TimeToTarget
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.evaluation import Evaluation
    from gpubench_plugin.training.reference import Fp32Reference
    from gpubench_plugin.training.trainer import Trainer


def scheduled(setting: Setting, source: DataSource) -> Setting:
    """Setting whose schedule, unless its length is configured, ends with the epochs of `source`.

    Raises:
        UsageProblem: a resumed training has a schedule whose length is not configured.
    """
    from gpubench_plugin.core.errors import UsageProblem
    from gpubench_plugin.training.check import steps_of_check

    training = setting.configuration.training
    if reason := schedule_refusal(training):
        raise UsageProblem(reason)
    if training.epochs is None or training.schedule_steps is not None:
        return setting
    training = training.with_steps_of_epochs(steps_of_check(training, source))
    update = {"training": training}
    return replace(setting, configuration=setting.configuration.model_copy(update=update))


def schedule_refusal(training: TrainingSection) -> str:
    """Reason why the length of the schedule is not known; empty if it is."""
    is_stated = training.epochs is None or training.schedule_steps is not None
    if is_stated or training.resume is None or training.scheduler == "constant":
        return ""
    return (
        f"training.schedule_steps=null beside training.resume: where training.scheduler="
        f"{training.scheduler} ends depends on the steps before the checkpoint, too; allowed: "
        "the steps of the whole training, or training.scheduler=constant"
    )


def checkpoint_refusal(rootdir: Path, training: TrainingSection) -> str:
    """Reason why there is nothing to resume from; empty if there is, or if nothing is resumed."""
    if training.resume is None:
        return ""
    from gpubench_plugin.core.errors import suggest
    from gpubench_plugin.training.checkpoint import LATEST

    path = rootdir / training.resume
    if not os.path.lexists(path):
        problem = f"no such file or folder{suggest(path.name, _names_in(path.parent))}"
    elif _is_folder(path) and not os.path.lexists(path / LATEST):
        subfolders = (n for n in _names_in(path) if os.path.lexists(path / n / LATEST))
        problem = f"this folder has no {LATEST}"
        if name := min(subfolders, default=""):
            problem += f" (did you mean its folder {name!r}?)"
    else:
        return ""
    return (
        f"training.resume={training.resume}: {problem}; allowed: a checkpoint of an earlier "
        f"session, as its manifest or the folder of its {LATEST}"
    )


def _is_folder(path: Path) -> bool:
    with suppress(OSError):  # told when it is read
        return path.is_dir()
    return False


def _names_in(folder: Path) -> list[str]:
    with suppress(OSError):
        return [path.name for path in folder.iterdir()]
    return []


def check_refusal(configuration: Configuration[Any]) -> str:
    """Reason why the check against fp32 cannot be as configured; empty if it can."""
    if configuration.measure.check and configuration.training.resume is not None:
        return (
            "measure.check=true beside training.resume: the reference starts from the seed's "
            "weights, not from a checkpoint's; allowed: false, null"
        )
    return ""


def reference_of(setting: Setting, *, shared: bool) -> Fp32Reference | None:
    """Reference for the first training steps, if any; ranks with a `shared` device split memory."""
    from gpubench_plugin.core.errors import UsageProblem
    from gpubench_plugin.training.reference import Fp32Reference

    configuration, precision = setting.configuration, setting.precision
    training, measure = configuration.training, configuration.measure
    if reason := check_refusal(configuration):
        raise UsageProblem(reason)
    if training.resume is not None:
        return None
    if measure.check is False:
        return None
    is_full = configuration.experiment.preset == "full"
    reduced_in = configuration.distributed.fsdp_reduce_dtype
    return Fp32Reference(
        workload=setting.workload,
        training=training,
        measure=measure,
        precision=precision.name,
        compute_dtypes=[precision.compute_dtype, *([reduced_in] if reduced_in else [])],
        seed=configuration.experiment.seed,
        device=setting.device,
        agreement=setting.group.agreement,
        averaging=setting.parallelism.name != "none",
        shares_batch=setting.parallelism.shares_batch,
        # A full preset compares one step by default.
        steps=1 if is_full and measure.check is None else measure.check_steps,
        free_bytes=partial(_free_bytes, setting, shared) if is_full else None,
    )


def _free_bytes(setting: Setting, shared: bool) -> int | None:
    """Memory this rank may allocate after torch has released its unused cache."""
    from gpubench_plugin.measure.state import release_memory
    from gpubench_plugin.training.timed_collective import free_bytes

    release_memory(setting.device)
    local_ranks = setting.group.world.local_size
    return free_bytes(setting.device, local_ranks=local_ranks, shared=shared)


def seeds_of(setting: Setting) -> RecordFacts:
    """Record of the seeds."""
    from gpubench_plugin.training import seeding
    from gpubench_plugin.training.check import RecordFacts

    seed = setting.configuration.experiment.seed
    return RecordFacts(seeds=seeding.seeds_of(seed, world_size=setting.group.world.size))


def resumption_of(
    request: pytest.FixtureRequest, trainer: Trainer, setting: Setting
) -> tuple[Checkable, ...]:
    """Resumption of `trainer` from ``training.resume``, if configured."""
    path = setting.configuration.training.resume
    if path is None:
        return ()
    from gpubench_plugin.training.checkpoint import ResumeFromCheckpoint

    resumption = ResumeFromCheckpoint(
        _checkpoints(request, "training.resume", setting),
        request.config.rootpath / path,
        trainer,
        rank=setting.group.world.rank,
        agreement=setting.group.agreement,
    )
    return (resumption,)


def checkpointing_of(
    request: pytest.FixtureRequest,
    trainer: Trainer,
    setting: Setting,
    evaluate: Callable[[], Evaluation] | None,
) -> tuple[Checkable, ...]:
    """Check that writes a checkpoint of `trainer`, if ``training.checkpoint`` is set."""
    if not setting.configuration.training.checkpoint:
        return ()
    from gpubench_plugin.training.checkpoint import WriteCheckpoint

    def metrics() -> Mapping[str, float]:
        (loss,) = setting.group.agreement.mean([float(trainer.last_loss)])
        return {"loss": loss, **(evaluate().metrics if evaluate is not None else {})}

    checkpoints = _checkpoints(request, "training.checkpoint", setting)
    best_metric = "loss" if evaluate is None else "test_loss"
    return (WriteCheckpoint(checkpoints, trainer, metrics=metrics, best_metric=best_metric),)


def convergence_refusal(training: TrainingSection) -> str:
    """Reason why time to target cannot be measured as configured; empty if it can."""
    if training.resume is None:
        return ""
    return (
        f"training.resume={training.resume}: time to target is measured from the first step; "
        "allowed: null"
    )


def observe_with_checkpoints(
    request: pytest.FixtureRequest, convergence: TimeToTarget, setting: Setting
) -> None:
    """Write a checkpoint at every evaluation of a time-to-target run, if configured.

    Raises:
        UsageProblem: ``training.resume`` is set, but every timed call starts from the first step.
    """
    from gpubench_plugin.core.errors import UsageProblem

    training = setting.configuration.training
    if reason := convergence_refusal(training):
        raise UsageProblem(reason)
    if training.checkpoint:
        checkpoints = _checkpoints(request, "training.checkpoint", setting)
        convergence.observers.append(
            lambda milestone: checkpoints.save(
                milestone.trainer, milestone.evaluation.metrics, is_best=milestone.is_best
            )
        )


def _checkpoints(request: pytest.FixtureRequest, key: str, setting: Setting) -> Checkpoints:
    """Checkpoint store of this benchmark, in the run directory.

    Raises:
        Unsupported: the model is sharded over the ranks.
    """
    from gpubench_plugin.bench.extra_calls import file_name
    from gpubench_plugin.core.errors import Unsupported
    from gpubench_plugin.launchers.context import context_of
    from gpubench_plugin.training.checkpoint import Checkpoints

    name, group = setting.parallelism.name, setting.group
    if name != "ddp" and group.world.size > 1:
        raise Unsupported(
            f"{key}: under distributed.parallelism={name} no rank holds the whole model, but "
            "a checkpoint is one file; use ddp"
        )
    configuration, training = setting.configuration, setting.configuration.training
    settings = {
        "model.name": configuration.model.name,
        "precision.name": configuration.precision.name,
        "training.optimizer": training.optimizer,
        "training.scheduler": training.scheduler,
        # The next batch depends on these.
        "experiment.seed": configuration.experiment.seed,
        "data.source": configuration.data.source,
        "training.batch_size": training.samples,
    }
    run = context_of(request.config).run  # rank zero's
    return Checkpoints(
        None if run is None else run.checkpoints / file_name(case_of(request)),
        settings={key: str(value) for key, value in settings.items()},
        device=group.device,
        gather=group.control.gather,
        agreement=group.agreement,
    )
