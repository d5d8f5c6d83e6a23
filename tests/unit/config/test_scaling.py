"""Weak and strong scaling, through the layers of a real configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench_plugin.core.errors import UsageProblem
from tests.support.resolving import resolved

ONE = "training: {batch_size: 5}"
BOTH = f"{ONE}\ndata: {{global_batch_size: 8}}"
SHARE = BOTH.replace("5", "4") + "\ndistributed: {scaling: strong}"


def batches(root: Path, overrides: str, file: str = "{}", ranks: int = 2) -> tuple[str, object]:
    """Kind of scaling, and the batch of a rank."""
    chosen = {"distributed.world_size": ranks}
    configuration = resolved(root, *overrides.split(), file=file, fixed_values=chosen)
    return configuration.distributed.scaling, configuration.training.batch_size


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_both_kinds_are_named(tmp_path: Path, ranks: int) -> None:
    """A batch per rank is weak scaling; a global one is strong, and shared evenly."""
    assert batches(tmp_path, "training.batch_size=8", ranks=ranks) == ("weak", 8)
    assert batches(tmp_path, "data.global_batch_size=8", ranks=ranks) == ("strong", 8 // ranks)


@pytest.mark.parametrize(
    ("file", "overrides", "expected"),
    [
        ("{}", "data.global_batch_size=24 training.accumulation_steps=2", ("strong", 6)),
        (ONE, "data.global_batch_size=8", ("strong", 4)),
        (ONE, "data.global_batch_size=8 data.global_batch_size=null", ("weak", 5)),
        (SHARE, "", ("strong", 4)),
    ],
)
def test_what_is_stated_last_counts(
    tmp_path: Path, file: str, overrides: str, expected: tuple[str, int]
) -> None:
    """Null takes a global batch back, batches are accumulated to it; a share is no conflict."""
    assert batches(tmp_path, overrides, file) == expected


ACCUMULATED = "data.global_batch_size=10 training.accumulation_steps=2"
AT_ONCE = "data.global_batch_size=8 training.batch_size=5"


@pytest.mark.parametrize(
    ("file", "overrides", "message"),
    [
        ("{}", ACCUMULATED, r"2 ranks with 2 accumulated .* a multiple of 4"),
        ("{}", AT_ONCE, r"5 conflicts with .* 8 \(--data.* allowed: 4, or null"),
        (BOTH, "", r"training\.batch_size: 5 conflicts with"),
        ("{}", "distributed.scaling=strong", r'"strong" contradicts "weak", which data\.global'),
    ],
)
def test_a_contradiction_is_refused(
    tmp_path: Path, file: str, overrides: str, message: str
) -> None:
    """Two sizes of which neither was said after the other; another kind than follows."""
    with pytest.raises(UsageProblem, match=message):
        batches(tmp_path, overrides, file)
