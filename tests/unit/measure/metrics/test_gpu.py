"""Energy of the timed calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core import catalog

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Observation


@pytest.mark.parametrize(("window_s", "per_sample"), [(60.0, True), (62.0, False)])
def test_energy_of_other_work_is_not_the_samples(
    everything: Observation, window_s: float, per_sample: bool
) -> None:
    """Of 55 timed seconds in a longer window, the rest may have been setups: at most a tenth."""
    facts = {**everything.facts, "energy_window_s": window_s}
    names = {
        metric.name
        for metric in catalog.load("metrics", "energy")(replace(everything, facts=facts))
    }
    assert ("energy_j_per_sample" in names) is per_sample
    assert "power_w" in names


def test_energy_is_divided_by_the_samples_of_all_timed_calls(everything: Observation) -> None:
    """1300 J of both ranks for 100 calls of 8 samples."""
    metrics = {m.name: m.value for m in catalog.load("metrics", "energy")(everything)}
    assert everything.samples.calls == 100
    assert metrics == {"power_w": 650, "energy_j_per_sample": pytest.approx(1300 / 800)}
