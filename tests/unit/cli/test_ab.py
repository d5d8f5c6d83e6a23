"""Tests of what the exit code of ``gpubench ab`` says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpubench_plugin.cli.commands import ab
from gpubench_plugin.cli.commands.base import ExitCode
from gpubench_plugin.cli.main import main
from gpubench_plugin.core.records import Comparison, Verdict


def ended(*verdicts: Verdict, broken: bool = False, judged: bool = True) -> int:
    comparison = Comparison(base="a", head="b", verdicts=verdicts)
    compared = SimpleNamespace(comparison=comparison, broken=broken, judged_series=judged)
    return ab._exit_code(cast("Any", compared))


def verdict(kind: Any, metric: str = "step_time_s") -> Verdict:
    return Verdict(id="test_it.py::test_it", kind=kind, metric=metric)


@pytest.mark.parametrize("kind", ["regressed", "not_measured", "errored"])
def test_what_got_worse_or_nobody_checked_is_no_success(kind: str) -> None:
    """A regression, and a limit on a metric that was not measured or allows no judgement."""
    assert ended(verdict("unchanged"), verdict(kind)) == ExitCode.REGRESSION


def test_what_broke_is_no_success() -> None:
    """A benchmark that works only on the base."""
    assert ended(verdict("errored", metric=""), broken=True) == ExitCode.REGRESSION


def test_nothing_judged_is_not_fine() -> None:
    """Nothing measured on both sides is nothing comparable."""
    assert ended(verdict("not_measured", metric=""), judged=False) == ExitCode.NOTHING_COMPARABLE


def test_where_all_is_incomparable_nothing_was_judged(capsys: pytest.CaptureFixture[str]) -> None:
    """An absolute bound that was met compares nothing; one comparable benchmark suffices."""
    incomparable = verdict("incomparable", metric="")
    bound = replace(verdict("unchanged"), method="absolute")
    assert ended(incomparable, bound) == ExitCode.NOTHING_COMPARABLE
    assert (
        "nothing could be compared: everything measured on both sides is incomparable "
        in capsys.readouterr().err
    )
    assert ended(incomparable, verdict("unchanged")) == ExitCode.OK


@pytest.mark.parametrize("kind", ["unchanged", "improved", "inconclusive", "new", "removed"])
def test_all_else_is_fine(kind: str) -> None:
    """Unchanged and inconclusive verdicts pass."""
    assert ended(verdict(kind)) == ExitCode.OK


@pytest.mark.slow
@pytest.mark.parametrize("text", ["3%", "=3%", "step_time_s=", "step_time_s=3", "mfu<=1"])
def test_a_limit_names_its_metric(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--limit`` requires ``<metric>=<limit>``, since each metric has its own limit."""
    assert main(["ab", "--base=main", f"--limit={text}"]) == ExitCode.USAGE
    assert "--limit" in capsys.readouterr().err
