"""Fixtures of every benchmark: configuration, device, ranks, precision, and ``gpubench``."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.bench.subjects import (
    Subjects,
    case_of,
    group_of,
    reconfigure,
    require_kinds,
    require_value,
    running_state,
    subjects_of,
)
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Misuse, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from gpubench_plugin.bench.bench import Bench
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.results.pytest_benchmark import BenchmarkFixture
    from gpubench_plugin.training.timed_collective import TimedCollective

_OF_MARK: Final = "of the mark benchmark gpubench takes the group"


@pytest.fixture
def gpubench_config(request: pytest.FixtureRequest) -> Configuration[Any]:
    """The benchmark's resolved configuration.

    Beside ``trainer`` or ``inference``, ``training.batch_size=auto`` is replaced by the number that
    fits.
    """
    configuration = case_of(request).configuration
    names, size = request.fixturenames, configuration.inference.batch_size
    has_step = "trainer" in names or ("inference" in names and size is None)
    if configuration.training.batch_size != "auto" or not has_step:
        return configuration
    from gpubench_plugin.bench.batch_fitting import fitted_configuration

    return reconfigure(request, fitted_configuration(request))


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
    from gpubench_plugin.measure.torch_state import state_restored
    from gpubench_plugin.ranks.world import threads_per_rank

    case = case_of(request)
    device = torch.device(case.device.torch_name)
    with ExitStack() as stack:
        stack.enter_context(state_restored(device))
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
            torch.backends.cudnn.benchmark = case.configuration.model.cudnn_benchmark is not False
        ranks = context_of(request.config).ranks
        torch.set_num_threads(
            threads_per_rank(
                ranks.world.local_size,
                configured=case.configuration.distributed.threads,
                variables=ranks.variables,
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


@pytest.fixture
def _gpubench_process() -> Iterator[None]:
    """State of the process, put back after a benchmark that uses no torch."""
    from gpubench_plugin.measure.process_state import process_restored

    with process_restored():
        yield


@pytest.fixture
def process_group(request: pytest.FixtureRequest, torch_device: torch.device) -> ProcessGroup:
    """The process group: torchrun's, else a group of one; lives for the session."""
    from gpubench_plugin.launchers.context import context_of

    require_kinds(torch_device=torch_device)
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
    name = case_of(request).precision
    selected: Precision = catalog.load("precision", name)()
    if reason := selected.unsupported(torch_device):
        raise Unsupported(f"{name}: {reason}")
    with selected.switches():
        yield selected


@pytest.fixture
def _gpubench_subjects() -> Iterator[Subjects]:
    """Subjects of the benchmark, which hold models, and so live no longer than the test."""
    subjects = Subjects()
    yield subjects
    subjects.stop_tracking()


@pytest.fixture
def collective(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    process_group: ProcessGroup,
    precision: Precision,
) -> Callable[[str, str], TimedCollective]:
    """Factory of collectives to measure: ``gpubench(collective("all-reduce", "1MiB"))``.

    It exchanges the precision's compute dtype, and is verified on every rank; one per test.
    """
    from gpubench_plugin.training.timed_collective import exchange

    def make_exchange(name: str, size: str) -> TimedCollective:
        subject = exchange(
            name,
            size,
            group=process_group,
            largest_bytes=gpubench_config.distributed.largest_message_bytes,
            computed_in=precision.compute_dtype,
        )
        return subjects_of(request).add(subject)

    return make_exchange


@pytest.fixture
def _gpubench_carrier(
    request: pytest.FixtureRequest, benchmark: BenchmarkFixture
) -> BenchmarkFixture:
    """pytest-benchmark's fixture, created early so that it exists if a later fixture skips."""
    from gpubench_plugin.bench.refusals import measurement_refusal
    from gpubench_plugin.results import pytest_benchmark

    if reason := measurement_refusal(request.node):  # of a test that asks for gpubench by name only
        pytest_benchmark.claim_unused(benchmark)
        raise Misuse(reason)
    pytest_benchmark.reserve(benchmark)  # which the test may get by request.getfixturevalue
    running_state(request).fixture = benchmark
    return benchmark


@pytest.fixture
def gpubench(
    request: pytest.FixtureRequest, _gpubench_carrier: BenchmarkFixture, world_size: int
) -> Iterator[Bench]:
    """Measure a step: ``gpubench(step, samples=…)``; see :meth:`Bench.__call__`."""
    from gpubench_plugin.bench.bench import Bench
    from gpubench_plugin.bench.measuring import Measuring
    from gpubench_plugin.config.parametrization import FOREIGN_FIXTURE, PRECISION
    from gpubench_plugin.launchers.context import context_of
    from gpubench_plugin.results import pytest_benchmark

    mark = request.node.get_closest_marker(FOREIGN_FIXTURE)
    if mark is not None and (ignored := mark.kwargs.keys() - {"group"}):
        text = f"{_OF_MARK}, not {', '.join(sorted(ignored))}; see --measure.min_rounds and others"
        warnings.warn(text, pytest.PytestWarning, stacklevel=1)  # once for all tests
    state = running_state(request)
    group = group_of(request)
    require_value("world_size", world_size, state.case.world_size)
    precision: Precision | None = None
    if PRECISION in request.fixturenames:  # requested here, every benchmark would use it
        precision = request.getfixturevalue(PRECISION)
        require_kinds(precision=precision)
        require_value(PRECISION, precision.name, state.case.precision)
    measuring = Measuring(
        item=request.node,
        state=state,
        fixture=_gpubench_carrier,
        context=context_of(request.config),
        precision=precision,
        group=group,
        subjects=subjects_of(request),
    )
    yield Bench(measuring, request)
    measuring.result = None  # frees it
    if pytest_benchmark.claim_unused(_gpubench_carrier):
        text = "the test requests gpubench, but never calls it: nothing was measured"
        line = request.node.location[1] or 0
        category = pytest.PytestWarning
        warnings.warn_explicit(text, category, filename=str(request.path), lineno=line + 1)
