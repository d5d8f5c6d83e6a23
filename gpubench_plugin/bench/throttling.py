"""What ``measure.throttle`` asks for: wait for throttled GPUs before, or refuse their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.core.errors import Throttled, Unsupported
from gpubench_plugin.core.events import ThrottledEvent, ThrottleWaitEvent
from gpubench_plugin.core.quality_flags import THROTTLED

if TYPE_CHECKING:
    from gpubench_plugin.config.case import Case
    from gpubench_plugin.core.records import Measurement
    from gpubench_plugin.launchers.context import RunContext
    from gpubench_plugin.launchers.report_payload import Notes
    from gpubench_plugin.measure.probes.nvml import DeviceState
    from gpubench_plugin.ranks.process_group import RankAgreement
    from gpubench_plugin.ranks.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class ThrottlePolicy:
    """``measure.throttle`` of a `case`, applied on all its ranks; its `notes` go to the journal."""

    case: Case
    notes: Notes
    context: RunContext

    def guard(
        self, device_state: DeviceState, *, agreement: RankAgreement, reduction: Reduction
    ) -> None:
        """Before the first call: with ``wait`` wait until no GPU is throttled.

        Raises:
            Unsupported: ``wait`` or ``fail``, but NVML is missing, or does not know the device.
            CorrectnessError: that is so on another rank.
        """
        throttle = self.case.configuration.measure.throttle
        if throttle == "flag" or self.case.device.type != "cuda":
            return
        failure: Exception | None = None
        if not device_state.is_watching:
            failure = Unsupported(
                f"measure.throttle={throttle} requires NVML, which does not answer for "
                f"{self.case.device.torch_name}: pip install 'pytest-gpubench[gpu]'"
            )
        reduction.raise_check_failures(failure)
        if throttle == "wait":
            self._wait(device_state, agreement)

    def _wait(self, device_state: DeviceState, agreement: RankAgreement) -> None:
        """Wait on all ranks until no GPU is throttled; journal the wait."""
        from gpubench_plugin.measure.throttle import longest_wait_s, wait_while_throttled

        timeout_s = self.case.timeout_s(self.context.settings.timeout_s)
        wait = wait_while_throttled(
            device_state.slowing_reasons, agreement, limit_s=longest_wait_s(timeout_s)
        )
        if wait is not None:
            self.notes.log(ThrottleWaitEvent(**vars(wait)).line())

    def refuse(self, measurement: Measurement) -> None:
        """After the timed calls: fail as ``fail`` asks for; the journal keeps the numbers.

        Raises:
            Throttled: a rank's GPU was throttled.
        """
        is_refused = self.case.configuration.measure.throttle == "fail"
        if not is_refused or THROTTLED not in measurement.flags:
            return
        values = {name: metric.value for name, metric in measurement.finite().metrics.items()}
        self.notes.log(ThrottledEvent(flags=measurement.flags, metrics=values).line())
        raise Throttled(
            "the GPU was throttled (measure.throttle=fail); the journal has the numbers"
        )
