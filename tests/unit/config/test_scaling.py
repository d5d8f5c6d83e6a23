"""Weak and strong scaling, through the layers of a real configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.config.resolution import resolve
from gpubench_plugin.config.sections import Configuration, ModelSection
from gpubench_plugin.core.errors import UsageProblem


def resolved(*overrides: str, file: Path | None = None, ranks: int = 2) -> Configuration[Any]:
    return resolve(
        name=None,
        preset="tiny",
        overlays=[] if file is None else [file],
        overrides=overrides,
        fixed_values={"distributed.world_size": ranks},
        rootdir=Path.cwd(),
        model_section=lambda _: ModelSection,
    )


def batches(configuration: Configuration[Any]) -> tuple[str, int]:
    return configuration.distributed.scaling, configuration.training.batch_size


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_both_kinds_are_named(ranks: int) -> None:
    """A batch per rank is weak scaling; a global one is strong, and shared evenly."""
    assert batches(resolved("training.batch_size=8", ranks=ranks)) == ("weak", 8)
    assert batches(resolved("data.global_batch_size=8", ranks=ranks)) == ("strong", 8 // ranks)


def test_accumulated_batches_share_the_global_one() -> None:
    """The global batch is what one optimizer step takes, whatever it is accumulated from."""
    accumulated = "training.accumulation_steps=2"
    assert batches(resolved("data.global_batch_size=24", accumulated)) == ("strong", 6)
    with pytest.raises(UsageProblem, match=r"2 ranks with 2 accumulated .* a multiple of 4"):
        resolved("data.global_batch_size=10", accumulated)


def test_a_global_batch_replaces_an_earlier_batch_size(tmp_path: Path) -> None:
    """One said later replaces a batch per rank, null takes it back; a share is no conflict."""
    file = tmp_path / "own.yaml"
    file.write_text("training: {batch_size: 5}")
    assert batches(resolved("data.global_batch_size=8", file=file)) == ("strong", 4)
    taken_back = ("data.global_batch_size=8", "data.global_batch_size=null")
    assert batches(resolved(*taken_back, file=file)) == ("weak", 5)
    file = tmp_path / "config_resolved.yaml"
    file.write_text(
        "training: {batch_size: 4}\ndata: {global_batch_size: 8}\ndistributed: {scaling: strong}"
    )
    assert batches(resolved(file=file)) == ("strong", 4)


def test_a_batch_size_beside_a_global_one_is_refused(tmp_path: Path) -> None:
    """Two sizes of which neither was said after the other; another kind than follows."""
    with pytest.raises(UsageProblem, match=r"5 conflicts with .* 8 \(--data.* allowed: 4, or null"):
        resolved("data.global_batch_size=8", "training.batch_size=5")
    file = tmp_path / "own.yaml"
    file.write_text("training: {batch_size: 5}\ndata: {global_batch_size: 8}")
    with pytest.raises(UsageProblem, match=r"training\.batch_size: 5 conflicts with"):
        resolved(file=file)
    with pytest.raises(UsageProblem, match=r'"strong" contradicts "weak", .*allowed: weak'):
        resolved("distributed.scaling=strong")
