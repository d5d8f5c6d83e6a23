"""Whatever is killed, and wherever: nothing that had ended is lost, and the next command works."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from tests.kill_points import Scenario, survive
from tests.results.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, in memory where there is a file system for that."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kill_at_any_point_loses_nothing(scenario: type[Scenario], in_memory: Path) -> None:
    """What the scenario says: what had ended is there and equal, and the rest can be done again."""
    print(scenario.__name__, survive(scenario(), in_memory, statements_apart=3))
