"""What a benchmark may ask for: devices, precision, ranks, model, data, trainer, and the bench.

Each fixture is usable alone. Everything is imported in the bodies: pytest imports this module in
every project in whose environment the plugin is installed.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from pytest_benchmark.fixture import BenchmarkFixture

    from gpubench_plugin.bench import Bench
    from gpubench_plugin.cases import Case
    from gpubench_plugin.configuration.schema import Configuration
    from gpubench_plugin.distributed.parallelism.base import Parallelism
    from gpubench_plugin.distributed.process_group import ProcessGroup
    from gpubench_plugin.measure.subject import Subject
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.inference import Inference
    from gpubench_plugin.training.trainer import Trainer
    from gpubench_plugin.workloads.base import Workload

_SUBJECTS = pytest.StashKey[list["Subject"]]()


@pytest.fixture
def gpubench_config(request: pytest.FixtureRequest) -> Configuration[Any]:
    """The benchmark's resolved configuration."""
    return _case(request).configuration


@pytest.fixture
def world_size(request: pytest.FixtureRequest) -> int:
    """The number of ranks that run this benchmark together."""
    return _case(request).world_size


@pytest.fixture
def torch_device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The device to measure on; chosen by --device.

    The process' state (TF32 switches, RNG, thread count, allocator peaks, …) is put back after
    the test.
    """
    import torch

    from gpubench_plugin.distributed.threads import threads_per_rank
    from gpubench_plugin.measure.state import preserved
    from gpubench_plugin.ranks import RANKS

    case = _case(request)
    device = torch.device(case.device.torch_name)
    with ExitStack() as stack:
        stack.enter_context(preserved(device))
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
            torch.backends.cudnn.benchmark = case.configuration.model.cudnn_benchmark is not False
        torch.set_num_threads(
            threads_per_rank(
                request.config.stash[RANKS].world.local_size,
                configured=case.configuration.distributed.threads,
            )
        )
        torch.manual_seed(case.configuration.experiment.seed)
        yield device


@pytest.fixture
def process_group(request: pytest.FixtureRequest, torch_device: torch.device) -> ProcessGroup:
    """The ranks that run together: torchrun's, else a group of one. It lives for the session."""
    from gpubench_plugin.ranks import RANKS

    return request.config.stash[RANKS].process_group(
        _case(request).configuration.distributed.backend, torch_device
    )


@pytest.fixture
def precision(request: pytest.FixtureRequest, torch_device: torch.device) -> Iterator[Precision]:
    """The numeric precision; chosen by --precision.

    Its global switches are set for the test and put back after it. A precision that the device
    lacks, or that the benchmark does not offer, makes the benchmark ``unsupported``.
    """
    from gpubench_plugin import catalog
    from gpubench_plugin.errors import Unsupported
    from gpubench_plugin.selection import offers

    name = _case(request).precision
    if not offers(request.node, name):
        raise Unsupported(f"this benchmark does not offer precision {name}")
    chosen: Precision = catalog.load("precision", name)()
    if reason := chosen.unsupported(torch_device):
        raise Unsupported(f"{name}: {reason}")
    with chosen.switches():
        yield chosen


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Workload[Any]:
    """The workload that the configuration names, as built by its module in ``workloads/``."""
    from gpubench_plugin import catalog
    from gpubench_plugin.errors import UsageProblem

    section = _case(request).configuration.model
    if section.name is None:
        raise UsageProblem(
            f"{request.node.nodeid}: its configuration names no workload; "
            "give the mark gpubench a config= whose model.name is set"
        )
    made: Workload[Any] = catalog.load("workloads", section.name)(section)
    return made


@pytest.fixture
def model(
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
    process_group: ProcessGroup,
) -> torch.nn.Module:
    """The workload's model: seeded, on the device, in its memory format, wrapped and compiled."""
    from gpubench_plugin.training.model import build_model

    return build_model(
        workload,
        section=gpubench_config.model,
        seed=gpubench_config.experiment.seed,
        device=torch_device,
        precision=precision,
        wrap=_parallelism(gpubench_config, process_group).wrap,
    )


@pytest.fixture
def data(
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
    process_group: ProcessGroup,
) -> DataSource:
    """Batches on the device: synthetic ones, or this rank's share of a shipped real data set."""
    from gpubench_plugin import catalog

    source: type[DataSource] = catalog.load("data", gpubench_config.data.source)
    return source(
        workload,
        batch_size=gpubench_config.training.batch_size,
        device=torch_device,
        world_size=process_group.world.size,
        rank=process_group.world.rank,
        seed=gpubench_config.experiment.seed,
        convert=precision.convert_batch,
    )


