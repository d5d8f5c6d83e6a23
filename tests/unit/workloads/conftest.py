"""What the tests of this room share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.config.resolution import resolve
from gpubench_plugin.core import catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.workloads.base import Workload

ROOT = Path(__file__).parents[3]


@pytest.fixture
def make_workload() -> Callable[..., Workload[Any]]:
    """Builds the workload `name` as ``configs/<name>.yaml`` has it, with overrides."""

    def make(name: str, preset: str, *overrides: str) -> Workload[Any]:
        configuration = resolve(
            name=name,
            preset=preset,
            overlays=[],
            overrides=overrides,
            fixed_values={},
            rootdir=ROOT,
            model_section=lambda workload: catalog.load("workloads", workload).Section,
        )
        return catalog.load("workloads", name)(configuration.model)

    return make
