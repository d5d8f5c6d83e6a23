"""Fit of ``training.batch_size=auto``: a step is tried in sizes, before its fixtures exist."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._subclasses import FakeTensorMode

from gpubench_plugin.bench.subjects import case_of, is_shadowed, subjects_of
from gpubench_plugin.bench.training_setup import TrainingSetup, reference_of
from gpubench_plugin.core.errors import Unsupported, error_text
from gpubench_plugin.environment.device_errors import failed_allocation, is_out_of_memory
from gpubench_plugin.environment.devices import synchronize
from gpubench_plugin.measure.probes.operations import census_of
from gpubench_plugin.measure.process_state import host_memory_limited, release_memory
from gpubench_plugin.measure.torch_state import state_restored
from gpubench_plugin.training.bands import has_batch_norm
from gpubench_plugin.training.batch_fit import RESERVE_BYTES, fit_batch
from gpubench_plugin.training.seeding import nondeterminism_errors
from gpubench_plugin.training.timed_collective import free_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from gpubench_plugin.config.sections import Configuration

    SetupOf = Callable[[int], TrainingSetup]
    Fits = Callable[[TrainingSetup], bool]

_NO_REFERENCE: Final = (
    "the training fits, but not the fp32 reference beside it, which measure.check=false leaves out"
)


def fitted_configuration(request: pytest.FixtureRequest) -> Configuration[Any]:
    """The benchmark's configuration with the largest batch of which its step fits into memory.

    Raises:
        Unsupported: the benchmark has several ranks, or a fixture that the trials do not build.
        DoesNotFit: not even the smallest batch fits.
    """
    for name in ("trainer", "inference", "model", "data"):
        if is_shadowed(request, name):
            raise Unsupported(
                "training.batch_size=auto: fitted to what the configuration builds, but the "
                f"fixture {name!r} is this project's own; state a number, training.batch_size=N"
            )
    configuration = case_of(request).configuration
    setup_of = partial(
        TrainingSetup.of,
        workload=request.getfixturevalue("workload"),
        precision=request.getfixturevalue("precision"),
        group=request.getfixturevalue("process_group"),
    )
    fits = _trains if "trainer" in request.fixturenames else _infers
    return configuration.with_samples(fitted_samples(request, configuration, setup_of, fits))


def fitted_samples(
    request: pytest.FixtureRequest,
    configuration: Configuration[Any],
    setup_of: Callable[[Configuration[Any]], TrainingSetup],
    fits: Fits | None = None,
) -> int:
    """The largest batch of which the step in `configuration`, as `setup_of` sets it up, fits.

    Without `fits` it is a training step.

    The fit goes on record. The trials may have compiled, so that no later call is a first one.

    Raises:
        Unsupported: the benchmark has several ranks.
        DoesNotFit: not even the smallest batch fits.
    """
    if (ranks := case_of(request).world_size) > 1:
        raise Unsupported(
            "training.batch_size=auto: a rank out of memory would leave the others waiting; "
            f"allowed on {ranks} ranks: a number, or data.global_batch_size"
        )
    # A first step that is skipped makes no optimizer states.
    precision = configuration.precision.model_copy(update={"init_scale": 1.0})
    trial = configuration.model_copy(update={"precision": precision})

    def setup_with(samples: int) -> TrainingSetup:
        return setup_of(trial.with_samples(samples))

    device = request.getfixturevalue("torch_device")
    with state_restored(device):
        smallest = _smallest(setup_with(1))
        with closing(setup_with(1).source()) as source:
            epoch = source.steps_per_epoch  # of a sample each; None: endless
    attempt = partial(_attempt, setup_with, fits or _trains, device)
    fit = fit_batch(attempt, smallest=smallest, epoch=epoch)
    subjects = subjects_of(request)
    subjects.add_check(fit.prepare)
    subjects.is_fitted = True
    return fit.samples


def _smallest(setup: TrainingSetup) -> int:
    """The smallest batch worth trying: batch normalization may have nothing to normalize in one."""
    with FakeTensorMode():
        return 2 if has_batch_norm(setup.workload.for_fake_tensors().build()) else 1


def _attempt(setup_with: SetupOf, fits: Fits, device: torch.device, samples: int) -> str | None:
    """Take steps with `samples` and drop everything: why they do not fit, None if they do.

    Raises:
        Exception: any error of the steps but one of a failed allocation.
    """
    with state_restored(device):
        release_memory(device)
        free = free_bytes(device, local_ranks=1) if device.type == "cpu" else None
        with host_memory_limited(free):
            reason = _failure(setup_with, fits, samples)
    release_memory(device)
    return reason


def _failure(setup_with: SetupOf, fits: Fits, samples: int) -> str | None:
    """What does not fit into memory; None if everything does. No error outlives it."""
    try:
        return None if fits(setup_with(samples)) else _NO_REFERENCE
    except Exception as error:
        allocation = failed_allocation(error)
        if allocation is None:
            raise
        return f"{type(allocation).__name__}: {error_text(allocation)}".partition("\n")[0]


def _infers(setup: TrainingSetup) -> bool:
    """Infer as the fixture does; raises the error of an allocation that fails."""
    _reserve = torch.empty(RESERVE_BYTES, dtype=torch.uint8, device=setup.group.device)
    module = setup.module()
    with closing(setup.source()) as source:
        inference = setup.inference(module, source)
        inference.step()
        synchronize(setup.group.device)
        _inspect(inference.step)
    return True


def _trains(setup: TrainingSetup) -> bool:
    """Rehearse the training as its fixtures build it; whether its reference fits as well.

    Raises:
        Exception: that of an allocation, if the training does not fit.
    """
    _reserve = torch.empty(RESERVE_BYTES, dtype=torch.uint8, device=setup.group.device)
    module = setup.module()
    with nondeterminism_errors(), closing(setup.source()) as source:
        trainer = setup.trainer(module, source, reference=reference_of(setup))
        if not trainer.rehearse():
            return False
        _inspect(trainer.step)
        return True


def _inspect(step: Callable[[], None]) -> None:
    """Inspect a `step` as the bench does, which keeps tensors for longer."""
    try:
        census_of(step)
    except Exception as error:  # any other would leave the census out, as of the bench
        if is_out_of_memory(error):
            raise
