"""Model FLOP/s utilization."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.measure.metrics._flops import flops_per_device
from gpubench_plugin.measure.metrics._peaks import find
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Observation


class Mfu(MetricSource):
    """The share of the device's dense peak that the counted operations reach.

    Source: A. Chowdhery et al., PaLM (2022), section 4.1, https://arxiv.org/abs/2204.02311. A
    device or a type without a known peak has no MFU: that of another one would be a wrong number.
    """

    name = "mfu"
    produces: ClassVar = {
        "mfu": "Share of the device's dense peak that counted operations reach",
    }
    where = "devices whose peak is known"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fraction of the dense peak, where operations were counted and the peak is known."""
        rate, peak = flops_per_device(seen), find(seen.device_name, seen.precision)
        if rate is not None and peak is not None:
            share = rate / peak.flops_per_s
            yield Metric(name="mfu", value=share, unit="fraction", better="higher")
