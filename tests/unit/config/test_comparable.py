"""Which settings decide whether two measurements are comparable."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench_plugin.compare.comparability import differences_text, settings_differences
from gpubench_plugin.config.case import CUDA_METHOD, comparable
from gpubench_plugin.config.sections import (
    Configuration,
    ExperimentSection,
    ModelSection,
    TrainingSection,
)
from gpubench_plugin.environment.fingerprints import flat
from tests.support.made import result


class Rewritten(ModelSection):
    """Of a workload that computes otherwise than it did."""

    revision = 3


@pytest.mark.parametrize(
    ("section", "expected"), [(ModelSection, {}), (Rewritten, {"model.revision": 3})]
)
def test_revision_of_a_workload_is_compared(section: type[ModelSection], expected: object) -> None:
    """A later revision stands among the settings; the first leaves earlier records comparable."""
    configuration = Configuration[section](model=section())
    assert comparable(configuration) == expected


@pytest.mark.parametrize(
    ("device", "assignments", "expected"),
    [
        ("cpu", {}, None),
        ("cpu", {"init_device": "cpu"}, None),
        ("cuda", {}, "cuda"),
        ("cuda", {"init_device": "cpu"}, None),
        ("cuda", {"name": None}, None),
    ],
)
def test_device_that_draws_the_weights_is_compared(
    device: str, assignments: dict[str, Any], expected: str | None
) -> None:
    """On an accelerator its type is a setting, since losses differ; the CPU is never named."""
    configuration = Configuration[ModelSection](
        model=ModelSection(**{"name": "mlp", **assignments}),
        experiment=ExperimentSection(device=device),
    )
    settings = comparable(configuration)
    assert settings.get("model.init_device_type") == expected
    assert "model.init_device" not in settings


@pytest.mark.parametrize("target", [{"target_accuracy": 0.9}, {"target_loss": 0.1}])
def test_training_to_a_target_starts_from_the_same_weights_everywhere(
    target: dict[str, float],
) -> None:
    """Its course decides its steps and time: the CPU draws the weights on every device."""
    configuration = Configuration[ModelSection](
        model=ModelSection(name="mlp"),
        experiment=ExperimentSection(device="cuda"),
        training=TrainingSection(**target),
    )
    assert configuration.init_device_type == "cpu"


@pytest.mark.parametrize(("device", "expected"), [("cpu", None), ("cuda", CUDA_METHOD)])
def test_method_of_timing_is_compared_on_cuda_alone(device: str, expected: int | None) -> None:
    """So that a change of the clock on CUDA leaves numbers of a CPU comparable."""
    configuration = Configuration[ModelSection](
        model=ModelSection(), experiment=ExperimentSection(device=device)
    )
    assert comparable(configuration).get("measure.cuda_method") == expected
    base, head = result(), result(settings=comparable(configuration))
    assert bool(settings_differences(base, head, is_partial=False)) is (expected is not None)


def test_scope_of_compilation_is_compared_unless_null() -> None:
    """Results without the key are comparable with null; of a rewritten workload both are named."""
    base = result(settings={"model.compile": "default"}, configuration={"model.compile": "default"})
    configurations = (
        Configuration[ModelSection](model=ModelSection(compile="default", compile_scope=scope))
        for scope in (None, "step")
    )
    unset, step = (
        result(settings=comparable(made), configuration=flat(made.model_dump(mode="json")))
        for made in configurations
    )
    assert settings_differences(base, unset, is_partial=False) == ()
    (difference,) = settings_differences(base, step, is_partial=False)
    assert differences_text([difference]) == "model.compile_scope absent in base, step in head"
    base, head = result(), result(settings={"model.revision": 3})
    (difference,) = settings_differences(base, head, is_partial=False)
    assert differences_text([difference]) == "model.revision absent in base, 3 in head"