@pytest.fixture
def trainer(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    model: torch.nn.Module,
    data: DataSource,
    precision: Precision,
    torch_device: torch.device,
    process_group: ProcessGroup,
) -> Trainer:
    """The training loop: ``gpubench(trainer.step, samples=trainer.samples_per_step)``.

    Before it is measured it trains some untimed steps, and what must hold is checked: the loss is
    a finite scalar and falls, no gradient is missing or not finite.
    """
    from gpubench_plugin.training.trainer import Trainer

    made = Trainer(
        module=model,
        workload=workload,
        data=data,
        precision=precision,
        training=gpubench_config.training,
        precision_section=gpubench_config.precision,
        device=torch_device,
        no_sync=partial(_parallelism(gpubench_config, process_group).no_sync, model),
    )
    _subjects(request).append(made)
    return made


@pytest.fixture
def inference(
    request: pytest.FixtureRequest,
    workload: Workload[Any],
    model: torch.nn.Module,
    data: DataSource,
    precision: Precision,
    torch_device: torch.device,
) -> Inference:
    """The forward pass alone: ``gpubench(inference.step, samples=inference.samples_per_step)``."""
    from gpubench_plugin.training.inference import Inference

    made = Inference(
        module=model, workload=workload, data=data, precision=precision, device=torch_device
    )
    _subjects(request).append(made)
    return made


@pytest.fixture
def _gpubench_carrier(
    request: pytest.FixtureRequest, benchmark: BenchmarkFixture
) -> BenchmarkFixture:
    """pytest-benchmark's fixture, known also where a later fixture ends the test."""
    from gpubench_plugin.channel import CARRIER

    request.node.stash[CARRIER] = benchmark
    return benchmark


@pytest.fixture
def gpubench(
    request: pytest.FixtureRequest,
    _gpubench_carrier: BenchmarkFixture,
    torch_device: torch.device,
    precision: Precision,
    world_size: int,
    process_group: ProcessGroup,
) -> Bench:
    """Measure a step: ``gpubench(step, samples=…)``; see :class:`gpubench_plugin.bench.Bench`."""
    from gpubench_plugin.bench import Bench
    from gpubench_plugin.distributed.process_group import ProcessGroup
    from gpubench_plugin.precision.base import Precision

    _require_ours(request, "precision", precision, Precision)
    _require_ours(request, "process_group", process_group, ProcessGroup)
    from gpubench_plugin.channel import CARRIED, NOTES, PROGRESS, TRACES, Notes

    request.node.stash[NOTES] = notes = Notes()
    return Bench(
        item=request.node,
        case=_case(request),
        carrier=_gpubench_carrier,
        device=torch_device,
        precision=precision,
        group=process_group,
        subjects=_subjects(request),
        notes=notes,
        traces=request.config.stash.get(TRACES, None),
        carried=request.config.stash.setdefault(CARRIED, {}),
        progress=request.config.stash.get(PROGRESS, None),
    )


def _require_ours(request: pytest.FixtureRequest, name: str, value: object, kind: type) -> None:
    """Refuse a benchmark in which a project's own fixture or parameter has taken our place."""
    from gpubench_plugin.errors import UsageProblem

    if not isinstance(value, kind):
        raise UsageProblem(
            f"{request.node.nodeid}: {name!r} is a fixture of gpubench, and something of that name "
            f"in this project gave {value!r} instead; rename it"
        )


def _case(request: pytest.FixtureRequest) -> Case:
    from gpubench_plugin.cases import CASE
    from gpubench_plugin.errors import UsageProblem

    case: Case | None = request.node.stash.get(CASE, None)
    if case is None:
        raise UsageProblem(
            f"{request.node.nodeid}: gpubench's fixtures work in benchmarks only; ask for the "
            "fixture `gpubench` or add @pytest.mark.gpubench()"
        )
    return case


def _subjects(request: pytest.FixtureRequest) -> list[Subject]:
    if _SUBJECTS not in request.node.stash:
        request.node.stash[_SUBJECTS] = []
        # The stash outlives the test; models must not.
        request.node.addfinalizer(partial(_forget_subjects, request.node))
    subjects: list[Subject] = request.node.stash[_SUBJECTS]
    return subjects


def _forget_subjects(node: pytest.Item) -> None:
    del node.stash[_SUBJECTS]


def _parallelism(configuration: Configuration[Any], group: ProcessGroup) -> Parallelism:
    from gpubench_plugin import catalog

    name = configuration.distributed.parallelism
    if name == "auto":
        name = "ddp" if group.world.size > 1 else "none"
    made: Parallelism = catalog.load("parallelism", name)(group)
    return made
