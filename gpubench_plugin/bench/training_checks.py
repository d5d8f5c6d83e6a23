"""Untimed checks of a training: reference run, checkpoints, and seeds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gpubench_plugin.bench.subjects import case_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest

    from gpubench_plugin.bench.training_setup import TrainingSetup
    from gpubench_plugin.config.sections import Configuration, TrainingSection
    from gpubench_plugin.measure.protocols import Checkable
    from gpubench_plugin.training.check import RecordFacts
    from gpubench_plugin.training.checkpoint import Checkpoints
    from gpubench_plugin.training.convergence import TimeToTarget
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.evaluation import Evaluation
    from gpubench_plugin.training.reference import Fp32Reference
    from gpubench_plugin.training.trainer import Trainer


def scheduled(setup: TrainingSetup, source: DataSource) -> TrainingSetup:
    """Set-up whose schedule, unless its length is configured, ends with the epochs of `source`.

    Raises:
        UsageProblem: a resumed training has a schedule whose length is not configured.
    """
    from gpubench_plugin.core.errors import UsageProblem
    from gpubench_plugin.training.check import steps_of_check

    training = setup.configuration.training
    if reason := schedule_refusal(training):
        raise UsageProblem(reason)
    if training.epochs is None or training.schedule_steps is not None:
        return setup
    training = training.with_steps_of_epochs(steps_of_check(training, source))
    update = {"training": training}
    return replace(setup, configuration=setup.configuration.model_copy(update=update))


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
    if (path / LATEST if path.is_dir() else path).exists():
        return ""
    problem = f"this folder has no {LATEST}"
    if not path.exists():
        siblings = [sibling.name for sibling in path.parent.glob("*")]
        problem = f"no such file or folder{suggest(path.name, siblings)}"
    return (
        f"training.resume={training.resume}: {problem}; allowed: a checkpoint of an earlier "
        f"session, as its manifest or the folder of its {LATEST}"
    )


def check_refusal(configuration: Configuration[Any]) -> str:
    """Reason why the check against fp32 cannot be as configured; empty if it can."""
    if configuration.measure.check and configuration.training.resume is not None:
        return (
            "measure.check=true beside training.resume: the reference starts from the seed's "
            "weights, not from a checkpoint's; allowed: false, null"
        )
    return ""


def reference_of(setup: TrainingSetup, *, shared: bool) -> Fp32Reference | None:
    """Reference for the first training steps, if any; ranks with a `shared` device split memory."""
    from gpubench_plugin.core.errors import UsageProblem
    from gpubench_plugin.training.reference import Fp32Reference

    configuration, precision = setup.configuration, setup.precision
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
        workload=setup.workload,
        training=training,
        measure=measure,
        precision=precision.name,
        compute_dtypes=[precision.compute_dtype, *([reduced_in] if reduced_in else [])],
        seed=configuration.experiment.seed,
        device=setup.device,
        agreement=setup.group.agreement,
        averaging=setup.parallelism.name != "none",
        shares_batch=setup.parallelism.shares_batch,
        # A full preset compares one step by default.
        steps=1 if is_full and measure.check is None else measure.check_steps,
        free_bytes=partial(_free_bytes, setup, shared) if is_full else None,
    )


def _free_bytes(setup: TrainingSetup, shared: bool) -> int | None:
    """Memory this rank may allocate after torch has released its unused cache."""
    from gpubench_plugin.measure.state import release_memory
    from gpubench_plugin.training.timed_collective import free_bytes

    release_memory(setup.device)
    local_ranks = setup.group.world.local_size
    return free_bytes(setup.device, local_ranks=local_ranks, shared=shared)


def seeds_of(setup: TrainingSetup) -> RecordFacts:
    """Record of the seeds."""
    from gpubench_plugin.training import seeding
    from gpubench_plugin.training.check import RecordFacts

    seed = setup.configuration.experiment.seed
    return RecordFacts(seeds=seeding.seeds_of(seed, world_size=setup.group.world.size))


def resumption_of(
    request: pytest.FixtureRequest, trainer: Trainer, setup: TrainingSetup
) -> tuple[Checkable, ...]:
    """Resumption of `trainer` from ``training.resume``, if configured."""
    path = setup.configuration.training.resume
    if path is None:
        return ()
    from gpubench_plugin.training.checkpoint import ResumeFromCheckpoint

    resumption = ResumeFromCheckpoint(
        _checkpoints(request, "training.resume", setup),
        request.config.rootpath / path,
        trainer,
        rank=setup.group.world.rank,
        agreement=setup.group.agreement,
    )
    return (resumption,)


def checkpointing_of(
    request: pytest.FixtureRequest,
    trainer: Trainer,
    setup: TrainingSetup,
    evaluate: Callable[[], Evaluation] | None,
) -> tuple[Checkable, ...]:
    """Check that writes a checkpoint of `trainer`, if ``training.checkpoint`` is set."""
    if not setup.configuration.training.checkpoint:
        return ()
    from gpubench_plugin.training.checkpoint import WriteCheckpoint

    def metrics() -> Mapping[str, float]:
        (loss,) = setup.group.agreement.mean([float(trainer.last_loss)])
        return {"loss": loss, **(evaluate().metrics if evaluate is not None else {})}

    checkpoints = _checkpoints(request, "training.checkpoint", setup)
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
    request: pytest.FixtureRequest, convergence: TimeToTarget, setup: TrainingSetup
) -> None:
    """Write a checkpoint at every evaluation of a time-to-target run, if configured."""
    training = setup.configuration.training
    if training.checkpoint:
        checkpoints = _checkpoints(request, "training.checkpoint", setup)
        convergence.observers.append(
            lambda milestone: checkpoints.save(
                milestone.trainer, milestone.evaluation.metrics, is_best=milestone.is_best
            )
        )


def _checkpoints(request: pytest.FixtureRequest, key: str, setup: TrainingSetup) -> Checkpoints:
    """Checkpoint store of this benchmark, in the run directory.

    Raises:
        Unsupported: the model is sharded over the ranks.
    """
    from gpubench_plugin.bench.probing import file_name
    from gpubench_plugin.core.errors import Unsupported
    from gpubench_plugin.launchers.context import context_of
    from gpubench_plugin.training.checkpoint import Checkpoints

    name, group = setup.parallelism.name, setup.group
    if name != "ddp" and group.world.size > 1:
        raise Unsupported(
            f"{key}: under distributed.parallelism={name} no rank holds the whole model, but "
            "a checkpoint is one file; use ddp"
        )
    configuration, training = setup.configuration, setup.configuration.training
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
