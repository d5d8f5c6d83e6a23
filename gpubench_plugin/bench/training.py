"""What a benchmark works on: workload, model, data, trainer, inference."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.checks import checkpointing_of, reference_of, resumption_of, seeds_of
from gpubench_plugin.bench.fixtures import case_of, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from gpubench_plugin.config import Configuration
    from gpubench_plugin.distributed import ProcessGroup
    from gpubench_plugin.distributed.parallelism import Parallelism
    from gpubench_plugin.measure import Part
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.training import Evaluator, Inference, Trainer
    from gpubench_plugin.training.data import DataSource
    from gpubench_plugin.workloads import Workload


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Workload[Any]:
    """The workload that the configuration names, as built by its module in ``workloads/``."""
    from gpubench_plugin import catalog
    from gpubench_plugin.errors import UsageProblem

    section = case_of(request).configuration.model
    if section.name is None:
        raise UsageProblem(
            f"{request.node.nodeid}: its configuration names no workload; "
            "give the mark gpubench a config= whose model.name is set"
        )
    made: Workload[Any] = catalog.load("workloads", section.name)(section)
    return made


@pytest.fixture
def _gpubench_parallelism(
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    precision: Precision,
    process_group: ProcessGroup,
) -> Parallelism:
    """How the ranks share the model: what ``distributed.parallelism`` names."""
    from gpubench_plugin import catalog
    from gpubench_plugin.errors import Unsupported

    section = gpubench_config.distributed
    name = section.parallelism
    if name == "auto":
        name = "ddp" if process_group.world.size > 1 else "none"
    chosen: Parallelism = catalog.load("parallelism", name)(process_group, section)
    if reason := chosen.unsupported(precision.compute_dtype):
        raise Unsupported(f"{name}: {reason}")
    chosen.take(workload, gpubench_config.training)
    return chosen


@pytest.fixture
def model(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
    _gpubench_parallelism: Parallelism,
) -> torch.nn.Module:
    """The workload's model: seeded, on the device, in its memory format, wrapped and compiled."""
    from gpubench_plugin.bench.parts import FirstForward
    from gpubench_plugin.training import build_model

    module = build_model(
        workload,
        section=gpubench_config.model,
        seed=gpubench_config.experiment.seed,
        device=torch_device,
        precision=precision,
        compiled=_gpubench_parallelism.compiled,
        wrap=_gpubench_parallelism.wrap,
    )
    parts_of(request).watch(FirstForward(module))
    return module


@pytest.fixture
def data(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
    process_group: ProcessGroup,
    _gpubench_parallelism: Parallelism,
) -> Iterator[DataSource]:
    """Batches on the device: synthetic, of a shipped real data set, or of a path; a rank's share.

    Ranks that share a batch all get the samples of all of them. Workers that load end with the
    benchmark, however it ends.
    """
    from gpubench_plugin.errors import UsageProblem
    from gpubench_plugin.training import Recorded

    configuration = gpubench_config
    if "inference" in request.fixturenames:
        trained = configuration.training.batch_size
        fed = configuration.inference.samples(trained)
        if fed != trained and "trainer" in request.fixturenames:
            raise UsageProblem(
                f"{request.node.nodeid}: inference.batch_size={fed} beside a trainer of "
                f"training.batch_size={trained}: both take the same batches; allowed: {trained}, "
                "or a test of its own for each"
            )
        training = configuration.training.model_copy(update={"batch_size": fed})
        configuration = configuration.model_copy(update={"training": training})
    made = source_of(
        configuration, workload, torch_device, precision, process_group, _gpubench_parallelism
    )
    if description := made.description():
        parts_of(request).add_check(Recorded(data=dict(description)))
    try:
        yield made
    finally:
        made.close()


