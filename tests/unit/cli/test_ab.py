"""Tests of what the exit code of ``gpubench ab`` says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpubench_plugin.cli.commands.base import ExitCode
from gpubench_plugin.cli.commands.compare import exit_code
from gpubench_plugin.cli.main import main
from gpubench_plugin.core.verdicts import Comparison, Verdict


def ended(*verdicts: Verdict, measured: str = "", missing: str = "pass") -> int:
    comparison = Comparison(base="a", head="b", verdicts=verdicts, measured=frozenset({measured}))
    return exit_code([comparison], missing)


def verdict(kind: Any, metric: str = "step_time_s") -> Verdict:
    return Verdict(id="test_it.py::test_it", kind=kind, metric=metric)


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        (("regressed", "not_measured", "errored"), ExitCode.REGRESSION),
        (("unchanged", "improved", "inconclusive", "new", "removed"), ExitCode.OK),
    ],
)
def test_the_exit_code_follows_from_the_kinds(kinds: tuple[str, ...], code: ExitCode) -> None:
    """What got worse or nobody checked is no success; nothing judged is not fine either."""
    for kind in kinds:
        assert ended(verdict("unchanged"), verdict(kind)) == code
    broken = verdict("errored", metric="")
    assert ended(verdict("unchanged"), broken, measured=broken.id) == ExitCode.REGRESSION
    assert ended(verdict("unchanged"), broken) == ExitCode.OK
    assert ended(verdict("not_measured", metric="")) == ExitCode.NOTHING_COMPARABLE


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ("new", ExitCode.OK),
        ("new removed", ExitCode.OK),
        ("new not_measured errored", ExitCode.OK),
        ("removed", ExitCode.NOTHING_COMPARABLE),
        ("not_measured errored", ExitCode.NOTHING_COMPARABLE),
        ("new incomparable", ExitCode.NOTHING_COMPARABLE),
        ("new no_baseline", ExitCode.NOTHING_COMPARABLE),
        ("", ExitCode.NOTHING_COMPARABLE),
    ],
)
def test_the_first_benchmarks_pass(kinds: str, code: ExitCode) -> None:
    """Those of a base without any; not where both sides have some that cannot be compared."""
    verdicts = [verdict(kind, metric="") for kind in kinds.split()]
    assert ended(*verdicts) == code
    if code == ExitCode.OK:
        assert ended(*verdicts, missing="fail") == ExitCode.REGRESSION


@pytest.mark.parametrize("kind", ["no_baseline", "new", "removed", "incomparable", "not_measured"])
def test_what_one_side_lacks_fails_if_asked(kind: Any) -> None:
    """As with pytest's flag; what the base did not measure either is not missing."""
    one, other = verdict(kind, metric=""), verdict("unchanged")
    assert ended(one, other, measured=one.id) == ExitCode.OK
    assert ended(one, other, measured=one.id, missing="fail") == ExitCode.REGRESSION
    skipped_on_both = kind == "not_measured"
    assert ended(one, other, missing="fail") == (0 if skipped_on_both else ExitCode.REGRESSION)


def test_where_all_is_incomparable_nothing_was_judged() -> None:
    """An absolute bound that was met compares nothing; one comparable benchmark suffices."""
    incomparable = verdict("incomparable", metric="")
    bound = replace(verdict("unchanged"), method="absolute")
    assert ended(incomparable, bound) == ExitCode.NOTHING_COMPARABLE
    assert ended(incomparable, verdict("unchanged")) == ExitCode.OK
    escaped = replace(verdict("incomparable"), limit="2%")
    assert ended(incomparable, escaped, missing="fail") == ExitCode.NOTHING_COMPARABLE
    assert ended(escaped, verdict("unchanged")) == ExitCode.REGRESSION


@pytest.mark.slow
@pytest.mark.parametrize("text", ["3%", "=3%", "step_time_s=", "step_time_s=3", "mfu<=1"])
def test_a_limit_names_its_metric(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--limit`` requires ``<metric>=<limit>``, since each metric has its own limit."""
    assert main(["ab", "--base=main", f"--limit={text}"]) == ExitCode.USAGE
    assert "--limit" in capsys.readouterr().err
