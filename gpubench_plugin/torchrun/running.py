"""The benchmark that runs, as the ranks speak of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from gpubench_plugin.gang.patience import Deadline


@dataclass(kw_only=True)
class Running:
    """`item`, the benchmark with that `number` on every rank; `reports` once it has ended here."""

    item: pytest.Item
    number: int
    deadline: Deadline
    reports: Sequence[pytest.TestReport] | None = None
