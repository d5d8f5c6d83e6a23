"""Whatever is killed, and wherever: nothing that had ended is lost, and the next command works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.exhaustive import shown
from tests.support.kill_points import Scenario, survive
from tests.support.scenarios import SCENARIOS, Ingest, Prune

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


STATEMENTS_APART = 5
"""A transaction is there as a whole or not at all, so one statement is much like the next."""


@pytest.mark.parametrize("scenario", shown(Prune, Ingest, exhaustively=SCENARIOS))
def test_a_kill_at_any_point_loses_nothing(scenario: type[Scenario], in_memory: Path) -> None:
    """What the scenario says: what had ended is there and equal, and the rest can be done again."""
    survive(scenario(), in_memory, statements_apart=STATEMENTS_APART)
