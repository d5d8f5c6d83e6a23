"""What the tests of this room share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.presets import preset_of, workload_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.workloads.base import Workload


@pytest.fixture
def make_workload() -> Callable[..., Workload[Any]]:
    """Builds the workload `name` as ``configs/<name>.yaml`` has it, with overrides."""
    return lambda name, preset, *overrides: workload_of(preset_of(name, preset, *overrides))
