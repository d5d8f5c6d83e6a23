"""Energy of the timed calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core import catalog

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Observation


@pytest.mark.parametrize(("window_s", "joules"), [(60.0, 1300 / 800), (62.0, None)])
def test_energy_is_that_of_the_samples_unless_other_work_took_some(
    everything: Observation, window_s: float, joules: float | None
) -> None:
    """1300 J for 100 calls of 8 samples in 55 s; the rest of the window is at most a tenth."""
    facts = {**everything.facts, "energy_window_s": window_s}
    energy = catalog.load("metrics", "energy")(replace(everything, facts=facts))
    found = {metric.name: metric.value for metric in energy}
    assert found == ({} if joules is None else {"energy_j_per_sample": pytest.approx(joules)})
