from __future__ import annotations

import pytest
from pydantic import ValidationError

from gpubench_plugin.config.options import SECTIONS
from gpubench_plugin.config.sections import Configuration, ModelSection


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
