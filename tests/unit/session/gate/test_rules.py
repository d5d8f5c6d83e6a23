"""What fails the gate, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench_plugin.compare.policy import Policy
from gpubench_plugin.core.verdicts import VERDICT_KINDS, Comparison, Verdict
from gpubench_plugin.session.gate.judgement import gate_outcome, verdict_line
from tests.support.messages import mentions


def verdict(kind: Any, metric: str = "step_time_s", **fields: Any) -> Verdict:
    return Verdict(id="test_x.py::test_a", metric=metric, kind=kind, **fields)


def compared(*verdicts: Verdict, measured: str = "") -> Comparison:
    return Comparison(base="a", head="b", verdicts=verdicts, measured=frozenset({measured}))


@pytest.mark.parametrize("kind", VERDICT_KINDS)
def test_by_default_regressions_and_unchecked_limits_fail_and_nothing_else(kind: Any) -> None:
    """A limit of a metric that the benchmark lacks is unchecked; each flag adds its own kinds."""
    fails = kind in {"regressed", "not_measured", "errored"}
    is_missing = kind in {"no_baseline", "new", "removed", "incomparable"}
    assert Policy().fails(verdict(kind)) == fails
    assert Policy(missing="fail").fails(verdict(kind)) == (fails or is_missing)
    strict = Policy(inconclusive="fail")
    assert strict.fails(verdict(kind)) == (fails or kind == "inconclusive")
    assert not (is_missing and strict.fails(verdict(kind, metric="")))


@pytest.mark.parametrize("kind", ["not_measured", "errored"])
def test_a_benchmark_that_was_not_measured_at_all_speaks_for_itself(kind: Any) -> None:
    """Its own result says what happened; the gate adds nothing."""
    assert not Policy().fails(verdict(kind, metric=""))


def test_a_benchmark_that_only_the_base_measured_is_named() -> None:
    """Skipped, unsupported or gone; not one that the base skipped as well."""
    lost, gone = verdict("not_measured", metric=""), verdict("removed", metric="")
    for flag in ("pass", "fail"):
        policy = Policy(missing=flag, comparison=compared(lost, gone, measured=lost.id))
        assert [policy.fails(one) for one in (lost, gone)] == [flag == "fail"] * 2
        assert list(policy.undecided_notes()) == [
            f"1 removed (test_x.py::test_a): {flag} (--gate-missing={flag})",
            f"1 not measured any more (test_x.py::test_a): {flag} (--gate-missing={flag})",
        ]
    alike = Policy(missing="fail", comparison=compared(lost))
    assert not alike.fails(lost)
    assert list(alike.undecided_notes()) == []


def test_each_undecided_kind_is_said_with_its_count_and_its_policy() -> None:
    """Kinds are never merged into one number."""
    found = [verdict(k) for k in ("new", "no_baseline", "no_baseline", "inconclusive", "unchanged")]
    assert list(Policy(comparison=compared(*found), inconclusive="fail").undecided_notes()) == [
        "2 without baseline: pass (--gate-missing=pass)",
        "1 new: pass (--gate-missing=pass)",
        "1 inconclusive: fail (--gate-inconclusive=fail)",
    ]


def test_what_is_incomparable_fails_where_nothing_else_could_be_compared() -> None:
    """Whatever --gate-missing says; new benchmarks beside it still pass."""
    found = [verdict("incomparable"), verdict("new")]
    strict = Policy(comparison=compared(*found))
    assert [strict.fails(one) for one in found] == [True, False]
    new, incomparable = strict.undecided_notes()
    assert new == "1 new: pass (--gate-missing=pass)"
    assert mentions(incomparable, "1 incomparable: fail", "set a baseline", "--allow-incomparable")


def test_a_failing_item_has_a_line_per_metric_and_properties_of_all() -> None:
    """The message is of what fails; junit's properties are of every verdict."""
    worse = verdict(
        "regressed", effect=0.25, interval=(0.125, 0.5), limit="2.5%", reason="25% slower"
    )
    better = verdict("improved", metric="peak_memory_bytes", effect=-0.5)
    found = gate_outcome([worse, better], Policy())
    assert found.outcome == "failed"
    assert found.text == "step_time_s regressed: 25% slower"
    assert dict(found.properties) == {
        "step_time_s.verdict": "regressed",
        "step_time_s.effect": "0.25",
        "step_time_s.interval": "0.125..0.5",
        "step_time_s.limit": "2.5%",
        "peak_memory_bytes.verdict": "improved",
        "peak_memory_bytes.effect": "-0.5",
    }


def test_a_line_of_a_whole_benchmark_names_no_metric() -> None:
    """The kind stands in words."""
    said = verdict_line(verdict("no_baseline", metric="", reason="the base has none"))
    assert said == "no baseline: the base has none"


@pytest.mark.parametrize("verdicts", [[verdict("unchanged")], []])
def test_an_item_without_failing_verdicts_passes(verdicts: list[Verdict]) -> None:
    """Also where there is no verdict at all."""
    assert gate_outcome(verdicts, Policy(missing="fail")).outcome == "passed"
