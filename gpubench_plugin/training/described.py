"""What is known of the data, as a part of a benchmark's record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpubench_plugin.records import Check
from gpubench_plugin.training.record_only import Untimed

if TYPE_CHECKING:
    from gpubench_plugin.training.check import Log


class Described(Untimed):
    """Puts a `description` into the record, under ``correctness.data``; it changes nothing."""

    def __init__(self, description: Mapping[str, object]):
        self._description = description

    def prepare(self, log: Log) -> Check:
        """The description; there is nothing to check."""
        return Check(correctness={"data": dict(self._description)})
