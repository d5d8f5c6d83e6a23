"""Base of the sections of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A frozen section that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    multiples: ClassVar[Mapping[str, str]] = {}
    """Keys whose value must be a multiple of another key's; not a key."""

    @model_validator(mode="after")
    def _check_multiples(self) -> Self:
        for name, divisor in self.multiples.items():
            values, of = getattr(self, name), getattr(self, divisor)
            for value in values if isinstance(values, tuple) else (values,):
                if value % of:
                    raise ValueError(f"{name} {value} is not a multiple of {divisor} {of}")
        return self
