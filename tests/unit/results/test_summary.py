"""Tests of ``summary.json`` and its published schema."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from gpubench_plugin.core import records
from gpubench_plugin.core.errors import BrokenFile, ResultsError
from gpubench_plugin.core.records import OUTCOMES, Measurement, Metric, RankTimes
from gpubench_plugin.environment import json_files, stored
from gpubench_plugin.results import summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import RunRecord

PUBLISHED = Path(records.__file__).parents[2] / "docs" / "schemas" / "summary.schema.json"


def validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(PUBLISHED.read_text(encoding="utf-8")))


def written(tmp_path: Path, run: RunRecord) -> Any:
    summary.write_summary(tmp_path / "summary.json", run)
    return json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))


def read(path: Path) -> summary.Summary:
    return summary.parse(json_files.load(path), str(path))


def test_published_schema_is_current() -> None:
    """The schema in ``docs/`` is valid, and the one the models make."""
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(published)
    assert published == stored.json_schema(summary.Summary)


def test_summary_holds_what_the_run_found(
    tmp_path: Path, run_record: Callable[..., RunRecord]
) -> None:
    """The file has the fields by which the documentation knows them."""
    assert written(tmp_path, run_record(resumed=("2026-01-31T12:00:05.000000Z",))) == {
        "schema_version": 3,
        "run_id": "20260131T120000Z_run_0a1b2c",
        "experiment": "default",
        "status": "complete",
        "started": "2026-01-31T12:00:00.000000Z",
        "resumed": ["2026-01-31T12:00:05.000000Z"],
        "finished": "2026-01-31T12:00:09.500000Z",
        "command": ["benchmarks", "-k", "mlp"],
        "environment": {"hostname": "here"},
        "benchmarks": [
            {
                "id": "benchmarks/training/test_mlp.py::test_mlp_train[amp-ws1]",
                "name": "test_mlp_train",
                "params": {"precision": "amp", "world_size": "ws1"},
                "world_size": 1,
                "launches": 1,
                "outcome": "measured",
                "reason": "",
                "configuration": {
                    "experiment": {"preset": "tiny"},
                    "precision": {"name": "amp"},
                    "measure": {"by": "ci"},
                },
                "settings": {},
                "limits": {},
                "timer": "",
                "work": {"samples": 8.0, "tokens": None, "bytes": None, "flops": 1e9},
                "metrics": {
                    "step_time_s": {"value": 0.011, "unit": "s", "better": "lower"},
                    "samples_per_s": {"value": 727.25, "unit": "samples/s", "better": "higher"},
                },
                "per_launch": [],
                "ranks": [],
                "slowest_rank": None,
                "flags": ["unsteady"],
                "correctness": {"loss_last": 0.25},
            }
        ],
    }


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


def test_summary_is_read_back(tmp_path: Path, run_record: Callable[..., RunRecord]) -> None:
    """What was written is read back equal."""
    run = run_record()
    fields = written(tmp_path, run)
    read_back = read(tmp_path / "summary.json")
    assert (read_back.run_id, read_back.started, read_back.command) == (
        run.run_id,
        run.started,
        run.command,
    )
    assert json_files.jsonable(stored.dump(read_back)) == fields


def test_ranks_are_listed_and_the_slowest_is_named(
    tmp_path: Path,
    run_record: Callable[..., RunRecord],
    measured: Callable[..., Measurement],
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


def test_summary_without_benchmarks(tmp_path: Path, run_record: Callable[..., RunRecord]) -> None:
    """An interrupted run that measured nothing has a valid summary too."""
    run = run_record(status="interrupted", benchmarks=())
    assert written(tmp_path, run)["benchmarks"] == []


def test_not_finite_metric_costs_only_itself(
    tmp_path: Path,
    run_record: Callable[..., RunRecord],
    measured: Callable[..., Measurement],
) -> None:
    """A metric that is not a number is left out and flagged, all else is written."""
    metrics = {**measured().metrics, "mfu": Metric(name="mfu", value=float("nan"), unit="")}
    (benchmark,) = written(tmp_path, run_record(benchmarks=(measured(metrics=metrics),)))[
        "benchmarks"
    ]
    assert sorted(benchmark["metrics"]) == ["samples_per_s", "step_time_s"]
    assert benchmark["flags"] == ["unsteady", "not_finite:mfu"]


def test_not_finite_fact_becomes_null(
    tmp_path: Path,
    run_record: Callable[..., RunRecord],
    measured: Callable[..., Measurement],
) -> None:
    """A loss that is not a number is null."""
    failed = measured(outcome="failed", metrics={}, correctness={"loss_last": float("nan")})
    (benchmark,) = written(tmp_path, run_record(benchmarks=(failed,)))["benchmarks"]
    assert benchmark["correctness"] == {"loss_last": None}


def test_command_has_no_secret(tmp_path: Path, run_record: Callable[..., RunRecord]) -> None:
    """A secret on the command line does not reach the file."""
    run = run_record(command=("benchmarks", "--data.token=hunter2"))
    assert written(tmp_path, run)["command"] == ["benchmarks", "--data.token=***"]


def test_odd_characters_are_written(
    tmp_path: Path,
    run_record: Callable[..., RunRecord],
    measured: Callable[..., Measurement],
) -> None:
    """A reason with control characters or broken UTF-8 does not cost the summary."""
    failed = measured(outcome="failed", metrics={}, reason="a\x1b[31m\udcff\n")
    (benchmark,) = written(tmp_path, run_record(benchmarks=(failed,)))["benchmarks"]
    assert benchmark["reason"] == "a\x1b[31m\\udcff\n"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"status": "fine"}, "status"),
        ({"started": "yesterday"}, "started"),
        ({"run_id": ""}, "run_id"),
        ({"extra": 1}, "extra"),
        ({"benchmarks": [{"outcome": "failed"}]}, r"benchmarks\.0"),  # it has numbers
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema_version": 4}', "schema_version 4; .* 3 only"),
        ('{"schema_version": 2}', "schema_version 2; .* 3 only"),
        ('{"benchmarks": []}', "has no schema_version"),
        ("[]", "has no schema_version"),
        ('{"schema_ver', "is truncated"),
    ],
)
def test_unreadable_summary_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """A file of another version, broken or no summary at all is refused with the reason."""
    path = tmp_path / "summary.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=message):
        read(path)
