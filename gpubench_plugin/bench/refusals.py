"""What a benchmark's configuration alone tells to be impossible, before anything is set up.

Each component knows what it refuses: a data source, a workload, an optimizer, a parallelism's
backend, the compiler. Here stands only which fixtures ask for which of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin import catalog
from gpubench_plugin.config import fixture_names, overriding_fixture

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from gpubench_plugin.config import Case


def refusal(item: pytest.Item, case: Case) -> str:
    """Reason why the benchmark cannot be set up with the configuration of its `case`; else empty.

    A fixture that the project overrides is not asked: it need not read the configuration.
    """
    fixtures = _own_fixtures(item)
    reasons = (reason(case) for needed, reason in _REASONS if needed <= fixtures)
    if reason := next(filter(None, reasons), ""):
        return reason
    if "trainer" not in fixtures:
        return ""
    from gpubench_plugin.bench.training_checks import checkpoint_refusal

    return checkpoint_refusal(item.config.rootpath, case.configuration.training)


def _own_fixtures(item: pytest.Item) -> frozenset[str]:
    """Fixtures of the test, direct and indirect, but those of the project."""
    return frozenset(n for n in fixture_names(item) if overriding_fixture(item, n) is None)


def _backend(case: Case) -> str:
    section = case.configuration.distributed
    if section.backend == "auto":
        return ""  # without importing torch
    from gpubench_plugin.distributed import backend_refusal

    shares_device = case.shares_device
    return backend_refusal(case.device.type, section.backend, shares_device=shares_device)


def _workload(case: Case) -> str:
    from gpubench_plugin.bench.training import NO_WORKLOAD

    section = case.configuration.model
    return NO_WORKLOAD if section.name is None else str(_workload_class(case).refusal(section))


def _compilation(case: Case) -> str:
    from gpubench_plugin.training import compilation_refusal

    return compilation_refusal(case.configuration.model)


def _data(case: Case) -> str:
    return str(_source(case).refusal(case.configuration.data))


def _batches(case: Case) -> str:
    from gpubench_plugin.bench.training import batch_refusal

    return batch_refusal(case.configuration)


def _training_data(case: Case) -> str:
    return str(_source(case).training_refusal(case.configuration.training))


def _training(case: Case) -> str:
    from gpubench_plugin.bench.training_checks import check_refusal

    training = case.configuration.training
    optimizer = catalog.load("optimizers", training.optimizer)
    return check_refusal(case.configuration) or str(optimizer.refusal(training))


def _convergence(case: Case) -> str:
    from gpubench_plugin.bench.training_checks import convergence_refusal
    from gpubench_plugin.training import Target

    section, training = case.configuration.model, case.configuration.training
    workload = None if section.name is None else _workload_class(case)
    return convergence_refusal(training) or Target.refusal(training, section.name, workload)


def _workload_class(case: Case) -> Any:
    return catalog.load("workloads", case.configuration.model.name)


def _source(case: Case) -> Any:
    return catalog.load("data", case.configuration.data.source)


_REASONS: Final[tuple[tuple[frozenset[str], Callable[[Case], str]], ...]] = (
    (frozenset({"process_group"}), _backend),
    (frozenset({"workload"}), _workload),
    (frozenset({"model"}), _compilation),
    (frozenset({"data"}), _data),
    (frozenset({"data", "inference", "trainer"}), _batches),
    (frozenset({"data", "trainer"}), _training_data),
    (frozenset({"trainer"}), _training),
    (frozenset({"convergence"}), _convergence),
)
"""By the fixtures that a test must have for it to apply."""
