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
    message = (
        "--data.global_batch_size=10: 10 is not divisible by 2 ranks with 2 accumulated batches "
        "each; allowed: a multiple of 4"
    )
    with pytest.raises(UsageProblem) as caught:
        resolved("data.global_batch_size=10", accumulated)
    assert str(caught.value) == message


def test_a_global_batch_replaces_an_earlier_batch_size(tmp_path: Path) -> None:
    """A file's batch size per rank gives way to a global one said later, and null takes it back."""
    file = tmp_path / "own.yaml"
    file.write_text("training: {batch_size: 5}")
    assert batches(resolved("data.global_batch_size=8", file=file)) == ("strong", 4)
    taken_back = ("data.global_batch_size=8", "data.global_batch_size=null")
    assert batches(resolved(*taken_back, file=file)) == ("weak", 5)


def test_a_batch_size_beside_a_global_one_is_refused(tmp_path: Path) -> None:
    """Two sizes of which neither was said after the other, or the wrong one, are an error."""
    message = (
        "5 conflicts with data.global_batch_size 8 ({}); "
        "allowed: 4, or null for data.global_batch_size"
    )
    with pytest.raises(UsageProblem) as caught:
        resolved("data.global_batch_size=8", "training.batch_size=5")
    said = message.format("--data.global_batch_size=8")
    assert str(caught.value) == f"--training.batch_size=5: {said}"
    file = tmp_path / "own.yaml"
    file.write_text("training: {batch_size: 5}\ndata: {global_batch_size: 8}")
    with pytest.raises(UsageProblem, match=r"training\.batch_size: 5 conflicts with"):
        resolved(file=file)


def test_a_resolved_configuration_resolves_to_itself(tmp_path: Path) -> None:
    """What the run directory keeps, share and kind included, can be given as a file again."""
    file = tmp_path / "config_resolved.yaml"
    file.write_text(
        "training: {batch_size: 4}\ndata: {global_batch_size: 8}\ndistributed: {scaling: strong}"
    )
    assert batches(resolved(file=file)) == ("strong", 4)


def test_a_kind_that_it_is_not_is_refused() -> None:
    """The kind of scaling follows from the batch; saying the other one is an error."""
    with pytest.raises(UsageProblem) as caught:
        resolved("distributed.scaling=strong")
    assert str(caught.value) == (
        '--distributed.scaling=strong: "strong" contradicts "weak", '
        "which data.global_batch_size implies; allowed: weak, or data.global_batch_size=N"
    )
