"""The loss of a process's CUDA context is reported once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gpubench_plugin.bench import hooks
from gpubench_plugin.bench.hooks import LostContext
from gpubench_plugin.config.case import Case
from gpubench_plugin.config.marks import BenchmarkMark
from gpubench_plugin.config.sections import Configuration, ModelSection
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.environment.devices import Device
from gpubench_plugin.results import report_payload
from tests.support.phase_reports import phase_report

ASSERT = torch.AcceleratorError("CUDA error: device-side assert triggered\nCompile with")
REASON = "CUDA context lost: AcceleratorError: CUDA error: device-side assert triggered"
CASE = Case(
    id="test_x",
    params={},
    mark=BenchmarkMark(),
    world_size=1,
    device=Device(torch_name="cuda:0", model="a GPU", memory_gib=80.0),
    configuration=Configuration[ModelSection](model=ModelSection()),
)


@pytest.fixture
def queried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices that were asked; each is lost."""
    devices: list[str] = []

    def query(device: str) -> BaseException:
        devices.append(device)
        return ASSERT

    monkeypatch.setattr(hooks, "query_context", query)
    return devices


def payload(report: pytest.TestReport) -> dict[str, Any]:
    """Outcome and reason on a report."""
    return {name: report_payload.read(report).get(name) for name in ("outcome", "reason")}


def test_sticky_error_needs_no_question(queried: list[str]) -> None:
    """The error says it; the device of a dead context is left alone."""
    context, report = LostContext(), phase_report(outcome="failed")

    context.detect(report, ASSERT, CASE)

    assert payload(report) == {"outcome": "crashed", "reason": REASON}
    assert report_payload.is_context_lost(report)
    assert (context.reason, queried) == (REASON, [])


def test_error_of_a_library_is_a_crash_if_the_device_says_so(queried: list[str]) -> None:
    """Libraries report an assertion in an earlier kernel as a failure of their own."""
    context, report = LostContext(), phase_report(outcome="failed")

    context.detect(report, RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED"), CASE)

    reason = f"{REASON}; raised as RuntimeError: CUBLAS_STATUS_EXECUTION_FAILED"
    assert payload(report) == {"outcome": "crashed", "reason": reason}
    assert queried == ["cuda:0"]


def test_ordinary_failure_stays_one() -> None:
    """On a device that works, or in a process that uses none."""
    context, report = LostContext(), phase_report(outcome="failed", reason="ValueError: no")

    context.detect(report, ValueError("no"), CASE)

    assert payload(report) == {"outcome": "failed", "reason": "ValueError: no"}
    assert not report_payload.is_context_lost(report)
    assert context.reason == ""


def test_skip_for_a_lost_context_is_a_crash(queried: list[str]) -> None:
    """What was taken for a refusal was the end of the device; another skip asks nothing."""
    context, report = LostContext(), phase_report("setup", "skipped", kind="unsupported")
    skip = Unsupported("no such kernel")
    skip.__cause__ = ASSERT

    context.detect(report, skip, CASE)

    assert report.failed
    assert payload(report) == {
        "outcome": "crashed",
        "reason": f"{REASON}; raised as Unsupported: no such kernel",
    }
    context.detect(phase_report("setup", "skipped"), pytest.skip.Exception("not now"), CASE)
    assert queried == []


@pytest.mark.parametrize(
    ("error", "forgiven"),
    [
        (ASSERT, True),
        (BaseExceptionGroup("errors while tearing down", [ASSERT, ASSERT]), True),
        (BaseExceptionGroup("errors while tearing down", [ASSERT, OSError()]), False),
        (OSError("no such file"), False),
    ],
)
def test_teardown_repeats_no_loss(error: BaseException, forgiven: bool) -> None:
    """One fault is one report; an error with another cause, or of another test, is one, too."""
    context = LostContext()
    assert not context.forgive_teardown(phase_report("teardown", "failed"), ASSERT)
    context.detect(phase_report(outcome="failed", nodeid="test_y"), ASSERT, CASE)
    assert not context.forgive_teardown(phase_report("teardown", "failed"), ASSERT)
    context.detect(phase_report(outcome="failed"), ASSERT, CASE)
    report = phase_report("teardown", "failed", longrepr="long", wasxfail="a known bug")

    assert context.forgive_teardown(report, error) is forgiven

    assert report.passed is forgiven
    assert bool(report.longrepr) is not forgiven
    assert bool(report.sections) is forgiven
    assert hasattr(report, "wasxfail") is not forgiven
