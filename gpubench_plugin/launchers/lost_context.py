"""Loss of this process's CUDA context: its first sign is reported once, as a crash.

After an illegal access or an assertion in a kernel every later call of the process fails in the
same words, also in tear-downs. No benchmark can run there any more: that needs another process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import error_text
from gpubench_plugin.environment.device_errors import (
    is_only_lost_context,
    lost_context,
    query_context,
)
from gpubench_plugin.launchers import report_payload
from gpubench_plugin.results.outcomes import crash_reason

if TYPE_CHECKING:
    from gpubench_plugin.config.case import Case


class LostContext:
    """Whether a benchmark has lost this process's context; `reason` is empty if none has."""

    def __init__(self) -> None:
        self.reason = ""
        self._nodeid = ""

    def explains(self, error: BaseException) -> bool:
        """Whether `error` says no more than that the context, known as lost, is still lost."""
        return bool(self.reason) and is_only_lost_context(error)

    def forgive_teardown(self, report: pytest.TestReport, error: BaseException) -> bool:
        """Turn a tear-down's error into a pass that an earlier phase of the test explains."""
        is_explained = (
            report.when == "teardown" and report.nodeid == self._nodeid and self.explains(error)
        )
        if is_explained:
            report.outcome, report.longrepr = "passed", None
            vars(report).pop("wasxfail", None)  # else it would be an unexpected pass
            text = f"the tear-down raised {type(error).__name__}: {error_text(error)}"
            report.sections.append(("Lost context", text))
        return is_explained

    def detect(self, report: pytest.TestReport, error: BaseException, case: Case) -> None:
        """Mark the `report` if `error` comes of a lost context, asking the device if need be.

        A skip becomes a failure, an expected failure stays one.
        """
        lost = lost_context(error)
        if lost is None and not isinstance(error, pytest.skip.Exception):
            lost = query_context(case.device.torch_name)
        if lost is None:
            return
        reason = crash_reason(error, lost)
        self.reason, self._nodeid = reason, report.nodeid
        report_payload.mark_context_lost(report)
        if hasattr(report, "wasxfail"):
            return
        if report.skipped:
            report_payload.override(report, "crashed", reason)
        else:
            report_payload.set_outcome(report, "crashed", reason)
