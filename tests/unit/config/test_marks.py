from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from gpubench_plugin.config.marks import BenchmarkMark, full_profile_only


class _Node:
    """A benchmark with these marks."""

    nodeid = "test_it.py::test_x"

    def __init__(self, *decorators: pytest.MarkDecorator):
        self._marks = [decorator.mark for decorator in decorators]

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        return (mark for mark in self._marks if mark.name == name)


def _node(*decorators: pytest.MarkDecorator) -> Any:
    return cast("Any", _Node(*decorators))


@pytest.mark.parametrize(
    ("named", "precision", "left_out"),
    [
        ([()], "fp32", True),
        ([("bf16",)], "bf16", True),
        ([("bf16",)], "fp32", False),
        ([("amp",), ("bf16",)], "amp", True),
        ([], "fp32", False),
    ],
)
def test_the_mark_keeps_a_precision_out_of_quick_runs(
    named: list[tuple[str, ...]], precision: str, left_out: bool
) -> None:
    """Without names it is meant for every precision, with names for these; marks add up."""
    node = _node(*(pytest.mark.gpubench_full(*names) for names in named))
    assert full_profile_only(node, precision) is left_out


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        (">=2", "needs 2 ranks or more: --world-size=2"),
        (1, "runs on 1 rank only: --world-size=1"),
        ((2, 4, 8), "runs on 2, 4 or 8 ranks only: --world-size=2,4,8"),
    ],
)
def test_the_ranks_that_a_benchmark_needs_are_told_in_words(ranks: Any, reason: str) -> None:
    """With the option that gives them."""
    assert BenchmarkMark(ranks=ranks).needed_ranks == reason
