"""Work on streams other than the current one, which events of the current one cannot time."""

from __future__ import annotations

from collections.abc import Mapping

from gpubench_plugin.core.quality_flags import ELSEWHERE
from gpubench_plugin.measure.clocks.base import HostClock
from gpubench_plugin.measure.clocks.cuda_device import Event, TorchCuda

# Shorter work is left out: waiting for an idle device costs the host some 10 to 20 µs.
_LEAST_S = 5e-5
_LEAST_SHARE = 0.05


def outlasting_s(device: TorchCuda, last: Event, now: HostClock) -> float:
    """Seconds of the host for which other streams work on after the event `last`.

    Synchronizes with the device. Other work of the host in between does not count, as it would if
    the host's time of the whole block were compared with that of its events.
    """
    last.synchronize()
    current_done = now()
    device.synchronize()
    return (now() - current_done) * 1e-9


def counts(outlasting: float, timed: float) -> bool:
    """Whether work elsewhere outlasts `timed` seconds of events by over 5%, and over 50 µs."""
    return outlasting > max(_LEAST_S, _LEAST_SHARE * timed)


def elsewhere_evidence(outlasting: float, timed: float) -> Mapping[str, float]:
    """Evidence of a block for :func:`elsewhere_flags`; what does not count is zero."""
    return {
        "events_s": timed,
        "elsewhere_s": outlasting if counts(outlasting, timed) else 0.0,
    }


def elsewhere_flags(evidence: Mapping[str, float]) -> tuple[str, ...]:
    """``elsewhere``: other streams outlasted the events by over 5% of all blocks."""
    is_long = evidence["elsewhere_s"] > _LEAST_SHARE * evidence["events_s"]
    return (ELSEWHERE,) if is_long else ()
