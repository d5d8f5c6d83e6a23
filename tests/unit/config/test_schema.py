from __future__ import annotations

import pytest
from pydantic import ValidationError

from gpubench_plugin.config.options import SECTIONS
from gpubench_plugin.config.sections import Configuration, ModelSection

NAMES = (
    "experiment",
    "model",
    "data",
    "training",
    "precision",
    "distributed",
    "measure",
    "profiling",
    "gate",
    "moe",
    "diffusion",
    "micro",
    "inference",
)


def test_the_sections_are_known_without_pydantic() -> None:
    """The names that options know without importing the schema are the schema's."""
    assert (tuple(Configuration.model_fields), tuple(SECTIONS)) == (NAMES, NAMES)


def test_a_configuration_is_frozen() -> None:
    """A resolved configuration cannot be changed by what runs with it."""
    configuration = Configuration[ModelSection](model=ModelSection())
    with pytest.raises(ValidationError, match="frozen"):
        configuration.training.batch_size = 3  # type: ignore[misc] # it is frozen


def test_a_wrong_type_is_refused_not_coerced() -> None:
    """Text that looks like a number is no number."""
    with pytest.raises(ValidationError, match="valid integer"):
        Configuration[ModelSection].model_validate({"model": {}, "training": {"batch_size": "8"}})