def source_of(
    configuration: Configuration[Any],
    workload: Workload[Any],
    device: torch.device,
    precision: Precision,
    group: ProcessGroup,
    parallelism: Parallelism,
) -> DataSource:
    """This rank's source of batches, which is to be closed."""
    from gpubench_plugin import catalog

    sharing = _ranks_per_batch(parallelism)
    source: type[DataSource] = catalog.load("data", configuration.data.source)
    return source.configured(
        configuration.data,
        workload,
        batch_size=configuration.training.batch_size * sharing,
        device=device,
        world_size=group.world.size // sharing,
        rank=group.world.rank // sharing,
        seed=configuration.experiment.seed,
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
    _gpubench_parallelism: Parallelism,
) -> Trainer:
    """The training loop: ``gpubench(trainer)``.

    Before it is measured it trains some untimed steps, and what must hold is checked: the loss is
    a finite scalar and falls, no gradient is missing or not finite.
    """
    from gpubench_plugin.training import Trainer

    several = process_group.world.size > 1
    made = Trainer(
        module=model,
        workload=workload,
        data=data,
        precision=precision,
        training=gpubench_config.training,
        precision_section=gpubench_config.precision,
        device=torch_device,
        no_sync=partial(_gpubench_parallelism.no_sync, model),
        agreement=process_group.agreement,
        differs_from_one_process=_gpubench_parallelism.differs_from_one_process(model.train()),
        global_norm=_gpubench_parallelism.gradient_norm if several else None,
        passes=_gpubench_parallelism.passes(model, precision),
        ranks_per_batch=_ranks_per_batch(_gpubench_parallelism),
        reference=reference_of(
            gpubench_config,
            workload,
            precision,
            torch_device,
            process_group,
            _gpubench_parallelism,
            shared=case_of(request).shares_device,
        ),
    )
    before = resumption_of(request, made, process_group, _gpubench_parallelism)
    after: list[Part] = [seeds_of(gpubench_config, process_group)]
    evaluate = None
    if gpubench_config.training.evaluate:
        from gpubench_plugin.training import AfterTraining

        evaluator = evaluator_of(
            model, workload, data, precision, torch_device, process_group, _gpubench_parallelism
        )
        evaluate = cache(evaluator.evaluate)  # for the record, and for the checkpoint
        after.append(AfterTraining(evaluate))
    written = checkpointing_of(request, made, process_group, _gpubench_parallelism, evaluate)
    parts_of(request).add(
        made,
        before=() if before is None else (before,),
        after=after if written is None else (*after, written),
    )
    return made


def evaluator_of(
    model: torch.nn.Module,
    workload: Workload[Any],
    data: DataSource,
    precision: Precision,
    device: torch.device,
    group: ProcessGroup,
    parallelism: Parallelism,
) -> Evaluator:
    """What evaluates the `model` on held-out samples of the `data`."""
    from gpubench_plugin.errors import Unsupported
    from gpubench_plugin.training import Evaluator

    if parallelism.passes(model, precision) is not None:
        raise Unsupported(
            f"{parallelism.name}: no rank has the whole model, which evaluation needs; "
            "use another distributed.parallelism"
        )
    return Evaluator(
        module=model,
        workload=workload,
        data=data,
        precision=precision,
        device=device,
        agreement=group.agreement,
    )


def _ranks_per_batch(parallelism: Parallelism) -> int:
    return parallelism.group.world.size if parallelism.shares_batch else 1


@pytest.fixture
def inference(
    request: pytest.FixtureRequest,
    workload: Workload[Any],
    model: torch.nn.Module,
    data: DataSource,
    precision: Precision,
    torch_device: torch.device,
    _gpubench_parallelism: Parallelism,
) -> Inference:
    """The forward pass alone: ``gpubench(inference)``."""
    from gpubench_plugin.training import Inference

    made = Inference(
        module=model,
        workload=workload,
        data=data,
        precision=precision,
        device=torch_device,
        ranks_per_batch=_ranks_per_batch(_gpubench_parallelism),
    )
    parts_of(request).add(made)
    return made
