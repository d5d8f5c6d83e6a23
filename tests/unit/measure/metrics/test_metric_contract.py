"""What every source of metrics keeps to; a new one is covered without a change here."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, get_args

import pytest

from gpubench_plugin.core import catalog
from gpubench_plugin.core.records import Better, Metric
from gpubench_plugin.measure.metrics.base import UNITS
from tests.support.observations import observe, sampled

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Observation

SOURCES = catalog.choices("metrics")


def computed(source: str, seen: Observation) -> list[Metric]:
    return list(catalog.load("metrics", source)(seen))


@pytest.mark.parametrize("source", SOURCES)
def test_values_are_finite_floats(source: str, everything: Observation) -> None:
    """A source gives at least one metric when all was seen, each a finite plain float."""
    values = [metric.value for metric in computed(source, everything)]
    assert [(type(value), math.isfinite(value)) for value in values] == [(float, True)] * len(
        values
    )
    assert values != []


@pytest.mark.parametrize("source", SOURCES)
def test_units_and_directions_are_known(source: str, everything: Observation) -> None:
    """Units and directions are among those that reports and comparisons know."""
    unknown = [
        metric
        for metric in computed(source, everything)
        if metric.unit not in UNITS or metric.better not in get_args(Better)
    ]
    assert unknown == []


@pytest.mark.parametrize("source", SOURCES)
def test_the_unit_stands_in_the_name(source: str, everything: Observation) -> None:
    """A time ends in ``_s``, an amount of memory in ``_bytes``, a rate in ``_per_s``."""
    endings = {"s": "_s", "bytes": "_bytes"} | {
        f"{kind}/s": "_per_s" for kind in ("samples", "tokens", "bytes")
    }
    wrong = [
        metric.name
        for metric in computed(source, everything)
        if not metric.name.endswith(endings.get(metric.unit, ""))
    ]
    assert wrong == []


@pytest.mark.parametrize("source", SOURCES)
def test_little_is_enough(source: str) -> None:
    """From one call on an unknown device a source computes what it can, and raises nothing."""
    one_call = sampled(
        durations_s=(0.5,), block_s=(0.5,), block_calls=(1,), warmup_s=(), warmup_calls=0
    )
    seen = observe(samples=one_call, device="cpu", device_name="a processor", precision="fp32")
    values = [metric.value for metric in computed(source, seen)]
    assert [value for value in values if not math.isfinite(value)] == []


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_says_what_it_produces(source: str, everything: Observation) -> None:
    """The names of what is computed when all was seen are those stated, each with a meaning."""
    stated = catalog.load("metrics", source).produces
    assert {metric.name for metric in computed(source, everything)} == set(stated)
    assert all(stated.values())


def test_names_are_unique(everything: Observation) -> None:
    """No two sources compute a metric of the same name."""
    counts = Counter(metric.name for source in SOURCES for metric in computed(source, everything))
    assert [name for name, count in counts.items() if count > 1] == []
