"""The ``gpubench`` and ``collective`` fixtures, and the running benchmark's state."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from gpubench_plugin.bench.bench import Bench
    from gpubench_plugin.bench.benchmark_parts import BenchmarkParts
    from gpubench_plugin.config import Case, Configuration
    from gpubench_plugin.distributed import ProcessGroup, TimedCollective
    from gpubench_plugin.distributed.parallelism import Parallelism
    from gpubench_plugin.launchers import BenchmarkState
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.results import BenchmarkFixture
    from gpubench_plugin.workloads import Workload


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Configuration of a benchmark with its components, resolved once for all fixtures."""

    configuration: Configuration[Any]
    workload: Workload[Any]
    device: torch.device
    precision: Precision
    group: ProcessGroup
    parallelism: Parallelism

    @property
    def ranks_per_batch(self) -> int:
        """Number of ranks that share a batch."""
        return self.group.world.size if self.parallelism.shares_batch else 1

    @property
    def global_norm(self) -> Callable[[Iterable[torch.nn.Parameter]], float] | None:
        """Norm of gradients that are spread over the ranks; None for a single rank."""
        return self.parallelism.gradient_norm if self.group.world.size > 1 else None


def case_of(request: pytest.FixtureRequest) -> Case:
    """Case of the benchmark.

    Raises:
        UsageProblem: the test is not a benchmark.
    """
    return _state_of(request).case


@contextmanager
def reconfigured(
    request: pytest.FixtureRequest, configuration: Configuration[Any]
) -> Iterator[Configuration[Any]]:
    """Measure and record the benchmark with `configuration`; one that runs again starts anew."""
    state = _state_of(request)
    original = state.case
    state.case = replace(original, configuration=configuration)
    try:
        yield configuration
    finally:
        state.case = original


def _state_of(request: pytest.FixtureRequest) -> BenchmarkState:
    from gpubench_plugin.errors import UsageProblem
    from gpubench_plugin.launchers import state_of

    state = state_of(request.node)
    if state is None:
        raise UsageProblem(
            f"{request.node.nodeid}: gpubench's fixtures work only in benchmarks; request the "
            "fixture `gpubench` or add @pytest.mark.gpubench()"
        )
    return state


def parts_of(request: pytest.FixtureRequest) -> BenchmarkParts:
    """Parts of the benchmark, which are checked before anything is timed."""
    parts: BenchmarkParts = request.getfixturevalue("_gpubench_parts")
    return parts


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
    from gpubench_plugin.distributed import exchange

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
    _state_of(request).carrier = benchmark
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
    from gpubench_plugin.config import PRECISION
    from gpubench_plugin.distributed import ProcessGroup
    from gpubench_plugin.precision import Precision

    _refuse_shadowed_fixture(request, "process_group", process_group, ProcessGroup)
    precision = None
    if PRECISION in request.fixturenames:  # requested here, every benchmark would use it
        precision = request.getfixturevalue(PRECISION)
        _refuse_shadowed_fixture(request, PRECISION, precision, Precision)
    from gpubench_plugin.launchers import Notes, context_of

    state = _state_of(request)
    state.notes = Notes()  # anew in a rerun
    bench = Bench(
        request.node,
        state=state,
        context=context_of(request.config),
        device=torch_device,
        precision=precision,
        group=process_group,
        parts=parts_of(request),
    )
    yield bench
    bench.release()


def _refuse_shadowed_fixture(
    request: pytest.FixtureRequest, name: str, value: object, kind: type
) -> None:
    """Refuse a benchmark in which a project fixture or parameter shadows one of gpubench's."""
    from gpubench_plugin.errors import UsageProblem

    if not isinstance(value, kind):
        raise UsageProblem(
            f"{request.node.nodeid}: {name!r} is a gpubench fixture, but a fixture or parameter "
            f"of this project shadows it with {value!r}; rename that one"
        )
