"""The keys of inference: how much at once, and how long the texts are."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubench_plugin.config.section import PositiveInt, Section


class InferenceSection(Section):
    """Forward passes, and generating text token by token."""

    batch_size: PositiveInt | Literal["max"] | None = Field(
        default=None, description="Samples per call; max: the largest; null: training.batch_size"
    )
    largest_batch_size: PositiveInt | None = Field(
        default=None, description="What max stands for; null: training.batch_size"
    )
    prompt_tokens: PositiveInt | None = Field(
        default=None, description="Generation: given tokens; null: half of model.sequence_length"
    )
    new_tokens: PositiveInt | None = Field(
        default=None, description="Generation: tokens until it starts anew; null: the other half"
    )

    def samples(self, training_batch_size: int) -> int:
        """Samples per call."""
        if self.batch_size == "max":
            return self.largest_batch_size or training_batch_size
        return self.batch_size or training_batch_size
