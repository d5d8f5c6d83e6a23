"""The benchmark that runs, as the ranks speak of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from gpubench_plugin.environment.waking_clock import WakingClock
    from gpubench_plugin.launchers.deadlines import Deadline


@dataclass(kw_only=True)
class Running:
    """`item`, the benchmark with that `number` on every rank; `reports` once it has ended here.

    `deadline` is by the `clock`, which stands still while a rank of this host is stopped.
    """

    item: pytest.Item
    number: int
    clock: WakingClock
    deadline: Deadline
    reports: Sequence[pytest.TestReport] | None = None
