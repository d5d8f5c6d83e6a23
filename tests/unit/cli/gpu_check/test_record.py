"""The record of ``gpubench gpu-check``, its schema and its page."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gpubench_plugin.cli.gpu_check.markdown import page
from gpubench_plugin.cli.gpu_check.record import (
    FORMAT,
    Band,
    Criterion,
    GpuCheck,
    Row,
    StageResult,
)
from gpubench_plugin.environment import stored

DOCS = Path(__file__).parents[4] / "docs"

RECORD = GpuCheck(
    part="all",
    budget_s=540,
    started="2026-11-24T12:00:00+00:00",
    finished="2026-11-24T12:08:00+00:00",
    device={"name": "NVIDIA <H200>", "uuid": "GPU-1", "power_limit_w": 700.0},
    versions={"torch": "2.13.0"},
    stages=(
        StageResult(
            name="clocks",
            outcome="failed",
            seconds=42.4,
            limit_s=90,
            criteria=(
                Criterion.of("a | b", 0.7, "at_most", 0.5, "%"),
                Criterion.of("c", 1.5, "at_least", 1.3, ""),
                Criterion.of("d", None, "equal", 1, ""),
            ),
        ),
        StageResult(name="tests", outcome="hang", reason="killed\nafter 90 s", limit_s=90),
    ),
    rows=(
        Row(
            id="test_a.py::test_a[x]",
            precision="amp",
            outcome="measured",
            step_time_s=0.08,
            interval_s=(0.079, 0.081),
            rate=3150.0,
            rate_unit="samples/s",
            mfu=0.47,
            peak_memory_bytes=2.0**34,
            flags=("throttled",),
            bare_s=0.0799,
            bands=(
                Band(
                    value=3098,
                    unit="samples/s",
                    device="H200",
                    settings="batch 1280",
                    date="2024-08",
                    source="https://example.org",
                ),
            ),
        ),
        Row(id="test_b.py::test_b", precision="fp32", outcome="oom", reason="no memory"),
    ),
    unproven=("that *it* holds (tests: hang)",),
)


@pytest.mark.parametrize(
    ("value", "bound", "limit", "passed"),
    [
        (0.5, "at_most", 0.5, True),
        (0.51, "at_most", 0.5, False),
        (1.3, "at_least", 1.3, True),
        (1.2, "at_least", 1.3, False),
        (0, "equal", 0, True),
        (True, "equal", 1, True),
        (1, "equal", 0, False),
        (None, "at_most", 0.5, False),
        (math.nan, "at_most", 0.5, False),
        (-math.inf, "at_most", 0.5, False),
    ],
)
def test_criteria(value: float | None, bound: str, limit: float, passed: bool) -> None:
    """Limits are allowed themselves; what is unknown, or no number, does not pass."""
    assert Criterion.of("a", value, bound, limit, "").passed is passed  # type: ignore[arg-type] # one of three


def test_published_schema_is_current_and_valid() -> None:
    """``gpubench schema gpu-check > docs/schemas/gpu-check.schema.json``."""
    published = json.loads((DOCS / "schemas" / "gpu-check.schema.json").read_text())
    assert published == stored.json_schema(GpuCheck)
    Draft202012Validator.check_schema(published)
    fields = json.loads(json.dumps(stored.dump(RECORD)))
    Draft202012Validator(published).validate(fields)
    assert stored.restore(GpuCheck, FORMAT.check(fields, "a record"), "a record") == RECORD


def test_page_says_what_failed_and_escapes_the_rest() -> None:
    """Criteria that were not met first, then numbers with published ones, then the open ends."""
    text = page(RECORD)

    assert "NVIDIA &#60;H200&#62;" in text
    assert "| clocks | **failed** | 42 | 90 | 1 of 3 |  |" in text
    assert "| clocks | a &#124; b | 0.7% | ≤ 0.5% |" in text
    assert "| clocks | d | unknown | = 1 |" in text
    assert text.index("a &#124; b") < text.index("test_a.py") < text.index("| clocks | c | 1.5 |")
    assert "3150 samples/s | 3098 samples/s | H200" in text
    assert "| `test_b.py::test_b` | **oom** |  |  |  |  |  | no memory |" in text
    assert "- that &#42;it&#42; holds" in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")


def test_page_of_a_run_that_was_killed() -> None:
    """It is not finished, and has neither rows nor criteria."""
    text = page(replace(RECORD, finished=None, device=None, stages=(), rows=(), unproven=()))
    assert "not finished" in text
    assert "**no GPU**" in text


def test_committed_record_is_the_one_in_the_docs() -> None:
    """docs/evidence/gpu.md has the page of docs/evidence/gpu-check.json word for word."""
    fields = FORMAT.load(DOCS / "evidence" / "gpu-check.json")
    record = stored.restore(GpuCheck, fields, "gpu-check.json", strict=True)
    assert page(record) in (DOCS / "evidence" / "gpu.md").read_text(encoding="utf-8")
