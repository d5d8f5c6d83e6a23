"""Pictures of values over time."""

from __future__ import annotations

import pytest

from gpubench_plugin.reports.dot_plot import Dot, dot_lines
from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.text import width
from tests.support.screens import in_ascii


def picture(dots: list[Dot], total: int = 80, noun: str = "launch") -> list[str]:
    return [in_ascii(plain(line)) for line in dot_lines(dots, "s", noun, total)]


def in_turns(base: list[float], head: list[float]) -> list[Dot]:
    """Dots of base and head alternately."""
    pairs = zip(base, head, strict=True)
    return [dot for b, h in pairs for dot in (Dot(value=b, sign="○"), Dot(value=h, sign="●"))]


def test_both_modes_of_a_side_are_seen_in_the_order_of_time() -> None:
    """Slow launches have a row of their own; the axis has the unit."""
    lines = picture(in_turns([1e-3] * 6, [1e-3, 1e-3, 1.5e-3] * 2))

    assert lines[0] == "1.500 ms |           x           x"
    assert lines[8] == "1.000 ms | o x o x o   o x o x o"
    assert lines[9] == "  launch   1                    12"
    assert {line.partition("|")[2].strip() for line in lines[1:8]} == {""}


def test_a_wild_value_does_not_flatten_the_others() -> None:
    """It is an arrow at the edge with a line below; so is one far below."""
    dots = in_turns([1e-3, 1.02e-3, 1e-3], [1.04e-3, 0.1, 1e-5])

    lines = picture(dots)

    assert lines[0] == "1.040 ms |   x   ^"
    assert lines[8].endswith("o       o v")
    assert lines[-2:] == [
        "^ 1 launch above the plot, up to 100.0 ms",
        "v 1 launch below the plot, down to 10.00 us",
    ]


def test_sides_far_apart_share_a_plot() -> None:
    """Neither is outside of it."""
    lines = picture(in_turns([1e-3] * 3, [1e-2, 1.1e-2, 1e-2]))

    assert not any(sign in line for line in lines for sign in "^v")
    assert lines[0] == "11.00 ms |       x"
    assert lines[8].endswith("| o   o   o")


def test_noise_is_no_mountain() -> None:
    """The scale covers at least one per cent."""
    lines = picture(in_turns([1.0, 1.0001], [1.0002, 1.0]))

    assert [line for line in lines if "o" in line and "|" in line] == [lines[4]]


def test_flags_are_marked_beneath_the_dots_that_raised_them() -> None:
    """Doubts before notes, one row each."""
    dots = [
        Dot(value=1.0, sign="○", flags=("outliers",)),
        Dot(value=1.1, sign="●", flags=("contended", "outliers")),
    ]

    assert picture(dots)[9:11] == ["contended |   !", " outliers | ! !"]


@pytest.mark.parametrize("total", [40, 80, 200])
def test_pictures_fit_the_terminal(total: int) -> None:
    """Of many, neighbours share a column; the last one's number is below."""
    launches = in_turns([1.0, 1.3] * 60, [1.1, 1.2] * 59 + [1.1, 100.0])
    rounds = [Dot(value=1 + number % 7 / 10, sign="○") for number in range(500)]

    for dots in (launches, rounds):
        lines = picture(dots, total, noun="round")
        assert max(map(width, lines)) <= total
        numbers = [line for line in lines if line.split()[0] == "round"]
        assert numbers[-1].split()[-1] == str(len(dots))
        assert all(line.isascii() for line in lines)
    marks = "".join(line.partition("|")[2] for line in picture(launches, total))
    assert marks.count("^") == 1
    assert {"o", "x"} <= {*marks}
