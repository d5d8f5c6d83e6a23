"""Fixtures of configuration, device, ranks and precision."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.running_benchmark import case_of, reconfigured, subjects_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup


@pytest.fixture
def gpubench_config(request: pytest.FixtureRequest) -> Iterator[Configuration[Any]]:
    """The benchmark's resolved configuration.

    For a benchmark of ``trainer`` with the number that ``training.batch_size=auto`` stands for.
    """
    configuration = case_of(request).configuration
    if configuration.training.batch_size != "auto" or "trainer" not in request.fixturenames:
        yield configuration
        return
    from gpubench_plugin.bench.batch_fitting import fitted_configuration

    with reconfigured(request, fitted_configuration(request)) as configuration:
        yield configuration


@pytest.fixture
def world_size(request: pytest.FixtureRequest) -> int:
    """Number of ranks of this benchmark."""
    return case_of(request).world_size


@pytest.fixture
def torch_device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Device to measure on; chosen by --device.

    The process's state (TF32 switches, RNG, thread count, allocator peaks, …) is restored after the
    test.
    """
    import torch

    from gpubench_plugin.launchers.context import context_of
    from gpubench_plugin.measure.state import state_restored
    from gpubench_plugin.ranks.world import threads_per_rank

    case = case_of(request)
    device = torch.device(case.device.torch_name)
    with ExitStack() as stack:
        stack.enter_context(state_restored(device))
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
            _autotune_convolutions(case.configuration)
        torch.set_num_threads(
            threads_per_rank(
                context_of(request.config).ranks.world.local_size,
                configured=case.configuration.distributed.threads,
            )
        )
        if case.configuration.training.deterministic:
            from gpubench_plugin.training.seeding import deterministic

            stack.enter_context(deterministic(device))
        torch.manual_seed(case.configuration.experiment.seed)
        if device.type == "cpu":
            from gpubench_plugin.measure.probes.tensor_memory import TensorMemory

            subjects_of(request).tensor_memory = TensorMemory()
        yield device


def _autotune_convolutions(configuration: Configuration[Any]) -> None:
    """Let cuDNN time its algorithms for each convolution; in preset ``full`` all of them.

    Else the first ten: ``torch.backends.cudnn.benchmark_limit``, where 0 means no limit.
    """
    import torch

    torch.backends.cudnn.benchmark = configuration.model.cudnn_benchmark is not False
    if configuration.experiment.preset == "full":
        torch.backends.cudnn.benchmark_limit = 0


@pytest.fixture
def process_group(request: pytest.FixtureRequest, torch_device: torch.device) -> ProcessGroup:
    """The process group: torchrun's, else a group of one; lives for the session."""
    from gpubench_plugin.launchers.context import context_of

    case = case_of(request)
    return context_of(request.config).ranks.process_group(
        case.configuration.distributed.backend, torch_device, shares_device=case.shares_device
    )


@pytest.fixture
def precision(request: pytest.FixtureRequest, torch_device: torch.device) -> Iterator[Precision]:
    """Numeric precision; chosen by --precision.

    Its global switches are restored after the test. One that the device lacks makes the benchmark
    ``unsupported``.
    """
    from gpubench_plugin.core import catalog
    from gpubench_plugin.core.errors import Unsupported

    name = case_of(request).precision
    selected: Precision = catalog.load("precision", name)()
    if reason := selected.unsupported(torch_device):
        raise Unsupported(f"{name}: {reason}")
    with selected.switches():
        yield selected
