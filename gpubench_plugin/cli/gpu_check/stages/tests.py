"""The tests that need a device."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from gpubench_plugin.cli.gpu_check.stage import StageRun


def tests(run: StageRun) -> None:
    """Run the suite's tests with the mark ``gpu``: some must run, and none fail."""
    run.file_of_suite("tests/integration/gpu")
    report = run.folder / "report.xml"
    command = [
        *(sys.executable, "-m", "pytest", "tests/integration/gpu", "-m", "gpu", "-q"),
        *("-p", "no:cacheprovider", f"--junitxml={report}", f"--basetemp={run.folder / 'tmp'}"),
    ]
    code = run.execute("tests", command, cwd=run.repository)
    suite = ElementTree.parse(report).getroot().find("testsuite") if report.exists() else None
    counts = {
        name: None if suite is None else int(suite.get(name, 0))
        for name in ("tests", "failures", "errors", "skipped")
    }
    cases = [] if suite is None else [c for c in suite.iter("testcase") if _has_failed(c)]
    run.fact(**counts, failed=[f"{c.get('classname')}::{c.get('name')}" for c in cases])
    if counts["skipped"]:
        run.unproven(f"{counts['skipped']} of the tests that need a device were skipped")
    run.check("tests that ran", _difference(counts["tests"], counts["skipped"]), "at_least", 1)
    run.check("failures", counts["failures"], "equal", 0)
    run.check("errors", counts["errors"], "equal", 0)
    run.check("exit code", code, "equal", 0)


def _difference(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first - second


def _has_failed(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None
