"""Sections of the configuration, and the sizes that they derive."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gpubench_plugin.config.options import SECTIONS
from gpubench_plugin.config.sections import (
    Configuration,
    InferenceSection,
    ModelSection,
    TrainingSection,
)
from gpubench_plugin.core.errors import Unsupported


def test_the_sections_are_known_without_pydantic() -> None:
    """The names that options know without importing the schema are the schema's."""
    assert tuple(Configuration.model_fields) == SECTIONS


def test_a_configuration_is_frozen() -> None:
    """What runs with it cannot change it; text that looks like a number is no number."""
    configuration = Configuration[ModelSection](model=ModelSection())
    with pytest.raises(ValidationError, match="frozen"):
        configuration.training.batch_size = 3  # type: ignore[misc] # it is frozen
    with pytest.raises(ValidationError, match="valid integer"):
        Configuration[ModelSection].model_validate({"model": {}, "training": {"batch_size": "8"}})


@pytest.mark.parametrize(
    ("keys", "samples"),
    [
        ({}, 8),
        ({"batch_size": 1}, 1),
        ({"batch_size": "max"}, 8),
        ({"batch_size": "max", "largest_batch_size": 64}, 64),
        ({"batch_size": 32, "largest_batch_size": 64}, 32),
    ],
)
def test_samples_are_those_given_the_largest_or_those_of_training(
    keys: dict[str, Any], samples: int
) -> None:
    """A number stands for itself, max for the largest, and nothing for the batch of training."""
    assert samples == InferenceSection(**keys).samples(TrainingSection(batch_size=8))


@pytest.mark.parametrize("keys", [{}, {"batch_size": "max"}])
def test_a_batch_to_be_fitted_to_training_is_none_of_inference(keys: dict[str, Any]) -> None:
    """Where the size would be that of training, the message says which key to set."""
    with pytest.raises(Unsupported, match=r"state a number, inference\.batch_size=N"):
        InferenceSection(**keys).samples(TrainingSection(batch_size="auto"))


def test_a_batch_that_nothing_has_fitted_has_no_number() -> None:
    """Who asks for the samples of ``auto`` is told for which benchmarks it is fitted."""
    with pytest.raises(Unsupported, match="fitted only for benchmarks with the fixture trainer"):
        assert TrainingSection(batch_size="auto").samples
    assert TrainingSection(batch_size="auto").with_samples(5).samples == 5
    assert InferenceSection(batch_size=4).samples(TrainingSection(batch_size="auto")) == 4
