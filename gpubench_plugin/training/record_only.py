"""Parts of a benchmark that only add to its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpubench_plugin.records import Check

if TYPE_CHECKING:
    from gpubench_plugin.records import Json
    from gpubench_plugin.training.check import Log


class Seeded:
    """Puts the `seeds` into the record, under ``correctness.seeds``."""

    def __init__(self, seeds: Json):
        self._seeds = seeds

    def prepare(self, log: Log) -> Check:
        """The seeds; there is nothing to check."""
        return Check(correctness={"seeds": self._seeds})


class Described:
    """Puts a `description` into the record, under ``correctness.data``; it changes nothing."""

    def __init__(self, description: Mapping[str, object]):
        self._description = description

    def prepare(self, log: Log) -> Check:
        """The description; there is nothing to check."""
        return Check(correctness={"data": dict(self._description)})
