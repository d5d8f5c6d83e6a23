"""Tests of ``summary.json`` and its published schema."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from gpubench_plugin.core import records
from gpubench_plugin.core.errors import BrokenFile
from gpubench_plugin.core.records import OUTCOMES, Measurement, Metric, RankTimes
from gpubench_plugin.results import summary
from gpubench_plugin.system import stored
from tests.support.schemas import DESCRIBES

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import RunRecord

PUBLISHED = Path(records.__file__).parents[2] / "docs" / "schemas" / "summary.schema.json"


def validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(PUBLISHED.read_text(encoding="utf-8")))


def written(tmp_path: Path, run: RunRecord) -> Any:
    summary.write_summary(tmp_path / "summary.json", run)
    return json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))


@DESCRIBES
def test_published_schema_is_current() -> None:
    """The schema in ``docs/`` is valid, and the one the models make."""
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(published)
    assert published == stored.json_schema(summary.Summary)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_summary_obeys_the_published_schema(
    tmp_path: Path,
    run_record: Callable[..., RunRecord],
    measured: Callable[..., Measurement],
    outcome: str,
) -> None:
    """A file with any outcome is valid against the published schema."""
    fields = {} if outcome == "measured" else {"metrics": {}, "samples": None, "reason": "why"}
    run = run_record(benchmarks=(measured(outcome=outcome, **fields),))
    validator().validate(written(tmp_path, run))


def test_schema_demands_calls_and_own_time_of_operators(
    tmp_path: Path, run_record: Callable[..., RunRecord], measured: Callable[..., Measurement]
) -> None:
    """Of each that a profile has found."""
    operator = {"name": "aten::mm", "calls": 2, "self_s": 1e-6, "total_s": 2e-6}
    profile = {"time_of": "cpu", "steps": 3, "operators": [operator]}
    run = run_record(benchmarks=(measured(correctness={"operators": profile}),))
    fields = written(tmp_path, run)
    validator().validate(fields)
    del fields["benchmarks"][0]["correctness"]["operators"]["operators"][0]["self_s"]
    with pytest.raises(ValidationError, match="'self_s' is a required property"):
        validator().validate(fields)


def test_ranks_are_listed_and_the_slowest_is_named(
    tmp_path: Path, run_record: Callable[..., RunRecord], measured: Callable[..., Measurement]
) -> None:
    """A row for each rank; the slowest has the longest median, and of equals the lowest number."""
    others = dict.fromkeys(("min_s", "p5_s", "p95_s", "p99_s", "max_s", "total_s"), 1.0)
    ranks = tuple(
        RankTimes(rank=rank, host="here", count=3, median_s=median, **others)
        for rank, median in enumerate((2.0, 3.0, 3.0))
    )
    fields = written(tmp_path, run_record(benchmarks=(measured(ranks=ranks, world_size=3),)))
    validator().validate(fields)
    (benchmark,) = fields["benchmarks"]
    assert benchmark["ranks"] == [asdict(rank) for rank in ranks]
    assert benchmark["slowest_rank"] == 1
    assert stored.restore(Measurement, stored.dump(measured(ranks=ranks)), "it") == measured(
        ranks=ranks
    )


def test_what_json_cannot_hold_costs_only_itself(
    tmp_path: Path, run_record: Callable[..., RunRecord], measured: Callable[..., Measurement]
) -> None:
    """A metric that is no number is flagged, a fact is null; odd characters are escaped."""
    metrics = {**measured().metrics, "mfu": Metric(name="mfu", value=float("nan"), unit="")}
    lost, reason = {"loss_last": float("nan")}, "a\x1b[31m\udcff\n"
    both = (
        measured(metrics=metrics),
        measured(outcome="failed", metrics={}, correctness=lost, reason=reason),
    )
    first, failed = written(tmp_path, run_record(benchmarks=both))["benchmarks"]
    assert sorted(first["metrics"]) == ["samples_per_s", "step_time_s"]
    assert first["flags"] == ["unsteady", "not_finite:mfu"]
    assert failed["correctness"] == {"loss_last": None}
    assert failed["reason"] == "a\x1b[31m\\udcff\n"


def test_what_a_later_version_adds_is_left_out(
    tmp_path: Path, run_record: Callable[..., RunRecord]
) -> None:
    """Keys of a run and of a benchmark that are not known here, as on a server of several teams."""
    fields = written(tmp_path, run_record())
    known = summary.parse(fields, "it")
    fields["later"] = fields["benchmarks"][0]["later"] = 1
    assert summary.parse(fields, "it") == known
    validator().validate(fields)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"status": "fine"}, "status"),
        ({"started": "yesterday"}, "started"),
        ({"run_id": ""}, "run_id"),
        ({"benchmarks": [{"outcome": "fine"}]}, r"benchmarks\.0\.outcome"),
    ],
)
def test_what_breaks_the_schema_is_refused(
    tmp_path: Path, run_record: Callable[..., RunRecord], changes: dict[str, Any], where: str
) -> None:
    """By the reader, which says where, and by the published schema."""
    fields = written(tmp_path, run_record())
    for changed in changes.pop("benchmarks", []):
        fields["benchmarks"][0].update(changed)
    fields.update(changes)
    with pytest.raises(BrokenFile, match=f"it violates the schema at {where}"):
        summary.parse(fields, "it")
    with pytest.raises(ValidationError):
        validator().validate(fields)
