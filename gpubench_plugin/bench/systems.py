"""The mixture-of-experts layer as something to measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.running import subjects_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.distributed.process_group import ProcessGroup
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.workloads.moe.measured import MeasuredLayer


@pytest.fixture
def moe_layer(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    precision: Precision,
    process_group: ProcessGroup,
) -> Iterator[Callable[[str], MeasuredLayer]]:
    """Makes a part of a MoE layer to measure: ``gpubench(moe_layer("forward").step)``.

    The section ``moe`` says what the layer is. Its output and gradients are compared with those of
    one process before anything is timed.
    """
    from gpubench_plugin.workloads.moe.construction import Construction
    from gpubench_plugin.workloads.moe.groups import ParallelGroups
    from gpubench_plugin.workloads.moe.measured import MeasuredLayer

    section, world = gpubench_config.moe, process_group.world
    groups = ParallelGroups.of(section, rank=world.rank, world_size=world.size)

    def bound(part: str) -> MeasuredLayer:
        construction = Construction(
            section,
            seed=gpubench_config.experiment.seed,
            groups=groups,
            precision=precision,
            device=process_group.device,
        )
        made = MeasuredLayer(part, construction)
        subjects_of(request).append(made)
        return made

    yield bound
    groups.close()
