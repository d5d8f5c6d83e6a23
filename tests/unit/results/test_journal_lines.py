"""Tests of the published schema of a journal's lines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from gpubench_plugin.core import records
from gpubench_plugin.core.errors import BrokenFile
from gpubench_plugin.core.events import (
    EpochEvent,
    EvaluationEvent,
    FlopsEvent,
    LogEvent,
    RankEndedEvent,
    TrafficEvent,
    TrainingStepEvent,
)
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.results import journal_schema, verdicts
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.system import stored
from tests.support.schemas import DESCRIBES

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Measurement

PUBLISHED = Path(records.__file__).parents[2] / "docs" / "schemas" / "journal.schema.json"
VALIDATOR = Draft202012Validator(json.loads(PUBLISHED.read_text(encoding="utf-8")))
HEAD = {"schema_version": 1, "time": "2026-01-31T12:00:00.000000Z"}


def line(event: str, **fields: Any) -> dict[str, Any]:
    return {**HEAD, "event": event, **fields}


@DESCRIBES
def test_published_schema_is_current() -> None:
    """The schema in ``docs/`` is the one the models make, and a valid schema."""
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(published)
    assert published == stored.json_schema(journal_schema.Line)


def test_what_the_journal_writes_is_valid(
    tmp_path: Path, measured: Callable[..., Measurement]
) -> None:
    """A benchmark with samples and a number that is none, verdicts, and events inside it."""
    verdict = Verdict(id="a", kind="regressed", effect=0.1, interval=(0.05, 0.2), reason="why")
    comparison = Comparison(base="main", head="now", verdicts=(verdict,))
    rate: dict[str, Any] = {"samples": 64, "duration_s": 0.5, "samples_per_s": 128.0}
    events: list[dict[str, Any]] = [
        {"event": "benchmark", **stored.dump(measured(correctness={"loss": float("nan")}))},
        {"event": "verdicts", "verdicts": verdicts.document([comparison])},
        TrainingStepEvent(step=1, loss=float("nan"), learning_rate=0.1).line(),
        EpochEvent(epoch=1, step=23, loss=0.5, **rate).line(),
        FlopsEvent(per_call=100, uncounted_ops=("aten.x",)).line(),
        FlopsEvent(per_call=None, reason="no shapes").line(),
        TrafficEvent(bytes_read=3, bytes_written=0).line(),
        RankEndedEvent(rank=1, state="ended", stack="…").line(),
        LogEvent(step=0, metrics={"val/loss": float("inf")}).line(),
    ]
    with Journal(tmp_path / "metrics.jsonl") as journal:
        for event in events:
            journal.append({"benchmark": "a", **event})
    lines = [json.loads(text) for text in journal.path.read_text().splitlines()]
    assert lines[0]["not_finite"] == {"/correctness/loss": "nan"}
    for written in lines:
        VALIDATOR.validate(written)


@pytest.mark.parametrize(
    "wrong",
    [
        line("run_started", command=[]),
        line("benchmark", id="a"),
        line("training_step", step=1, loss=1.0),
        line("epoch", benchmark="a", epoch=0, step=1, loss=1.0),
        line("log", benchmark="a", step=1, metrics={}),
        line("evaluation", benchmark="a", test_accuracy=0.5),
        line("run_finished", status="fine"),
        {**line("anything"), "schema_version": 2},
        {**line("anything"), "time": "yesterday"},
        line(""),
    ],
)
def test_a_line_without_what_its_event_needs_is_invalid(wrong: dict[str, Any]) -> None:
    """An event that is known has its fields: it does not pass for some other event."""
    with pytest.raises(ValidationError):
        VALIDATOR.validate(wrong)
    form = journal_schema.LINES.get(wrong["event"], journal_schema.OtherEvent)
    with pytest.raises(BrokenFile):
        stored.restore(form, wrong, "it", strict=True)


def test_events_are_made_by_their_classes() -> None:
    """So a line cannot lack what its form needs: no event inside a benchmark is a literal."""
    texts = (path.read_text("utf-8") for path in Path(records.__file__).parents[1].rglob("*.py"))
    literals = {name for text in texts for name in re.findall(r'"event": "(\w+)"', text)}
    of_runs = {"run_started", "run_resumed", "run_finished", "benchmark", "verdicts"}
    of_rank_files = {"pipeline", "failed"}
    of_shards = {"test_started", "test_reported", "test_finished", "shard_ended"}
    assert literals <= of_runs | of_rank_files | of_shards


def test_an_event_leaves_out_what_it_does_not_know() -> None:
    """Unless it must be there: a loss that is no number is null."""
    event = EvaluationEvent(test_loss=0.5, is_best=False)
    assert event.line() == {"event": "evaluation", "is_best": False, "test_loss": 0.5}
    assert FlopsEvent(per_call=None).line()["per_call"] is None


def test_another_event_is_valid() -> None:
    """New events, and new fields of known ones, come without a new version."""
    VALIDATOR.validate(line("tagged", tags=["nightly"]))
    VALIDATOR.validate(line("run_finished", status="failed", why="boom"))
