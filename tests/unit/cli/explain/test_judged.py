"""Whose limit it is."""

from __future__ import annotations

import pytest

from gpubench_plugin.cli.explain.judged import limit_origin


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
