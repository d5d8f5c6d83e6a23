"""Whose limit it is, and which numbers were judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.cli.explain.judged import judged_explanation, limit_origin
from gpubench_plugin.core.verdicts import Verdict
from gpubench_plugin.results.reader import RunReader
from tests.support.runs_builder import MLP, measurement, write_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("given", "base", "head", "expected"),
    [
        ("", "", "", "the default"),
        ("2%", "2%", "", "from --limit"),
        ("", "2%", " 2%", "the base states 2%; the head states 2%"),
        ("", "2%", "60%", "the base states 2%; the head states 60%"),
        ("", "", "2%", "the base states none; the head states 2%"),
        ("", "", "60%", "the default; the base states none; the head states 60%"),
    ],
)
def test_the_limit_is_said_to_be_whose_it_is(
    given: str, base: str, head: str, expected: str
) -> None:
    """With what the other side states, so that a loosened limit is seen."""
    stated = [{"step_time_s": text} if text else {} for text in (given, base, head)]
    assert (
        limit_origin("step_time_s", "2%", options=stated[0], base=stated[1], head=stated[2])
        == expected
    )


def test_a_limit_on_one_step_time_is_the_other_ones_and_may_be_the_rates() -> None:
    """Each is judged by it, though it was stated of one alone; memory has one of its own."""
    stated = {"step_time_s": "10%"}
    for metric in ("step_time_s", "step_time_min_s", "samples_per_s"):
        origin = limit_origin(metric, "10%", base=stated, head=stated)
        assert origin == "the base states 10%; the head states 10%"
    for metric, limit in (("samples_per_s", "5%"), ("peak_memory_bytes", "10%")):
        assert limit_origin(metric, limit, base=stated, head=stated) == "the default"


@pytest.mark.parametrize(
    ("head", "plotted"),
    [(0.0125, 0.0125), (0.0125 * (1 + 2e-16), 0.0125), (0.0123, 0.0123), (0.5, 0.0123)],
)
def test_points_are_of_the_minimum_that_was_compared(
    tmp_path: Path, head: float, plotted: float
) -> None:
    """Over fewer rounds where the verdict's number is that one."""
    fewer = {"step_time_min_of_16_s": (0.0125, "s", "lower")}
    directory = write_run(tmp_path, 0, [measurement(MLP, 0.0123, metrics=fewer)])
    verdict = Verdict(id=MLP, metric="step_time_min_s", unit="s", kind="unchanged", head=head)
    explained = judged_explanation(
        [verdict],
        [("a", "this run", RunReader(directory).run().results[MLP], 0)],
        stated={"base": {}, "head": {}},
        benchmark=MLP,
        subject="a run",
        noun="run",
    )
    assert explained.points[0].values == {"step_time_min_s": plotted}
