"""The ``gpubench`` and ``collective`` fixtures, and the parts of the running benchmark."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.running_benchmark import parts_of, running_state
from gpubench_plugin.bench.shadowed_fixtures import require_kinds, require_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from gpubench_plugin.bench.bench import Bench
    from gpubench_plugin.bench.benchmark_parts import BenchmarkParts
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.results.pytest_benchmark import BenchmarkFixture
    from gpubench_plugin.training.timed_collective import TimedCollective


@pytest.fixture
def _gpubench_parts() -> Iterator[BenchmarkParts]:
    """Parts of the benchmark, which live no longer than the test, since models are among them."""
    from gpubench_plugin.bench.benchmark_parts import BenchmarkParts

    parts = BenchmarkParts()
    yield parts
    parts.stop_tracking()


@pytest.fixture
def collective(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    torch_device: torch.device,
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
            device=torch_device,
            largest_bytes=gpubench_config.distributed.largest_message_bytes,
            computed_in=precision.compute_dtype,
        )
        parts_of(request).add(subject)
        return subject

    return make_exchange


@pytest.fixture
def _gpubench_carrier(
    request: pytest.FixtureRequest, benchmark: BenchmarkFixture
) -> BenchmarkFixture:
    """pytest-benchmark's fixture, created early so that it exists if a later fixture skips."""
    from gpubench_plugin.bench.refusals import measurement_refusal
    from gpubench_plugin.core.errors import Misuse
    from gpubench_plugin.results import pytest_benchmark

    if reason := measurement_refusal(request.node):  # of a test that asks for gpubench by name only
        pytest_benchmark.claim_unused(benchmark)
        raise Misuse(reason)
    pytest_benchmark.reserve(benchmark)  # which the test may get by request.getfixturevalue
    running_state(request).carrier = benchmark
    return benchmark


@pytest.fixture
def gpubench(
    request: pytest.FixtureRequest,
    _gpubench_carrier: BenchmarkFixture,
    torch_device: torch.device,
    world_size: int,
    process_group: ProcessGroup,
) -> Iterator[Bench]:
    """Measure a step: ``gpubench(step, samples=…)``; see :meth:`Bench.__call__`."""
    from gpubench_plugin.bench.bench import Bench
    from gpubench_plugin.bench.own_models import OwnModels
    from gpubench_plugin.config.parametrization import PRECISION
    from gpubench_plugin.launchers.context import context_of
    from gpubench_plugin.results import pytest_benchmark

    state = running_state(request)
    require_kinds(request, torch_device=torch_device, process_group=process_group)
    require_value(request, "world_size", world_size, state.case.world_size)
    precision: Precision | None = None
    if PRECISION in request.fixturenames:  # requested here, every benchmark would use it
        precision = request.getfixturevalue(PRECISION)
        require_kinds(request, precision=precision)
        require_value(request, PRECISION, precision.name, state.case.precision)
    bench = Bench(
        request.node,
        state=state,
        context=context_of(request.config),
        device=torch_device,
        precision=precision,
        group=process_group,
        parts=parts_of(request),
        own_models=OwnModels(request, torch_device, process_group),
    )
    yield bench
    bench.release()
    if pytest_benchmark.claim_unused(_gpubench_carrier):
        text = "the test requests gpubench, but never calls it: nothing was measured"
        line = request.node.location[1] or 0
        category = pytest.PytestWarning
        warnings.warn_explicit(text, category, filename=str(request.path), lineno=line + 1)
