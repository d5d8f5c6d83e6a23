"""What a benchmark's fixtures and configuration tell to be impossible, before any set-up.

Each component knows what it refuses: a data source, a workload, an optimizer, a parallelism's
backend, the compiler. Here stands only which fixtures ask for which of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.config.parametrization import (
    FIXTURE,
    FOREIGN_FIXTURE,
    fixture_names,
    is_own,
    overriding_fixture,
)
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem, did_you_mean
from gpubench_plugin.system import json_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.config.sections import Configuration, TrainingSection

NO_WORKLOAD: Final = (
    "the configuration names no workload; give the gpubench mark a config= that sets model.name"
)


def refusal(item: pytest.Item, case: Case) -> str:
    """Reason why the benchmark cannot be set up with the configuration of its `case`; else empty.

    A fixture that the project overrides is not asked: it need not read the configuration.
    """
    fixtures = frozenset(n for n in fixture_names(item) if overriding_fixture(item, n) is None)
    if FIXTURE in fixtures and (reason := measurement_refusal(item)):
        return reason
    reasons = (reason(case) for needed, reason in _REASONS if needed <= fixtures)
    try:
        if reason := next(filter(None, reasons), ""):
            return reason
    except UsageProblem as error:
        return str(error)
    if "trainer" not in fixtures:
        return ""
    return checkpoint_refusal(item.config.rootpath, case.configuration.training)


def measurement_refusal(item: pytest.Item) -> str:
    """Reason why `item`, a test with ``gpubench``, cannot have its measurement; empty if it can.

    The test, or a fixture of the project, requests pytest-benchmark's ``benchmark`` as well.
    """
    from gpubench_plugin.results import pytest_benchmark

    information = getattr(item, "_fixtureinfo", None)  # of functions
    if information is None:
        return ""
    if FOREIGN_FIXTURE in information.initialnames:
        return f"the test {pytest_benchmark.TWO_MEASUREMENTS}"
    for name, definitions in information.name2fixturedefs.items():
        if not is_own(definitions[-1]) and FOREIGN_FIXTURE in definitions[-1].argnames:
            return f"with the fixture {name!r} the test {pytest_benchmark.TWO_MEASUREMENTS}"
    return ""


def _backend(case: Case) -> str:
    section = case.configuration.distributed
    if section.backend == "auto":
        return ""  # without importing torch
    from gpubench_plugin.ranks.process_group import backend_refusal

    return backend_refusal(case.device.type, section.backend, shares_device=case.shares_device)


def _parallelism(case: Case) -> str:
    section, training = case.configuration.distributed, case.configuration.training
    if section.parallelism == "auto":  # ddp or none, which refuse nothing
        return ""
    parallelism = catalog.load("parallelism", section.parallelism)
    return str(parallelism.refusal(section, training, ranks=case.world_size))


def _workload(case: Case) -> str:
    section = case.configuration.model
    return NO_WORKLOAD if section.name is None else str(_workload_class(case).refusal(section))


def _compilation(case: Case) -> str:
    from gpubench_plugin.training.compile import compilation_refusal

    return compilation_refusal(case.configuration.model)


def _optimization(case: Case) -> str:
    training = case.configuration.training
    optimizer = catalog.load("optimizers", training.optimizer, key="training.optimizer")
    catalog.load("schedulers", training.scheduler, key="training.scheduler")
    return str(optimizer.refusal(training))


def _convergence(case: Case) -> str:
    from gpubench_plugin.training.convergence import Target

    section, training = case.configuration.model, case.configuration.training
    if training.resume is not None:
        return (
            f"training.resume={training.resume}: time to target is measured from the first step; "
            "allowed: null"
        )
    workload = None if section.name is None else _workload_class(case)
    return Target.refusal(training, section.name, workload)


def _convergence_data(case: Case) -> str:
    from gpubench_plugin.training.data.base import NOTHING_HELD_OUT

    source = case.configuration.data.source
    return f"data.source={source}: {NOTHING_HELD_OUT}" if _source(case).is_endless else ""


def _generation(kind: str, case: Case) -> str:
    from gpubench_plugin.training import generation
    from gpubench_plugin.workloads._language import CausalLanguageModel

    if not issubclass(_workload_class(case), CausalLanguageModel):  # unsupported
        return ""
    inference, positions = case.configuration.inference, case.configuration.model.sequence_length
    refusal = getattr(generation, kind).refusal
    return str(refusal(inference.prompt_tokens, inference.new_tokens, positions=positions))


def _workload_class(case: Case) -> Any:
    return catalog.load("workloads", case.configuration.model.name)


def _source(case: Case) -> Any:
    return catalog.load("data", case.configuration.data.source, key="data.source")


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
    from gpubench_plugin.training.checkpoint import LATEST

    path = rootdir / training.resume
    try:
        if (path / LATEST if path.is_dir() else path).exists():
            return ""
        folders = sorted(found.parent.name for found in path.glob(f"*/{LATEST}"))
        problem = f"this folder has no {LATEST}{did_you_mean(folders[:1])}" if path.exists() else ""
    except OSError as error:  # no permission, or a name that is too long
        return f"training.resume={training.resume}: {error.strerror}"
    problem = problem or f"no such file or folder{json_files.nearest_hint(path)}"
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


def _batches(case: Case) -> str:
    """Reason why trainer and inference cannot share batches; empty if they can."""
    configuration = case.configuration
    training_size = configuration.training.batch_size
    batch_size = configuration.inference.samples(configuration.training)
    if batch_size == training_size:
        return ""
    return (
        f"inference.batch_size={batch_size} conflicts with training.batch_size={training_size} of "
        f"the trainer, since both read the same batches; allowed: {training_size}, or separate "
        "tests"
    )


_REASONS: Final[tuple[tuple[frozenset[str], Callable[[Case], str]], ...]] = (
    (frozenset({"process_group"}), _backend),
    (frozenset({"workload"}), _workload),
    (frozenset({"model"}), _compilation),
    (frozenset({"data"}), lambda case: str(_source(case).refusal(case.configuration.data))),
    (frozenset({"data", "inference", "trainer"}), _batches),
    (
        frozenset({"data", "trainer"}),
        lambda case: str(_source(case).training_refusal(case.configuration.training)),
    ),
    (frozenset({"trainer"}), lambda case: check_refusal(case.configuration)),
    (frozenset({"trainer"}), lambda case: schedule_refusal(case.configuration.training)),
    (frozenset({"trainer"}), _optimization),
    (frozenset({"convergence"}), _optimization),
    (frozenset({"convergence"}), _convergence),
    (frozenset({"data", "convergence"}), _convergence_data),
    (frozenset({"_gpubench_setup"}), _parallelism),
    (frozenset({"workload", "prefill"}), partial(_generation, "Prefill")),
    (frozenset({"workload", "decode"}), partial(_generation, "Decode")),
)
"""By the fixtures that a test must have for it to apply."""
