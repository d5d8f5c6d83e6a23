"""Parts of a measurement that only add to its record: over when the timed steps begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpubench_plugin.records import Check, Work

if TYPE_CHECKING:
    from gpubench_plugin.records import Json
    from gpubench_plugin.training.check import Log


class Untimed:
    """A subject of a measurement that counts nothing while it runs."""

    def begin(self) -> None:
        """Nothing is counted."""

    def finish(self) -> Mapping[str, float]:
        """Nothing is counted."""
        return {}

    def work(self) -> Work:
        """None of its own."""
        return Work()

    def flops_step(self) -> None:
        """Nothing: what is timed is the trainer's step."""


class Seeded(Untimed):
    """Puts the `seeds` into the record, under ``correctness.seeds``."""

    def __init__(self, seeds: Json):
        self._seeds = seeds

    def prepare(self, log: Log) -> Check:
        """The seeds; there is nothing to check."""
        return Check(correctness={"seeds": self._seeds})


class Described(Untimed):
    """Puts a `description` into the record, under ``correctness.data``; it changes nothing."""

    def __init__(self, description: Mapping[str, object]):
        self._description = description

    def prepare(self, log: Log) -> Check:
        """The description; there is nothing to check."""
        return Check(correctness={"data": dict(self._description)})
