"""How a run went as a whole, from how its session ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpubench_plugin.records import Measurement, RunStatus

_STATUS: Final[dict[int, RunStatus]] = {
    pytest.ExitCode.OK: "complete",
    pytest.ExitCode.NO_TESTS_COLLECTED: "complete",
    pytest.ExitCode.INTERRUPTED: "interrupted",
}


def status_of(exitstatus: int, rest: Iterable[Measurement]) -> RunStatus:
    """The status of a run, of which `rest` was not selected when it was resumed."""
    status = _STATUS.get(exitstatus, "failed")
    outcomes = {measurement.outcome for measurement in rest}
    if status == "complete" and not outcomes <= {"measured", "skipped", "unsupported"}:
        return "interrupted" if "not_measured" in outcomes else "failed"
    return status


def why_ended(session: pytest.Session) -> str:
    """Why a benchmark was not reached."""
    return str(session.shouldfail or session.shouldstop or "the session ended before it")
