"""The files of a comparison, and what GitHub is told."""

from __future__ import annotations

import io
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench_plugin.cli.ab import comparison
from gpubench_plugin.cli.ab.comparison import write_files
from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.saved_state import SavedState
from gpubench_plugin.cli.commands.ab import Ab
from gpubench_plugin.cli.commands.base import ExitCode
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.reports import github
from tests.support.messages import mentions

if TYPE_CHECKING:
    import pytest

COMPARISON = Comparison(
    base="main",
    head="working tree",
    verdicts=(
        Verdict(
            id="bench/test_a.py::test_a",
            metric="step_time_s",
            unit="s",
            better="lower",
            kind="regressed",
            method="paired",
            base=1.0,
            head=1.1,
            effect=0.1,
            interval=(0.08, 0.12),
            launches=5,
            limit="2%",
            reason="10% slower",
        ),
    ),
)


def test_the_verdicts_are_written_for_machines_and_people(tmp_path: Path) -> None:
    """In the comparison's folder and, where GitHub runs it, on its page, with annotations."""
    write_files(tmp_path, COMPARISON)
    document = json.loads((tmp_path / "verdicts.json").read_text())
    assert document["benchmarks"][0]["verdict"] == "regressed"
    assert "10% slower" in (tmp_path / "report.md").read_text()
    page = tmp_path / "page.md"
    page.write_text("before\n")
    command = ["gpubench", "ab", "--base=main", "--", "-k", "a b"]
    locations = {"bench/test_a.py::test_a": ("bench/test_a.py", 7)}
    assert github.publish(COMPARISON, locations, reproduce=command, environ={}) == ([], "")
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}
    lines, problem = github.publish(COMPARISON, locations, reproduce=command, environ=environ)
    assert page.read_text().startswith("before\n")
    assert "gpubench ab --base=main -- -k 'a b'" in page.read_text()
    assert "::error file=bench/test_a.py,line=7," in lines[0]
    assert problem == ""
    environ = {"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "page.md")}
    lines, problem = github.publish(COMPARISON, {}, reproduce=["gpubench"], environ=environ)
    assert lines == []
    assert problem.startswith("cannot write GITHUB_STEP_SUMMARY=")
    assert problem.endswith("page.md: No such file or directory")


def test_github_is_told_before_the_output_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader that goes away, or a full disk, costs no page, no exit code and no advice."""
    page = tmp_path / "page.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    compared = COMPARISON, {}, "to decide it: gpubench ab --resume=x --pairs=30"

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    def run() -> tuple[ExitCode, str]:
        options = Namespace(format="table", output=None, resume="x", pairs=None, time=None)
        with monkeypatch.context() as patch:
            begun = SavedState(
                folder=tmp_path, request=Request(here=tmp_path, base="main"), identity={}, seed=0
            )
            patch.setattr(SavedState, "read", lambda _: begun)
            patch.setattr(comparison, "resolve_sides", lambda _: {})
            patch.setattr(comparison, "compare", lambda *_: compared)
            patch.setattr(sys, "stdout", Gone())
            code = Ab().run(options)
        return ExitCode(code), capsys.readouterr().err.splitlines()[-1]

    code, last = run()
    assert code == ExitCode.REGRESSION
    assert "regressed" in page.read_text()
    assert mentions(last, "gpubench ab: to decide it: gpubench ab --resume=x --pairs=30")
