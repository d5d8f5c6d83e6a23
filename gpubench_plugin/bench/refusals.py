"""What a benchmark's fixtures and configuration tell to be impossible, before any set-up.

Each component knows what it refuses: a data source, a workload, an optimizer, a parallelism's
backend, the compiler. Here stands only which fixtures ask for which of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.config.parametrization import (
    FIXTURE,
    FOREIGN_FIXTURE,
    fixture_names,
    overriding_fixture,
)
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.training.generation import Decode, Prefill


def refusal(item: pytest.Item, case: Case) -> str:
    """Reason why the benchmark cannot be set up with the configuration of its `case`; else empty.

    A fixture that the project overrides is not asked: it need not read the configuration.
    """
    fixtures = _own_fixtures(item)
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
    from gpubench_plugin.bench.training_checks import checkpoint_refusal

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
        is_own = definitions[-1].func.__module__.startswith("gpubench_plugin.")
        if not is_own and FOREIGN_FIXTURE in definitions[-1].argnames:
            return f"with the fixture {name!r} the test {pytest_benchmark.TWO_MEASUREMENTS}"
    return ""


def _own_fixtures(item: pytest.Item) -> frozenset[str]:
    """Fixtures of the test, direct and indirect, but those of the project."""
    return frozenset(n for n in fixture_names(item) if overriding_fixture(item, n) is None)


def _backend(case: Case) -> str:
    section = case.configuration.distributed
    if section.backend == "auto":
        return ""  # without importing torch
    from gpubench_plugin.ranks.process_group import backend_refusal

    shares_device = case.shares_device
    return backend_refusal(case.device.type, section.backend, shares_device=shares_device)


def _parallelism(case: Case) -> str:
    name = case.configuration.distributed.parallelism
    if name == "auto":  # ddp or none, which refuse nothing
        return ""
    parallelism = catalog.load("parallelism", name)
    section, training = case.configuration.distributed, case.configuration.training
    return str(parallelism.refusal(section, training, ranks=case.world_size))


def _workload(case: Case) -> str:
    from gpubench_plugin.bench.training import NO_WORKLOAD

    section = case.configuration.model
    return NO_WORKLOAD if section.name is None else str(_workload_class(case).refusal(section))


def _compilation(case: Case) -> str:
    from gpubench_plugin.training.compile import compilation_refusal

    return compilation_refusal(case.configuration.model)


def _data(case: Case) -> str:
    return str(_source(case).refusal(case.configuration.data))


def _batches(case: Case) -> str:
    from gpubench_plugin.bench.training import batch_refusal

    return batch_refusal(case.configuration)


def _training_data(case: Case) -> str:
    return str(_source(case).training_refusal(case.configuration.training))


def _training(case: Case) -> str:
    from gpubench_plugin.bench.training_checks import check_refusal, schedule_refusal

    return check_refusal(case.configuration) or schedule_refusal(case.configuration.training)


def _optimization(case: Case) -> str:
    training = case.configuration.training
    optimizer = catalog.load("optimizers", training.optimizer, key="training.optimizer")
    catalog.load("schedulers", training.scheduler, key="training.scheduler")
    return str(optimizer.refusal(training))


def _convergence(case: Case) -> str:
    from gpubench_plugin.bench.training_checks import convergence_refusal
    from gpubench_plugin.training.convergence import Target

    section, training = case.configuration.model, case.configuration.training
    workload = None if section.name is None else _workload_class(case)
    return convergence_refusal(training) or Target.refusal(training, section.name, workload)


def _prefill(case: Case) -> str:
    from gpubench_plugin.training.generation import Prefill

    return _generation(case, Prefill)


def _decode(case: Case) -> str:
    from gpubench_plugin.training.generation import Decode

    return _generation(case, Decode)


def _generation(case: Case, kind: type[Prefill] | type[Decode]) -> str:
    from gpubench_plugin.workloads._language import CausalLanguageModel

    inference, section = case.configuration.inference, case.configuration.model
    if not issubclass(_workload_class(case), CausalLanguageModel):  # unsupported
        return ""
    prompt_tokens, new_tokens = inference.prompt_tokens, inference.new_tokens
    return kind.refusal(prompt_tokens, new_tokens, positions=section.sequence_length)


def _convergence_data(case: Case) -> str:
    from gpubench_plugin.training.data.base import NOTHING_HELD_OUT

    source = case.configuration.data.source
    return f"data.source={source}: {NOTHING_HELD_OUT}" if _source(case).is_endless else ""


def _workload_class(case: Case) -> Any:
    return catalog.load("workloads", case.configuration.model.name)


def _source(case: Case) -> Any:
    return catalog.load("data", case.configuration.data.source, key="data.source")


_REASONS: Final[tuple[tuple[frozenset[str], Callable[[Case], str]], ...]] = (
    (frozenset({"process_group"}), _backend),
    (frozenset({"workload"}), _workload),
    (frozenset({"model"}), _compilation),
    (frozenset({"data"}), _data),
    (frozenset({"data", "inference", "trainer"}), _batches),
    (frozenset({"data", "trainer"}), _training_data),
    (frozenset({"trainer"}), _training),
    (frozenset({"trainer"}), _optimization),
    (frozenset({"convergence"}), _optimization),
    (frozenset({"convergence"}), _convergence),
    (frozenset({"data", "convergence"}), _convergence_data),
    (frozenset({"_gpubench_setup"}), _parallelism),
    (frozenset({"workload", "prefill"}), _prefill),
    (frozenset({"workload", "decode"}), _decode),
)
"""By the fixtures that a test must have for it to apply."""
