"""What ``measure.throttle`` asks for: wait for throttled GPUs before, or refuse their numbers."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import Throttled, Unsupported
from gpubench_plugin.core.events import ThrottledEvent, ThrottleWaitEvent
from gpubench_plugin.core.quality_flags import THROTTLED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.core.records import Measurement
    from gpubench_plugin.measure.probes.nvml import DeviceState
    from gpubench_plugin.ranks.process_group import RankAgreement
    from gpubench_plugin.results.report_payload import LiveRecord


# Longest wait: a GPU without work has cooled by then, or has other reasons.
LONGEST_WAIT_S: Final = 60.0

# Share of a benchmark's timeout: waiting must not be what it fails by.
TIMEOUT_SHARE: Final = 0.25

# Seconds between two readings.
_POLL_S: Final = 0.5


def require_nvml(case: Case, device_state: DeviceState) -> None:
    """Before the first call on a GPU, with ``wait`` or ``fail``.

    Raises:
        Unsupported: NVML is missing, or does not know the device.
    """
    if not device_state.is_watching:
        raise Unsupported(
            f"measure.throttle={case.configuration.measure.throttle} requires NVML, which does not "
            f"answer for {case.device.torch_name}: pip install 'pytest-gpubench[gpu]'"
        )


def refuse_throttled(measurement: Measurement, record: LiveRecord) -> None:
    """After the timed calls, with ``fail``; the journal keeps the numbers.

    Raises:
        Throttled: a rank's GPU was throttled.
    """
    if THROTTLED in measurement.flags:
        values = {name: metric.value for name, metric in measurement.finite().metrics.items()}
        record.log(ThrottledEvent(flags=measurement.flags, metrics=values).line())
        raise Throttled(
            "the GPU was throttled (measure.throttle=fail); the journal has the numbers"
        )


def wait_while_throttled(
    slowing_reasons: Callable[[], Sequence[str]],
    agreement: RankAgreement,
    *,
    limit_s: float,
) -> ThrottleWaitEvent | None:
    """Wait until no rank's device is throttled, for at most `limit_s`; None if none was.

    `slowing_reasons` tells those of this rank's device now; the event has them as of the start.
    Every rank must call this, and all wait equally long. Heat leaves an idle device; a power limit
    that only work reaches does not show.
    """
    reasons = tuple(slowing_reasons())
    is_throttled = _on_any_rank(reasons, agreement)
    if not is_throttled:
        return None
    start_s = monotonic()
    while is_throttled and agreement.decide(int(monotonic() - start_s < limit_s)):
        sleep(min(_POLL_S, limit_s))
        is_throttled = _on_any_rank(slowing_reasons(), agreement)
    return ThrottleWaitEvent(
        waited_s=monotonic() - start_s, reasons=reasons, still_throttled=is_throttled
    )


def _on_any_rank(reasons: Sequence[str], agreement: RankAgreement) -> bool:
    return agreement.mean([float(bool(reasons))])[0] > 0
