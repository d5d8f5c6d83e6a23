from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.quality_flags import DOUBTFUL_FLAGS, NOTES
from gpubench_plugin.measure.metrics.ranks import pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Observation, Samples

FACTS = {"one_process_s": 1.1, "ideal_speed_up": 1.6}


@pytest.mark.parametrize("flag", [*DOUBTFUL_FLAGS, *NOTES])
def test_a_pipeline_in_doubt_has_no_speed_up(
    observe: Callable[..., Observation], sampled: Callable[..., Samples], flag: str
) -> None:
    """Its median may be wrong, so what is divided by it is left out; a note leaves it there."""
    seen = observe(samples=sampled(flags=(flag,)), facts=FACTS, world_size=2)
    found = {metric.name: metric.value for metric in pipeline(seen)}
    gained = {} if flag in DOUBTFUL_FLAGS else {"speed_up": 2.0, "pipeline_efficiency": 1.25}
    assert found == pytest.approx(FACTS | gained)
