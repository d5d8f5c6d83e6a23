"""The role of every process that runs benchmarks: prepare their cases, attach what they tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config.case import CASE
from gpubench_plugin.environment.code import Arrivals
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.results import pytest_benchmark, test_report
from gpubench_plugin.results.outcomes import free

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from gpubench_plugin.distributed.world import World


_ERRORS = pytest.StashKey[list[BaseException]]()


class Rank:
    """Runs benchmarks in this process, one rank of `world`, and reports on each.

    What has been collected below `rootdir` is loaded by now, and known to the run.
    """

    def __init__(self, world: World, rootdir: Path):
        self._world = world
        self._arrivals = Arrivals(rootdir)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a benchmark that does not run on this many ranks."""
        case = item.stash.get(CASE, None)
        if case is not None and (refusal := case.refusal(self._world.size)):
            raise refusal

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # another plugin may make it a failure
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the benchmark's notes to its report; a failed one is not saved as good."""
        report = yield
        if CASE in item.stash:
            files = self._arrivals.look()
            test_report.attach(
                item, call, report, [{"event": "code", "files": files}] if files else ()
            )
            if call.excinfo is not None and isinstance(call.excinfo.value, UsageProblem):
                report.longrepr = f"{item.nodeid}: {call.excinfo.value}"  # no traceback of ours
            keep_out_failed(item, report)
            if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
                item.stash.setdefault(_ERRORS, []).append(call.excinfo.value)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Once nobody looks at them any more, free what failures keep from the next benchmark."""
        handled = yield
        if errors := item.stash.get(_ERRORS, []):
            del item.stash[_ERRORS]
            free(errors)
        return handled


def keep_out_failed(item: pytest.Item, report: pytest.TestReport) -> None:
    """Keep a benchmark that did not pass out of the files of pytest-benchmark."""
    carrier = item.stash.get(test_report.CARRIER, None)
    if not report.passed and carrier is not None:
        pytest_benchmark.mark_failed(carrier)
